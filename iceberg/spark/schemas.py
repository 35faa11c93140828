"""By which schema a row is to be decoded, as the cluster says, and what its columns then hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa

from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.spark.messages import Misplaced, Plain, Reader
from iceberg.spark.vectors import StructCells
from iceberg.spark.wire import GUID, GUID_END, Bad, RowHeaders, frame, with_header
from schema.descriptors import DescriptorError, MessageType, load, message_at

KEY, VALUE = "key", "value"
TOP = {KEY: KEY_ID, VALUE: VALUE_ID}
RAW = {KEY: 7, VALUE: 9}
"""The ids of `__raw__` in every table."""

NOTHING = 0
"""In the place of a schema id: nothing was bound."""

_SCHEMAS_KEPT = 256
_ONE_BY_ONE_MAX = 16
"""Rows that are looked at one by one, when one of them is wrong."""

_ANYTHING = object()


@dataclass(frozen=True, slots=True)
class Schema:
    """What was bound to a topic at some time. `role`: of its KEYs or its VALUEs.

    `follows`: a subject of the registry, whose schemas rows name.
    """

    schema_id: int
    role: str
    message: str
    descriptor_set: bytes
    follows: bool = False


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """All schemas that a topic ever had, and by partition (first offset, key schema, value schema), in order.

    Of offsets before the first nothing is remembered: any of the schemas may have been theirs. `registered`:
    by id descriptor sets of the registry's schemas of PROTOBUF, their own file last; empty: it cannot be
    made. Rows that name others, as those of other types, are not compared by columns. `guids`: their ids by
    what headers call them.
    """

    schemas: Sequence[Schema] = ()
    spans: Mapping[int, Sequence[tuple[int, int, int]]] = field(default_factory=dict)
    registered: Mapping[int, bytes] = field(default_factory=dict)
    guids: Mapping[bytes, int] = field(default_factory=dict)

    def bound(self, role: str, partition: int | None, offset: int | None) -> list[int]:
        """The schemas that may have been bound when the record was appended, the likeliest first."""
        spans = self.spans.get(-1 if partition is None else partition, ())
        if spans and offset is not None and offset >= spans[0][0]:
            return [_of(role, spans[bisect_right(spans, offset, key=_first) - 1])]
        likely = [_of(role, spans[0])] if spans else []
        every = [each.schema_id for each in self.schemas if each.role == role]
        return list(dict.fromkeys([*likely, NOTHING, *every]))


class _NotTold(Exception):
    """Nobody knows the schema of the registry that a row names."""


def _first(span: tuple[int, int, int]) -> int:
    return span[0]


def _of(role: str, span: tuple[int, int, int]) -> int:
    return span[1] if role == KEY else span[2]


@dataclass(frozen=True, slots=True)
class Due:
    """What a row's columns have to hold. `bad`: the strict parse fails, so none of them anything."""

    columns: Mapping[int, Plain]
    bad: bool = False
    problems: Sequence[Misplaced] = ()


