"""Rows of a `__latest` table against those that are due, cell by cell: the part that runs on executors."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from iceberg.column_ids import VALUE_ID
from iceberg.spark import flat
from iceberg.spark.cells import Difference, Plain, differences, first, plain, shown
from iceberg.spark.columns import VALUE_ERROR
from iceberg.spark.schemas import RAW, VALUE
from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, EXTRA, MISSING, PLACE

FOUND = pa.schema(
    [
        ("kind", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("column", pa.string()),
        ("detail", pa.string()),
    ]
)
FOUND_SQL = "kind string, partition int, offset long, column string, detail string"

KAFKA, PARTITION, OFFSET = "kafka", "partition", "offset"
_OWN = (RAW[VALUE], VALUE_ERROR)
Told = tuple[str, int, int, str, str]
Row = Mapping[int, Plain]


@dataclass(frozen=True, slots=True)
class Sides:
    """The two tables: the latest one's name, and the top-level fields of both as JSON. `debezium`: the rows
    that are due are `after` of the values.
    """

    table: str
    source: str
    latest: str
    debezium: bool


def comparing(sides: Sides, ledger: Sequence[int]) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """For mapInArrow: rows with partition, raw, gone_at, wanted, found and n → findings (FOUND)."""
    return partial(_compared, sides, list(ledger))


def _compared(sides: Sides, ledger: list[int], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    judge = Judge(sides, ledger)
    for batch in batches:
        told = [] if judge.alike(batch) else list(judge.told(batch))
        columns = zip(*told, strict=True) if told else [[] for _ in FOUND]
        arrays = [pa.array(list(each), kind.type) for each, kind in zip(columns, FOUND, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=FOUND)


class Judge:
    """Judges pairs of rows."""

    def __init__(self, sides: Sides, ledger: Sequence[int]) -> None:
        self._table, self._debezium, self._ledger = sides.table, sides.debezium, ledger
        self._source: dict[str, Any] = {"type": "struct", "fields": _told_apart(sides.source)}
        self._flat = flat.is_flat(json.loads(sides.latest))
        self._latest: dict[str, Any] = {"type": "struct", "fields": _told_apart(sides.latest)}
        kafka = next(each for each in self._latest["fields"] if each["name"] == KAFKA)
        inside = {each["name"]: each["id"] for each in kafka["type"]["fields"]}
        self._kafka, self._offset = kafka["id"], inside[OFFSET]
        self._wide = widened(self._latest, _doubles(self._source))
        self._quick = sides.source == sides.latest and not sides.debezium and not _reals(self._latest)

    def alike(self, batch: pa.RecordBatch) -> bool:
        """Whether all is right, told without looking at single rows; False where that cannot be told."""
        if not self._quick or any(n != 1 for n in batch.column("n").to_pylist()):
            return False
        wanted, found = batch.column("wanted"), batch.column("found")
        ends = dict(enumerate(self._ledger))
        places = zip(batch.column("partition").to_pylist(), self._offsets(found), strict=True)
        inside = all(o is not None and o < ends.get(p, 0) for p, o in places)
        return inside and not wanted.null_count and bool(wanted.equals(found))

    def _offsets(self, found: pa.StructArray) -> list[int | None]:
        kafka = found.field(KAFKA)
        return list(kafka.field(OFFSET).to_pylist())

    def told(self, batch: pa.RecordBatch) -> Iterator[Told]:
        """What is wrong."""
        keys = (batch.column(name).to_pylist() for name in ("partition", "raw", "gone_at", "n"))
        wanted = plain(batch.column("wanted"), self._source)
        found = [
            as_wide(self._latest, self._wide, each) for each in plain(batch.column("found"), self._latest)
        ]
        for partition, raw, gone_at, n, due, there in zip(*keys, wanted, found, strict=True):
            at = -1 if partition is None else partition
            for kind, offset, column, detail in self._pair(partition, raw, gone_at, n, due, there):
                yield kind, at, -1 if offset is None else offset, column, f"{self._table}: {detail}"

    def _pair(
        self, partition: int | None, raw: bytes | None, gone_at: int | None, n: int, due: Any, there: Any
    ) -> Iterator[tuple[str, int | None, str, str]]:
        """Kind, offset, column and words of what is wrong with one row, or with one that is not there."""
        key = shown(raw, "binary")
        if there is None:
            yield MISSING, self._place(due), "", f"the newest row of key {key} is not there"
            return
        offset = self._place(there)
        misplaced = self._misplaced(partition, raw, offset)
        if misplaced:
            yield PLACE, offset, "", misplaced
        elif n > 1:
            yield DOUBLED, offset, "", f"key {key} has {n} rows"
        elif due is None:
            why = (
                f"key {key} was deleted at offset {gone_at}"
                if gone_at is not None
                else f"no record has key {key}"
            )
            yield EXTRA, offset, "", why
        elif offset != self._place(due):
            yield CHANGED, offset, "", f"the newest row of key {key} is that of offset {self._place(due)}"
        else:
            for column, detail in self._wrong(due, there):
                yield COLUMN, offset, column, detail

    def _place(self, row: Row) -> int | None:
        kafka = row[self._kafka]
        return None if kafka is None else kafka[self._offset]

    def _misplaced(self, partition: int | None, raw: bytes | None, offset: int | None) -> str:
        """Why a row has no place in such a table; empty where it has."""
        if raw is None:
            return "the row has no key"
        if partition is None or offset is None or offset < 0:
            return f"the row's partition is {partition} and its offset {offset}"
        end = dict(enumerate(self._ledger)).get(partition, 0)
        return f"the ledger says {end:,}, the row's offset is not below" if offset >= end else ""

    def _wrong(self, due: Row, there: Row) -> list[Difference]:
        expected = dict(due)
        value = expected.get(VALUE_ID)
        if self._debezium and value is not None:
            after = value.get(self._after()) or {}
            expected[VALUE_ID] = {**{number: value[number] for number in _OWN if number in value}, **after}
        found: list[Difference] = []
        for each in self._wide["fields"]:
            number, path = each["id"], each["name"]
            ours, theirs = expected.get(number), there.get(number)
            found += first(_lacking(each["type"], ours, path))
            found += first(differences(each["type"], ours, theirs, path))
        return [(flat.told(column, self._flat), detail) for column, detail in found]

    def _after(self) -> int:
        value = next(each for each in self._source["fields"] if each["id"] == VALUE_ID)
        return next(int(each["id"]) for each in value["type"]["fields"] if each["name"] == "after")


def _told_apart(fields: str) -> list[dict[str, Any]]:
    """The columns in the order in which their structs are made, the value's inside `value`."""
    by_name = {each["name"]: each for each in flat.whole(json.loads(fields))}
    return [by_name[name] for name in (KAFKA, "key", "value", "headers")]


