"""Views of the REST catalog that Floe makes itself: `<table>_redacted` of each topic that has `floe.redact`.

Nothing of them is stored. A view follows from the table's columns, the topic's configs and all schemas that
its rows may have, as they are when it is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordination.commands import BindSchema
from coordination.state.following import imported
from coordination.state.redacting import policy_of
from coordination.state.subject_types import RegisteredSchema
from coordination.state.types import Naming, Schema, Topic
from iceberg import flat, ledger, redacted_view
from iceberg import metadata as table_metadata
from iceberg.column_ids import KEY_ID, VALUE_ID, ColumnIds
from iceberg.mapping import MappingError
from iceberg.redacted_columns import Columns, Telling, Told
from iceberg.rest_errors import bad_request, forbidden, unavailable
from iceberg.view_names import REDACTED, is_view
from schema import descriptors
from schema.descriptors import DescriptorError
from schema.followed import AVRO, JSON
from schema.redaction.marks import Action, Marks
from schema.redaction.metadata_tags import BadTags
from schema.registry import protobuf
from schema.registry.parsed import InvalidSchema

if TYPE_CHECKING:
    from coordination.replica import Replica
    from iceberg.rest_pointers import Key, Pointers

SCHEMAS_MAX = 1_000
"""Schemas of one topic that are looked at; where it had more, the view shows no column of theirs."""

_TOPS = {int(BindSchema.KEY): KEY_ID, int(BindSchema.VALUE): VALUE_ID}


@dataclass(frozen=True, slots=True)
class _Explaining:
    """A schema that rows may have, with the column that its columns are in."""

    top: int
    own: Schema | None = None
    registered: RegisteredSchema | None = None
    imports: Mapping[str, bytes] | None = None


class RedactedViews:
    """Finds and makes them."""

    def __init__(self, replica: Replica, pointers: Pointers) -> None:
        self._replica, self._pointers = replica, pointers

    def names(self, namespace: str) -> list[str]:
        """Of the namespace's views of this kind."""
        tables = (name for found, name in self._replica.state.tables if found == namespace)
        return [f"{name}{REDACTED}" for name in tables if self._behind((namespace, f"{name}{REDACTED}"))]

    def is_one(self, key: Key) -> bool:
        """Whether there is such a view of this name."""
        return self._behind(key) is not None

    def require_none(self, key: Key) -> None:
        """Raises 403 where a view is one of these, which nobody changes."""
        topic = self._behind(key)
        if topic is not None:
            raise forbidden(
                f"view {'.'.join(key)} follows from topic {topic.name!r}: set its floe.redact, or its schemas"
            )

    async def load(self, key: Key) -> dict[str, Any] | None:
        """The view's metadata; None where there is none. Raises 503 where schemas cannot be had now."""
        topic = self._behind(key)
        policy = policy_of(self._replica.state, topic) if topic is not None else None
        if topic is None or policy is None:
            return None
        base = (key[0], key[1].removesuffix(REDACTED))
        location = self._replica.state.tables[base].metadata_location
        marks = Marks(Action(policy.action), policy.tags)
        raw_key = all(self._replica.state.schemas[each].role != BindSchema.KEY for each in topic.schema_ids)
        table = await self._pointers.read(location)
        ids = _ids_of(table)
        explaining = self._explaining(topic, ids)
        try:
            return await asyncio.to_thread(_made, table, base, ids, explaining, marks, raw_key=raw_key)
        except OSError as error:  # the compiler works in a temporary folder
            raise unavailable(f"view {'.'.join(key)}: schemas could not be compiled: {error}") from error

    def _behind(self, key: Key) -> Topic | None:
        """The topic on whose table a name is the view."""
        state, (namespace, name) = self._replica.state, key
        base = (namespace, name.removesuffix(REDACTED))
        table = state.tables.get(base) if base != key and key not in state.tables else None
        if table is None or is_view(table.metadata_location) or not table.topic_id:
            return None
        topic = state.topics_by_id.get(table.topic_id)
        if topic is None or state.tables_by_topic.get(table.topic_id) != base:
            return None
        return topic if policy_of(state, topic) is not None else None

    def _explaining(self, topic: Topic, ids: ColumnIds) -> Sequence[_Explaining]:
        """All schemas that rows may have: those that the topic was bound to, and versions of subjects that it
        followed, hidden ones too. Of one that is gone for good nothing is known.
        """
        state = self._replica.state
        found: list[_Explaining] = []
        seen: set[tuple[int, int]] = set()
        for bound in (state.schemas[each] for each in topic.schema_ids):
            top = _TOPS[bound.role]
            if not bound.naming:
                found.append(_Explaining(top, own=bound))
                continue
            for schema_id in self._followed(bound, ids):
                schema = state.subjects.schemas.get(schema_id)
                if schema is not None and (top, schema_id) not in seen:
                    seen.add((top, schema_id))
                    found.append(
                        _Explaining(top, registered=schema, imports=imported(state.subjects, schema))
                    )
        return found

    def _followed(self, bound: Schema, ids: ColumnIds) -> Iterator[int]:
        subjects = self._replica.state.subjects.subjects
        names = [bound.subject]
        if bound.naming != Naming.SUBJECT:
            before = f"{bound.topic}-" if bound.naming == Naming.TOPIC_RECORD else ""
            names = [f"{before}{message}" for message in _messages(ids)]
        for name in names:
            subject = subjects.get(name)
            yield from (each.schema_id for each in subject.versions.values()) if subject is not None else ()


