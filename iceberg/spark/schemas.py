"""By which schema a row is to be decoded, as the cluster says, and what its columns then hold."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.spark.messages import Misplaced, Plain, Reader
from iceberg.spark.wire import Bad, frame
from schema.descriptors import DescriptorError, MessageType, load

KEY, VALUE = "key", "value"
TOP = {KEY: KEY_ID, VALUE: VALUE_ID}
NOTHING = 0
"""In the place of a schema id: nothing was bound."""

_SCHEMAS_KEPT = 256


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that was bound to a topic at some time. `role`: of its KEYs or its VALUEs."""

    schema_id: int
    role: str
    message: str
    descriptor_set: bytes


@dataclass(frozen=True, slots=True)
class TopicSchemas:
    """All schemas that a topic ever had, and by partition (first offset, key schema, value schema), in order.

    Of offsets before the first nothing is remembered: any of the schemas may have been theirs.
    """

    schemas: Sequence[Schema] = ()
    spans: Mapping[int, Sequence[tuple[int, int, int]]] = field(default_factory=dict)

    def bound(self, role: str, partition: int | None, offset: int | None) -> list[int]:
        """The schemas that may have been bound when the record was appended, the likeliest first."""
        spans = self.spans.get(-1 if partition is None else partition, ())
        if spans and offset is not None and offset >= spans[0][0]:
            return [_of(role, spans[bisect_right(spans, offset, key=_first) - 1])]
        likely = [_of(role, spans[0])] if spans else []
        every = [each.schema_id for each in self.schemas if each.role == role]
        return list(dict.fromkeys([*likely, NOTHING, *every]))


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
        self._readers = lru_cache(_SCHEMAS_KEPT)(self._reader)

    def due(self, partition: int | None, offset: int | None, record: bytes) -> Iterator[Due]:
        """What the record's columns hold, for each schema that it may have been decoded by."""
        for bound in self._topic.bound(self._role, partition, offset):
            yield self._due(bound, record)

    def _due(self, bound: int, record: bytes) -> Due:
        if bound == NOTHING:
            return Due({})
        try:
            schema_id, indexes, payload = frame(record) if record[:1] == b"\0" else (bound, None, record)
            kind, reader = self._readers(schema_id)
            if kind is None or reader is None:
                return Due({})
            if indexes is not None and indexes != kind.indexes:
                raise Bad(f"the frame has the message indexes {indexes}")
            if not reader.has_columns:
                return Due({})
            return Due(reader.read(payload), problems=reader.problems)
        except Bad:
            return Due({}, bad=True)

    def _reader(self, schema_id: int) -> tuple[MessageType | None, Reader | None]:
        found = self._schemas.get(schema_id)
        if found is None:
            raise Bad(f"schema {schema_id} was never bound to the topic's {self._role}s")
        try:
            kind = load(found.descriptor_set, found.message)
        except DescriptorError:
            return None, None
        return kind, Reader(kind, TOP[self._role], self._columns, self._ids)
