"""Every column of a table against the bytes of its own row: the part of the audit that runs on executors.

A row's `__raw__` is compared with what a consumer read by audit.py; here it is decoded, by the schema that is
its own (schemas.py) and without Floe's decoder (messages.py), and every other column of `key` and `value`
compared with that, null against default and reals by their bits. A column that the row's schema does not
have must be null; `__err__` must be there exactly where the strict parse fails (its text is not compared).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.spark import flat
from iceberg.spark.cells import Difference, Plain, differences, first, plain
from iceberg.spark.schemas import KEY, RAW, VALUE, Due, Role, TopicSchemas
from iceberg.spark.wire import RowHeaders

COLUMNS_PROPERTY = "floe.columns"
"""The table's property that says which column belongs to which field of which message."""

UNREADABLE_HEADER = b"floe.unreadable"
"""Key of the one header of a row that stands for a batch nobody can open: nothing is decoded there."""

VALUE_ERROR, HEADER_KEY = 10, 13  # fixed ids of every table
_OWN = (*RAW.values(), VALUE_ERROR)

HEADERS = "headers"
MESSAGES = ("key", "value", HEADERS)
WRONG = pa.list_(pa.struct([("column", pa.string()), ("detail", pa.string())]))
WRONG_SQL = "array<struct<column string, detail string>>"


@dataclass(frozen=True, slots=True)
class TableColumns:
    """A table as of one snapshot: its top-level fields and its `floe.columns`, both as JSON."""

    fields: str
    ids: str

    def judge(self, schemas: TopicSchemas) -> Judge:
        """What judges its rows."""
        top = json.loads(self.fields)
        fields = {each["id"]: each for each in flat.whole(top)}
        ids = ColumnIds.from_json(self.ids, fields.values()) if self.ids else ColumnIds()
        return Judge(fields, {
            number: Role(role, schemas, fields[number]["type"]["fields"], ids)
            for role, number in ((KEY, KEY_ID), (VALUE, VALUE_ID))
        }, flat=flat.is_flat(top))  # fmt: skip


