"""Small hand-written histories and tables for the audit's tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg.spark.history import HistoryRow, HistoryWriter, bytes_hash, headers_hash

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TABLE_SCHEMA = pa.schema(
    [
        pa.field(
            "kafka",
            pa.struct(
                [
                    ("partition", pa.int32()),
                    ("offset", pa.int64()),
                    ("timestamp", pa.timestamp("us", "UTC")),
                    ("timestamp_type", pa.int32()),
                ]
            ),
        ),
        pa.field("key", pa.struct([("__raw__", pa.binary())])),
        pa.field("value", pa.struct([("__raw__", pa.binary())])),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


@dataclass(frozen=True, slots=True)
class Told:
    """A record as a story tells it."""

    partition: int
    offset: int
    value: bytes | None = b"value"
    key: bytes | None = b"key"
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = 1_700_000_000_123

    def history(self) -> HistoryRow:
        """As producer or consumer see it."""
        return HistoryRow(
            "orders",
            self.partition,
            self.offset,
            bytes_hash(self.key),
            bytes_hash(self.value),
            headers_hash(self.headers),
            self.timestamp_ms,
        )

    def table_row(self) -> dict[str, object]:
        """As Floe's committer writes it."""
        return {
            "kafka": {
                "partition": self.partition,
                "offset": self.offset,
                "timestamp": _EPOCH + timedelta(milliseconds=self.timestamp_ms),
                "timestamp_type": 0,
            },
            "key": None if self.key is None else {"__raw__": self.key},
            "value": None if self.value is None else {"__raw__": self.value},
            "headers": [{"key": key, "value": value} for key, value in self.headers],
        }


def story() -> list[Told]:
    """Two partitions of five records with everything that hashes could get wrong in them."""
    records = [
        Told(partition, offset, b"%d/%d" % (partition, offset)) for partition in (0, 1) for offset in range(5)
    ]
    records[1] = replace(records[1], key=None)
    records[2] = replace(records[2], value=None)
    records[3] = replace(records[3], value=b"", key=b"\xff\x00")
    records[4] = replace(records[4], headers=(("trace", b"\x00:,-"), ("empty", b""), ("nothing", None)))
    records[5] = replace(records[5], headers=(("größe", b"1"),), timestamp_ms=0)
    return records


def write_history(folder: Path, rows: list[HistoryRow]) -> Path:
    """One Parquet history file in `folder`."""
    with HistoryWriter(folder / "history.parquet") as writer:
        for row in rows:
            writer.add(row)
    return folder


def write_table(path: Path, records: list[Told]) -> Path:
    """A Parquet file with the columns of a Floe table."""
    pq.write_table(pa.Table.from_pylist([record.table_row() for record in records], TABLE_SCHEMA), path)
    return path
