"""The decoded columns of the tables of topics that are bound and unbound (bindings.py, follower.py), against
the truth: what the writer put into a record and the schema that was bound at its offset, or that its frame
names. Where a message's fields are in the table, the table's schema and `floe.columns` say: columns are
compared by their ids, as every reader of Iceberg finds them; in a flat table they stand at the top level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow.parquet as pq

from iceberg import arrow_types, evolution, flat, ledger, mapping, metadata
from iceberg.column_ids import VALUE_ID, ColumnIds
from schema import descriptors
from tests.checker.findings import Finding
from tests.sim.bindings import Shown
from tests.sim.bound_messages import Message, Written

_TOP = ("kafka", "key", "value", "headers")
_READ = ("kafka.offset", "key.__raw__", "value")


@dataclass(frozen=True, slots=True)
class Row:
    """One of the table. `columns` by id, those that are null left out; `wrong`: `__err__` says something."""

    offset: int
    number: int
    """Of the record, among all that were written."""
    columns: Mapping[int, Any]
    wrong: bool


class Truth(Protocol):
    """What is known of a topic and of all that was written to it (bindings.py, subjects.py)."""

    topic: str
    counts: Counter[str]
    """What rows showed, for the coverage."""

    @property
    def written(self) -> Sequence[Written]:
        """Each record; its key is its place here."""
        ...

    def shown_at(self, offset: int, record: Written) -> Iterator[Shown]:
        """What the table may show of a record that stands there."""
        ...


def judged(head: Mapping[str, Any], files: Sequence[pq.ParquetFile], truth: Truth) -> Iterator[Finding]:
    """Rows that say something else than the truth. `head`: the table's metadata; all of its files."""
    places = Places(head)
    for file in files:
        for row in rows(file):
            yield from _judged(row, truth, places)


def _judged(row: Row, truth: Truth, places: Places) -> Iterator[Finding]:
    record, found = truth.written[row.number], (row.columns, row.wrong)
    told = []
    for shown in truth.shown_at(row.offset, record):
        expected = places.of(shown), shown.wrong
        if expected == found:
            truth.counts[f"row {shown.kind}"] += 1
            return
        told.append(f"{shown}, that is {expected}")
    detail = f"the row at {row.offset} of {record}: {found}, not {' or '.join(told)}"
    yield Finding("columns-wrong", truth.topic, detail, ())


def rows(file: pq.ParquetFile) -> Iterator[Row]:
    """The file's, in its order."""
    top = [each for each in file.schema_arrow.names if each not in _TOP]
    table = file.read(columns=[*_READ, *top], use_threads=False)
    known = [*table.schema.field("value").type, *(table.schema.field(name) for name in top)]
    ids = {each.name: int(each.metadata[arrow_types.FIELD_ID]) for each in known}
    for each in table.to_pylist():
        value = {**(each["value"] or {}), **{name: each[name] for name in top}}
        columns = {ids[name]: one for name, one in value.items() if one is not None}
        columns.pop(evolution.VALUE_RAW_ID, None)
        wrong = columns.pop(evolution.VALUE_ERROR_ID, None) is not None
        yield Row(each["kafka"]["offset"], int(each["key"]["__raw__"]), columns, wrong)


class Places:
    """Where in a table the fields of messages are."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        fields = flat.nested(metadata.current_fields(head))
        self._ids = ColumnIds.from_json(head["properties"][ledger.COLUMNS_PROPERTY], fields)
        inside = next(each for each in fields if each["id"] == VALUE_ID)["type"]["fields"]
        self._columns = {each["id"] for each in inside}
        self._known: dict[Message, Mapping[int, int]] = {}

    def of(self, shown: Shown) -> dict[int, Any] | None:
        """The fields by column id; None: the table has no columns for them."""
        if shown.message is None:
            return {}
        if shown.message not in self._known:
            self._known[shown.message] = dict(self._found(shown.message))
        places = self._known[shown.message]
        if not places.keys() >= shown.fields.keys():
            return None
        return {places[number]: value for number, value in shown.fields.items()}

    def _found(self, message: Message) -> Iterator[tuple[int, int]]:
        """Field numbers with their columns."""
        kind = descriptors.load(message.descriptor_set, message.name)
        fields = mapping.shape(kind.descriptor).fields
        for each, column in zip(fields, self._ids.find(VALUE_ID, fields, message.name), strict=True):
            if column is not None and column in self._columns:
                yield each.number, column