class Judge:
    """Judges rows of one table; of a flat one too they have the value's columns inside `value`."""

    def __init__(
        self, fields: Mapping[int, Mapping[str, Any]], roles: Mapping[int, Role], *, flat: bool
    ) -> None:
        self._flat = flat
        self._types = {each["name"]: each["type"] for each in fields.values()}
        self._keys, self._values = roles[KEY_ID], roles[VALUE_ID]

    def wrong(self, batch: pa.RecordBatch) -> list[list[Difference] | None]:
        """Of each row the columns that are not what its bytes say; None where all are."""
        partitions, offsets = (batch.column(name).to_pylist() for name in ("partition", "offset"))
        headers = _pairs(batch)
        known = zip(
            self._keys.known(partitions, offsets, batch.column(KEY), headers),
            self._values.known(partitions, offsets, batch.column(VALUE), headers),
            strict=True,
        )
        rest = [at for at, (key, value) in enumerate(known) if not (key and value)]
        found: list[list[Difference] | None] = [None] * batch.num_rows
        for at, wrong in zip(rest, self._one_by_one(batch.take(pa.array(rest, pa.int64()))), strict=True):
            found[at] = wrong
        return found

    def _one_by_one(self, batch: pa.RecordBatch) -> list[list[Difference] | None]:
        if not batch.num_rows:
            return []
        places = [batch.column(name).to_pylist() for name in ("partition", "offset")]
        messages = [plain(batch.column(name), self._types[name]) for name in MESSAGES]
        found = (self._row(*row) for row in zip(*places, *messages, _pairs(batch), strict=True))
        return [[(flat.told(path, self._flat), how) for path, how in each] or None for each in found]

    def _row(
        self,
        partition: int | None,
        offset: int | None,
        key: Mapping[int, Plain] | None,
        value: Mapping[int, Plain] | None,
        headers: list[Mapping[int, Plain]] | None,
        pairs: RowHeaders,
    ) -> list[Difference]:
        if _stands_for_a_batch(value, headers):
            dues = iter([Due({}, bad=True)])
            return self._message(VALUE, value, RAW[VALUE], dues) + (
                [] if key is None else [(KEY, "is not null in a row that stands for a batch")]
            )
        found = []
        for role, row, raw, judged in (
            (KEY, key, RAW[KEY], self._keys),
            (VALUE, value, RAW[VALUE], self._values),
        ):
            record = None if row is None else row[raw]
            dues = iter(()) if record is None else judged.due(partition, offset, record, pairs)
            found += self._message(role, row, raw, dues)
        return found

    def _message(
        self, name: str, row: Mapping[int, Plain] | None, raw: int, dues: Iterator[Due]
    ) -> list[Difference]:
        """A key or value against the first of what may be due that explains it, else the likeliest."""
        if row is None:
            return []  # whether the record has none either is seen by its hash
        if row[raw] is None:
            return self._left_over(name, row) or [
                (name, "has no bytes: it should be null, or __raw__ was not kept")
            ]
        likeliest: list[Difference] | None = None
        for due in dues:
            found = first(self._differences(name, row, raw, due))
            if not found:
                return []
            likeliest = likeliest or found
        return likeliest or []

    def _left_over(self, name: str, row: Mapping[int, Plain]) -> list[Difference]:
        """The columns at a flat table's top level that say something though `value` has no bytes."""
        if name != VALUE or not self._flat:
            return []
        others = (each for each in self._types[name]["fields"] if each["id"] not in _OWN)
        return [
            (f"{name}.{each['name']}", "is not null, but its row's value is, or has no bytes")
            for each in others
            if row[each["id"]] is not None
        ]

    def _differences(self, name: str, row: Mapping[int, Plain], raw: int, due: Due) -> Iterator[Difference]:
        for problem in due.problems:
            yield f"{name}.{problem.column}", problem.detail
        error = row.get(VALUE_ERROR) if name == VALUE else None
        if name == VALUE and (error is not None) != due.bad:
            wanted = "it should say why the bytes are no message" if due.bad else "the bytes are good"
            yield f"{name}.__err__", f"is {'not ' if error is not None else ''}null, but {wanted}"
        own = {number: row[number] for number in _OWN if number in row}
        yield from differences(self._types[name], {**due.columns, **own}, row, name)


def _pairs(batch: pa.RecordBatch) -> list[RowHeaders]:
    """Names and contents of each row's headers."""
    column = batch.column(HEADERS)
    if not len(column.flatten()):  # as nearly always
        return [()] * len(column)
    rows = ((each for each in row or () if each is not None) for row in column.to_pylist())
    return [[(name, content) for name, content in map(dict.values, row)] for row in rows]


def _stands_for_a_batch(value: Mapping[int, Plain] | None, headers: list[Mapping[int, Plain]] | None) -> bool:
    """Whether the row says that it stands for a batch nobody can open."""
    if value is None or value.get(VALUE_ERROR) is None or headers is None or len(headers) != 1:
        return False
    return headers[0] is not None and bool(headers[0][HEADER_KEY] == UNREADABLE_HEADER)


def judging(table: TableColumns, schemas: TopicSchemas) -> Callable[[Iterable[pa.RecordBatch]], Any]:
    """For mapInArrow: rows with partition, offset and MESSAGES → the others' columns, and `wrong` (WRONG)."""
    return partial(_judged, table, schemas)


def _judged(
    table: TableColumns, schemas: TopicSchemas, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    judge = table.judge(schemas)
    for batch in batches:
        wrong = [
            None if each is None else [dict(zip(("column", "detail"), one, strict=True)) for one in each]
            for each in judge.wrong(batch)
        ]
        kept = [name for name in batch.schema.names if name not in MESSAGES]
        columns = [batch.column(name) for name in kept]
        yield pa.RecordBatch.from_arrays([*columns, pa.array(wrong, WRONG)], [*kept, "wrong"])
