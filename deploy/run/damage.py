"""Damages rows of a table behind Floe's back: the proof that the audit can fail.

A Parquet data file is rewritten in place with a row dropped, doubled or changed. The file keeps its
name and its length (the gap before the footer is padded), so nothing but its rows tells of it: neither
Iceberg's metadata nor Floe takes part.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog

_MAGIC = b"PAR1"
# (zstd level, dictionaries, statistics): from what the committer writes to what takes least room.
_WRITINGS = ((3, True, True), (19, True, True), (22, True, False), (22, False, False))


class CannotDamage(Exception):
    """The table has no file in which a row could be damaged unnoticed."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What was done, and to which record."""

    how: str
    topic: str
    partition: int
    offset: int
    path: str

    def __str__(self) -> str:
        words = {"drop": "dropped", "double": "doubled", "change": "changed"}
        return (
            f"{words[self.how]} topic {self.topic} partition {self.partition} offset {self.offset} "
            f"in {self.path.rsplit('/', 1)[-1]}"
        )


def _drop(table: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, row), table.slice(row + 1)])


def _double(table: pa.Table, row: int) -> pa.Table:
    return pa.concat_tables([table.slice(0, row + 1), table.slice(row)])


def _change(table: pa.Table, row: int) -> pa.Table:
    """Flip the last bit of the record's own bytes."""
    (changed,) = table.slice(row, 1).to_pylist()
    raw = changed["value"]["__raw__"]
    changed["value"]["__raw__"] = raw[:-1] + bytes([raw[-1] ^ 1])
    one = pa.Table.from_pylist([changed], schema=table.schema)
    return pa.concat_tables([table.slice(0, row), one, table.slice(row + 1)])


WAYS: Mapping[str, Callable[[pa.Table, int], pa.Table]] = {
    "drop": _drop,
    "double": _double,
    "change": _change,
}


def damage(
    ways: Sequence[str], topic: str, table: str, catalog_uri: str, properties: Mapping[str, str]
) -> list[Damage]:
    """Damage a row of the table's largest file in each of these ways. `table` is `namespace.name`.

    `properties` are pyiceberg's, such as `s3.endpoint` and credentials. Raises CannotDamage.
    """
    catalog = RestCatalog("floe", uri=catalog_uri, **properties)
    loaded = catalog.load_table(table)
    files = sorted((task.file for task in loaded.scan().plan_files()), key=lambda file: -file.record_count)
    least = 2 * len(ways) + 1
    if not files or files[0].record_count < least:
        raise CannotDamage(f"{table} has no file of {least} rows or more")
    path = files[0].file_path
    original = loaded.io.new_input(path).open().read()
    rows, done = pq.read_table(io.BytesIO(original)), list[Damage]()
    places = [rows.num_rows * number // (len(ways) + 1) for number in range(len(ways), 0, -1)]
    for how, row in zip(ways, places, strict=True):  # from the end, so the others stay where they are
        (place,) = rows.slice(row, 1).column("kafka").to_pylist()
        rows = WAYS[how](rows, row)
        done.append(Damage(how, topic, place["partition"], place["offset"], path))
    with loaded.io.new_output(path).create(overwrite=True) as file:
        file.write(_same_length(rows, len(original)))
    return done


def _same_length(table: pa.Table, length: int) -> bytes:
    """The table as a Parquet file of exactly `length` bytes."""
    for level, dictionaries, statistics in _WRITINGS:
        out = io.BytesIO()
        pq.write_table(
            table,
            out,
            compression="zstd",
            compression_level=level,
            row_group_size=max(1, table.num_rows),
            use_dictionary=dictionaries,
            write_statistics=statistics,
            store_schema=False,
        )
        written = out.getvalue()
        if len(written) <= length:
            return _padded(written, length)
    raise CannotDamage(f"the damaged file does not fit into its {length} bytes")


def _padded(written: bytes, length: int) -> bytes:
    """Put zeros between the row groups and the footer: readers find the footer from the end of the file."""
    assert written.endswith(_MAGIC)
    (footer_length,) = struct.unpack_from("<I", written, len(written) - 8)
    footer = len(written) - 8 - footer_length
    return written[:footer] + bytes(length - len(written)) + written[footer:]