class Role:
    """Keys or values of one topic, in its table's columns as of one snapshot."""

    def __init__(
        self, role: str, schemas: TopicSchemas, columns: Sequence[Mapping[str, Any]], ids: ColumnIds
    ) -> None:
        self._role = role
        self._schemas = {each.schema_id: each for each in schemas.schemas if each.role == role}
        self._topic = schemas
        self._columns, self._ids = columns, ids
        self._numbers = [each["id"] for each in columns]
        self._readers = lru_cache(_SCHEMAS_KEPT)(self._reader)
        self._messages = lru_cache(_SCHEMAS_KEPT)(self._message)

    def known(
        self,
        partitions: Sequence[int | None],
        offsets: Sequence[int | None],
        column: pa.StructArray,
        headers: Sequence[RowHeaders],
    ) -> list[bool]:
        """Of each row whether it is known to be what its bytes say; all of a schema at once.

        Where it is not, `due` tells what it should be.
        """
        found = [not there for there in column.is_valid().to_pylist()]
        groups: dict[Reader | None, tuple[list[int], list[Any]]] = {}
        records = column.field(self._numbers.index(RAW[self._role])).to_pylist()
        for at, record in enumerate(records):
            if found[at] or record is None:
                continue
            with suppress(Bad, _NotTold):
                likeliest = self._topic.bound(self._role, partitions[at], offsets[at])[0]
                reader, payload = self._which(likeliest, record, headers[at])
                rows, messages = groups.setdefault(reader, ([], []))
                messages.append(_ANYTHING if reader is None else reader.parse(payload))
                rows.append(at)
        for reader, (rows, messages) in groups.items():
            for at in self._proven(reader, rows, messages, column):
                found[at] = True
        return found

    def _proven(
        self, reader: Reader | None, rows: Sequence[int], messages: Sequence[Any], column: pa.StructArray
    ) -> Iterator[int]:
        """The rows that are right, by halves where not all are."""
        apart = (RAW[self._role],)
        part = column if len(rows) == len(column) else column.take(pa.array(rows, pa.int64()))
        if reader is None:
            same = StructCells(self._numbers, {}).same(messages, part, apart)
        else:
            same = reader.same(messages, part, apart)
        if same:
            yield from rows
        elif len(rows) > _ONE_BY_ONE_MAX:
            half = len(rows) // 2
            yield from self._proven(reader, rows[:half], messages[:half], column)
            yield from self._proven(reader, rows[half:], messages[half:], column)

    def due(
        self, partition: int | None, offset: int | None, record: bytes, headers: RowHeaders
    ) -> Iterator[Due]:
        """What the record's columns hold, for each schema that it may have been decoded by.

        Nothing where it may be one of the registry that nobody knows.
        """
        may_be = self._topic.bound(self._role, partition, offset)
        found = (self._due(bound, record, headers) for bound in may_be)
        if any(map(self._follows, may_be)):
            with suppress(_NotTold):
                yield from list(found)
        else:
            yield from found

    def _follows(self, bound: int) -> bool:
        schema = self._schemas.get(bound)
        return schema is not None and schema.follows

    def _due(self, bound: int, record: bytes, headers: RowHeaders) -> Due:
        try:
            reader, payload = self._which(bound, record, headers)
            return Due({}) if reader is None else Due(reader.read(payload), problems=reader.problems)
        except Bad:
            return Due({}, bad=True)

    def _which(self, bound: int, record: bytes, headers: RowHeaders) -> tuple[Reader | None, bytes]:
        """What reads the record, None where nothing does, and its message's bytes. Raises Bad."""
        if bound == NOTHING:
            return None, b""
        if self._follows(bound):
            return self._of_registry(self._by_id(with_header(self._role, record, headers)))
        schema_id, indexes, payload = frame(record) if record[:1] == b"\0" else (bound, None, record)
        kind, reader = self._readers(schema_id)
        if kind is None or reader is None:
            return None, b""
        if indexes is not None and indexes != kind.indexes:
            raise Bad(f"the frame has the message indexes {indexes}")
        return (reader, payload) if reader.has_columns else (None, b"")

    def _by_id(self, record: bytes) -> bytes:
        """The same with the id where it has a guid. Raises Bad and _NotTold."""
        if record[:1] != GUID:
            return record
        if len(record) < GUID_END:
            raise Bad("a guid is cut short")
        schema_id = self._topic.guids.get(record[1:GUID_END])
        if schema_id is None:
            raise _NotTold
        return b"\0" + schema_id.to_bytes(4, "big") + record[GUID_END:]

    def _of_registry(self, record: bytes) -> tuple[Reader | None, bytes]:
        """The same of a record that names a schema of the registry. Raises Bad and _NotTold."""
        if record[:1] != b"\0" or len(record) < 5:
            raise Bad("the record has no Confluent frame")
        files = self._topic.registered.get(int.from_bytes(record[1:5], "big", signed=True))
        if files is None:
            raise _NotTold
        if not files:
            return None, b""
        schema_id, indexes, payload = frame(record)
        reader = self._messages(schema_id, indexes)
        return (reader, payload) if reader.has_columns else (None, b"")

    def _message(self, schema_id: int, indexes: tuple[int, ...]) -> Reader:
        files = self._topic.registered[schema_id]
        try:
            kind = load(files, message_at(files, indexes))
        except DescriptorError as error:
            raise Bad(str(error)) from None
        return Reader(kind, TOP[self._role], self._columns, self._ids, several=kind.indexes != (0,))

    def _reader(self, schema_id: int) -> tuple[MessageType | None, Reader | None]:
        found = self._schemas.get(schema_id)
        if found is None:
            raise Bad(f"schema {schema_id} was never bound to the topic's {self._role}s")
        try:
            kind = load(found.descriptor_set, found.message)
        except DescriptorError:
            return None, None
        return kind, Reader(kind, TOP[self._role], self._columns, self._ids)