def _inside(kind: Any) -> Iterator[tuple[int, Any]]:
    """The ids and types of what is directly inside a type."""
    if not isinstance(kind, str):
        yield from ((each["id"], each["type"]) for each in kind.get("fields", ()))
        yield from ((kind[f"{name}-id"], kind[name]) for name in ("element", "key", "value") if name in kind)


def _doubles(kind: Any) -> set[int]:
    """The ids of all doubles inside a type."""
    found: set[int] = set()
    for number, each in _inside(kind):
        found |= {number} if each == "double" else _doubles(each)
    return found


def widened(kind: Any, doubles: Set[int]) -> Any:
    """The type, with doubles where the topic's table has them by now and the latest one still has floats."""
    if isinstance(kind, str):
        return kind
    found = dict(kind)
    for name in ("element", "key", "value"):
        if name in kind:
            wide = kind[name] == "float" and kind[f"{name}-id"] in doubles
            found[name] = "double" if wide else widened(kind[name], doubles)
    if "fields" in kind:
        found["fields"] = [
            {**each, "type": "double"}
            if each["type"] == "float" and each["id"] in doubles
            else {**each, "type": widened(each["type"], doubles)}
            for each in kind["fields"]
        ]
    return found


def as_wide(kind: Any, wide: Any, value: Plain) -> Plain:
    """A value of the one type as one of the other."""
    if value is None or kind == wide:
        return value
    if isinstance(kind, str):
        real = struct.unpack("<f", struct.pack("<I", value))[0]
        return struct.unpack("<Q", struct.pack("<d", real))[0]
    if kind["type"] == "struct":
        pairs = zip(kind["fields"], wide["fields"], strict=True)
        return {one["id"]: as_wide(one["type"], other["type"], value[one["id"]]) for one, other in pairs}
    if kind["type"] == "list":
        return [as_wide(kind["element"], wide["element"], each) for each in value]
    return [(key, as_wide(kind["value"], wide["value"], each)) for key, each in value]


def _reals(kind: Any) -> bool:
    """Whether a type has floats anywhere, which are not equal by what Arrow calls so."""
    if isinstance(kind, str):
        return kind in ("float", "double")
    return any(_reals(each) for _, each in _inside(kind))


def _lacking(kind: Any, expected: Plain, path: str) -> Iterator[Difference]:
    """What is due where the table has no column for it."""
    if isinstance(kind, str) or kind["type"] != "struct" or expected is None:
        return
    known = {each["id"]: each for each in kind["fields"]}
    for number, value in expected.items():
        if number not in known and value is not None:
            yield f"{path}.#{number}", "is a column of the topic's table with a value here, and is not there"
        elif number in known:
            yield from _lacking(known[number]["type"], value, f"{path}.{known[number]['name']}")