def _ids_of(table: Mapping[str, Any]) -> ColumnIds:
    text = table["properties"].get(ledger.COLUMNS_PROPERTY, "")
    try:
        return (
            ColumnIds.from_json(text, flat.nested(table_metadata.current_fields(table)))
            if text
            else ColumnIds()
        )
    except (ValueError, KeyError) as error:
        raise bad_request(f"property {ledger.COLUMNS_PROPERTY} of {table['location']}: {error}") from error


def _messages(ids: ColumnIds) -> list[str]:
    """Full names of messages that have columns."""
    names = (name for columns in ids.known.values() for held in columns.values() for name in held)
    return [*dict.fromkeys(names)]


def _made(
    table: Mapping[str, Any], key: Key, ids: ColumnIds, explaining: Sequence[_Explaining], marks: Marks, *,
    raw_key: bool,
) -> dict[str, Any]:  # fmt: skip
    """CPU work, and compilation. Raises OSError."""
    fields = table_metadata.current_fields(table)
    inside = {
        each["id"]: each["type"]["fields"] for each in flat.nested(fields) if each["id"] in _TOPS.values()
    }
    telling = Telling(ids, marks)
    told: Told = {}
    if len(explaining) <= SCHEMAS_MAX:
        try:
            for each in explaining:
                _tell(telling, each, inside[each.top], _messages(ids))
            told = telling.told()
        except (InvalidSchema, DescriptorError, MappingError, BadTags):
            told = {}  # it may mark any column
    return redacted_view.metadata(table, key, fields, told, raw_key=raw_key)


def _tell(telling: Telling, one: _Explaining, columns: Columns, known: Sequence[str]) -> None:
    """Raises InvalidSchema, DescriptorError, MappingError, BadTags and OSError."""
    schema, imports = one.registered, one.imports or {}
    if one.own is not None:
        kind = descriptors.load(one.own.descriptor_set, one.own.message)
        telling.message(kind.descriptor, "", one.top, columns)
    elif schema is not None and schema.schema_type == AVRO:
        telling.avro(schema.canonical, imports, schema.metadata, one.top, columns)
    elif schema is not None and schema.schema_type == JSON:
        telling.json(schema.canonical, imports, schema.metadata, one.top, columns)
    elif schema is not None:
        files = protobuf.descriptor_set(schema.canonical, imports)
        defined = {*descriptors.message_names(files)}
        for name in (each for each in known if each in defined):
            kind = descriptors.load(files, name)
            telling.message(kind.descriptor, schema.metadata, one.top, columns)
