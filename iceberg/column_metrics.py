"""What manifests say of a file's decoded columns: how many nulls, lowest and highest value.

Queries leave whole files out by it, so a wrong figure loses rows silently. Of each figure that is not certain
nothing is said, and readers then look into the file:

* A column that is NaN in some row has no bounds and no count of NaNs: the specification leaves NaN out of the
  bounds, but SQL engines (Spark) hold it for greater than all numbers, so `x > 5` would lose those rows.
* Zeroes have both signs: -0.0 is never an upper bound, 0.0 never a lower one.
* Strings and bytes are cut to 16 characters or bytes (Iceberg's `truncate(16)`), the upper bound is then the
  next greater one. Where there is no such, or a value is too long for Parquet's own statistics (4 kB), there
  is no bound.
* What is inside lists and maps, and Floe's `value.__raw__`, has no figures.

Counts and bounds are read back from the footer of the file that was written; Parquet's statistics do not tell
of NaN, so that is looked for in the rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg.arrow_types import FIELD_ID
from iceberg.evolution import KAFKA_ID, OWN_IDS, VALUE_RAW_ID

COLUMNS_MAX = 100
"""Columns of a file that manifests tell of, those of less nesting first: Iceberg's own
write.metadata.metrics.max-inferred-column-defaults. The bounds of `kafka` come on top.
"""
TRUNCATED = 16
"""Characters of a string, bytes of a binary column that a bound has: Iceberg's own default."""
_CODE_POINT_MAX = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)

Path = tuple[str, ...]


class ColumnMetrics(NamedTuple):
    """Of one column of a file: rows, nulls among them, NaNs (None: not said), and bounds as Iceberg writes
    single values (None: not said).
    """

    values: int
    nulls: int
    nans: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class Leaf(NamedTuple):
    """A column of single values: its Iceberg id, its names from the top level on, its type."""

    number: int
    path: Path
    kind: pa.DataType

    @property
    def real(self) -> bool:
        """Whether it may hold NaN."""
        return bool(pa.types.is_floating(self.kind))


def leaves(schema: Iterable[pa.Field], most: int = COLUMNS_MAX) -> list[Leaf]:
    """The columns that manifests tell of, at most so many."""
    found: list[Leaf] = []
    level: list[tuple[Path, pa.Field]] = [
        ((each.name,), each) for each in schema if _number(each) != KAFKA_ID
    ]
    while level:
        inner: list[tuple[Path, pa.Field]] = []
        for path, each in level:
            if pa.types.is_struct(each.type):
                inner += [((*path, child.name), child) for child in each.type]
            elif not pa.types.is_nested(each.type) and _number(each) != VALUE_RAW_ID:
                found.append(Leaf(_number(each), path, each.type))
        level = inner
    if len(found) > most:  # Floe's own are not left out for those of a flat table, which are less nested
        found.sort(key=lambda each: each.number not in OWN_IDS)
    return found[:most]


class NanWatch:
    """Which real columns are NaN in some row of a file that is being written."""

    def __init__(self, schema: pa.Schema) -> None:
        self._reals = [each for each in leaves(schema) if each.real]
        self.found: set[int] = set()
        """Their ids."""

    def look(self, rows: pa.Table) -> None:
        """At rows that are written."""
        for each in self._reals:
            if each.number not in self.found and pc.any(pc.is_nan(_values(rows, each.path))).as_py():
                self.found.add(each.number)


def _values(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    """A column's values, null where one of the structs around it is."""
    column = rows.column(path[0])
    return pc.struct_field(column, list(path[1:])) if path[1:] else column


def of_file(
    footer: pq.FileMetaData, schema: Iterable[pa.Field], nans: Collection[int]
) -> dict[int, ColumnMetrics]:
    """By Iceberg id what the footer says of the columns. `nans`: columns that are NaN in some row."""
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    places = {groups[0].column(at).path_in_schema: at for at in range(footer.num_columns)} if groups else {}
    found = {}
    for each in leaves(schema):
        at = places.get(".".join(each.path))
        told = [group.column(at).statistics for group in groups] if at is not None else []
        if told and all(one is not None and one.has_null_count for one in told):
            found[each.number] = _metrics(each, footer.num_rows, told, each.number in nans)
    return found


def _metrics(leaf: Leaf, rows: int, told: list[pq.Statistics], nan: bool) -> ColumnMetrics:
    nulls = sum(one.null_count for one in told)
    some = [one for one in told if one.num_values]
    if nan:
        return ColumnMetrics(rows, nulls)
    nans = 0 if leaf.real else None
    if not some or not all(one.has_min_max for one in some):
        return ColumnMetrics(rows, nulls, nans)
    lowest = min(_comparable(leaf.kind, one.min_raw) for one in some)
    highest = max(_comparable(leaf.kind, one.max_raw) for one in some)
    return ColumnMetrics(rows, nulls, nans, _lower(leaf.kind, lowest), _upper(leaf.kind, highest))


def _comparable(kind: pa.DataType, raw: Any) -> Any:
    """A statistic's raw value in the order of its column."""
    return int.from_bytes(raw, "big", signed=True) if pa.types.is_decimal(kind) else raw


def _lower(kind: pa.DataType, value: Any) -> bytes | None:
    if pa.types.is_string(kind):
        return _characters(value, lambda text: text)
    if pa.types.is_binary(kind):
        return bytes(value[:TRUNCATED])
    if pa.types.is_floating(kind):
        value = -0.0 if value == 0 else value
    return _packed(kind, value)


def _upper(kind: pa.DataType, value: Any) -> bytes | None:
    if pa.types.is_string(kind):
        return _characters(value, next_text)
    if pa.types.is_binary(kind):
        return bytes(value) if len(value) <= TRUNCATED else next_bytes(bytes(value[:TRUNCATED]))
    if pa.types.is_floating(kind):
        value = 0.0 if value == 0 else value
    return _packed(kind, value)


def _characters(raw: bytes, beyond: Callable[[str], str | None]) -> bytes | None:
    """A string's bound; None where there is none, or the bytes are no string."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    if len(text) <= TRUNCATED:
        return raw
    found = beyond(text[:TRUNCATED])
    return None if found is None else found.encode()


def next_text(text: str) -> str | None:
    """The shortest string that is greater than all that begin with this one; None when there is none."""
    while text:
        point = ord(text[-1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop
        if point <= _CODE_POINT_MAX:
            return text[:-1] + chr(point)
        text = text[:-1]
    return None


def next_bytes(content: bytes) -> bytes | None:
    """The same of bytes."""
    kept = content.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _packed(kind: pa.DataType, value: Any) -> bytes | None:
    """A single value as the specification's appendix D has it; None for a type that it does not have."""
    if pa.types.is_boolean(kind):
        return b"\x01" if value else b"\x00"
    if pa.types.is_decimal(kind):
        length = (value if value >= 0 else ~value).bit_length() // 8 + 1
        return int(value).to_bytes(length, "big", signed=True)
    form = _FORMS.get(kind)
    return None if form is None else struct.pack(form, value)


_FORMS: Mapping[pa.DataType, str] = {
    pa.int32(): "<i",
    pa.int64(): "<q",
    pa.float32(): "<f",
    pa.float64(): "<d",
    pa.timestamp("us", tz="UTC"): "<q",
    pa.timestamp("us"): "<q",
    pa.date32(): "<i",
}


def _number(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])
