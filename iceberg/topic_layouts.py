"""The layouts of one topic's table: by which schemas its records were judged, and which of them rows need.

Of a topic that follows a subject of the registry, rows say which schemas they need; so the first ones of each
have the commit planned anew. A schema that is forgotten by then leaves its rows raw, with the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from coordination.commands import BindSchema
from coordination.state import following
from coordination.state.following import imported
from coordination.state.schemas import spans_between
from coordination.state.subject_types import RegisteredSchema
from coordination.state.types import Naming, Schema, Span, Topic
from coordination.topic_configs import effective
from iceberg import avro_columns, flat, json_columns, ledger, metadata, partitioning, sorting
from iceberg import layout as layouts
from iceberg.head import Head, hoists
from iceberg.layout import Binding, Bindings, Framed, Layout, MissingSchemas, Registered
from iceberg.ledger import Range
from iceberg.partitioning import SpecError
from iceberg.pointer_commit import CommitError
from iceberg.sorting import OrderError
from schema import descriptors, framing
from schema.descriptors import DescriptorError
from schema.followed import AVRO, PROTOBUF
from schema.framing import SchemaName
from schema.registry import protobuf
from schema.registry.parsed import Imports, InvalidSchema
from schema.validator import BoundSchema

if TYPE_CHECKING:
    from coordination.replica import Replica

FRAMED_KEPT = 64
"""Schemas that frames named, for which layouts have decoders from one commit to the next."""

_Known = dict[tuple[int, Framed], tuple[RegisteredSchema | None, Registered]]
"""By role and what a frame names."""

_logger = logging.getLogger("floe.iceberg.topic_layouts")


class TopicLayouts:
    """Builds them when they are needed, and keeps the last. One committer uses it."""

    def __init__(self, replica: Replica, *, raw_bytes: bool, types_max: int) -> None:
        self._replica = replica
        self._raw_bytes, self._types_max = raw_bytes, types_max
        self._framed: frozenset[int] = frozenset()  # schemas that frames of this topic's records named
        self._registered: _Known = {}  # the same of the registry, each with the schema that it was
        self._topic_id = b""
        self._last: tuple[tuple[object, ...], Layout] | None = None

    def begin(self) -> None:
        """A commit is about to be planned: forget what frames named when it is much; rows say it again."""
        if len(self._framed) > FRAMED_KEPT:
            self._framed = frozenset()
        if len(self._registered) > FRAMED_KEPT:
            self._registered = {}

    async def want(self, missing: MissingSchemas) -> None:
        """Frames name these schemas: layouts have their columns from now on.

        Raises CommitError where files that schemas import could not be compiled.
        """
        self._framed |= missing.schema_ids
        table = self._replica.state.subjects
        for role, framed in missing.framed:
            schema = table.named(framed[0])
            imports = imported(table, schema) if schema is not None else {}
            try:
                found = await asyncio.to_thread(_registered, framed, schema, imports)
            except OSError as error:  # the compiler works in a temporary folder
                raise CommitError(
                    f"schema {framing.shown(framed[0])} could not be compiled: {error}"
                ) from error
            self._registered[role, found.framed] = (schema, found)

    def spans(self, topic: Topic, ranges: Iterable[Range]) -> list[list[Span]]:
        """Of each range by which schemas its records were judged. No range may begin below its log start."""
        state = self._replica.state
        return [spans_between(state, topic.partitions[part], start, end) for part, start, end in ranges]

    def build(self, topic: Topic, head: Head | None, spans: Iterable[Sequence[Span]] = ()) -> Layout:
        """The table's layout under the topic's bindings of this moment, for records of these spans."""
        if topic.topic_id != self._topic_id:
            self._topic_id, self._framed, self._last = topic.topic_id, frozenset(), None
            self._registered = {}
        self._forget_changed()
        bound = {topic.key_schema_id or 0, topic.value_schema_id or 0}
        cluster = self._replica.state.cluster_configs
        spec = effective("floe.table.partition", topic.configs, cluster)
        order = effective("floe.table.sort", topic.configs, cluster)
        hoists = self._is_flat(topic, head)
        used = bound.union(self._framed, *(each[1:] for one in spans for each in one)) - {0}
        key, value = (self._of_registry(topic, role) for role in (BindSchema.KEY, BindSchema.VALUE))
        basis = (
            key,
            value,
            topic.key_schema_id,
            topic.value_schema_id,
            len(topic.schema_ids),
            used,
            _versions(head),
            spec,
            order,
            hoists,
        )
        if self._last is None or self._last[0] != basis:
            known = self._replica.state.schemas
            built = layouts.build(
                bindings(topic, known, BindSchema.KEY, topic.key_schema_id, used, *key),
                bindings(topic, known, BindSchema.VALUE, topic.value_schema_id, used, *value),
                ids=head.metadata["properties"].get(ledger.COLUMNS_PROPERTY, "") if head is not None else "",
                previous=metadata.current_fields(head.metadata) if head is not None else (),
                raw_bytes=self._raw_bytes,
                flat=hoists,
                types_max=self._types_max,
            )
            built = _sorted(_partitioned(built, spec, head), order, head)
            for problem in built.problems:
                _logger.warning("topic %s: %s", topic.name, problem)
            self._last = (basis, built)
        return self._last[1]

    def _forget_changed(self) -> None:
        """Schemas that are gone, or others by now (an import may give an id again): rows say them again."""
        named = self._replica.state.subjects.named
        changed = [key for key, (was, _) in self._registered.items() if named(key[1][0]) is not was]
        for each in changed:
            del self._registered[each]

    def _of_registry(self, topic: Topic, role: int) -> tuple[tuple[Registered, ...], frozenset[Framed]]:
        """What rows named, and which of it gives columns their names: while a subject is followed that of its
        newest version (or of the one that the binding stays at).
        """
        named = [one for (own, _), (_, one) in self._registered.items() if own == role]
        bound = self._following(topic, role) if named else None
        if bound is None:
            return tuple(named), frozenset()
        state = self._replica.state
        newest = {each: following.newest(state, bound, each) for each in {one.message for one in named}}
        now = bound.schema_id in (topic.key_schema_id, topic.value_schema_id)
        found, names = [], set()
        for one in named:
            apart, last = _is_apart(bound, one), newest[one.message]
            found.append(replace(one, apart=apart, newer=self._newer(one, last)))
            if now and one.schema_id == last and (apart or _gives_names(bound, one)):
                names.add(one.framed)
        return tuple(found), frozenset(names)

    def _newer(self, one: Registered, newest: int) -> tuple[bytes, tuple[tuple[str, bytes], ...]] | None:
        """The newest version of its subject, of which a row of AVRO has the defaults."""
        if one.schema_type != AVRO or newest in (0, one.schema_id):
            return None
        table = self._replica.state.subjects
        schema = table.schemas[newest]
        if schema.schema_type != AVRO:
            return None
        return schema.canonical, tuple(sorted(imported(table, schema).items()))

    def _following(self, topic: Topic, role: int) -> Schema | None:
        """How the role's records name schemas, or did when they last did; None: they never have."""
        schemas = self._replica.state.schemas
        current = topic.key_schema_id if role == BindSchema.KEY else topic.value_schema_id
        for schema_id in (current, *reversed(topic.schema_ids)):
            one = schemas.get(schema_id or 0)
            if one is not None and one.role == role and one.naming:
                return one
        return None

    def refusal(self, topic: Topic, head: Head) -> str:
        """Why the table is not laid out as its config says (`floe.table.layout`); empty where it is."""
        wanted = hoists(topic, self._replica.state.cluster_configs)
        return flat.refusal(wanted, self._is_flat(topic, head))

    def _is_flat(self, topic: Topic, head: Head | None) -> bool:
        wanted = hoists(topic, self._replica.state.cluster_configs)
        if head is None or not flat.is_settled(head.metadata, metadata.current_fields(head.metadata)):
            return wanted
        return flat.is_flat(head.metadata)


def _versions(head: Head | None) -> tuple[int, ...]:
    """Of a table's columns, partition spec and sort order."""
    names = ("current-schema-id", "default-spec-id", "default-sort-order-id")
    return tuple(head.metadata[name] for name in names) if head is not None else ()


def _partitioned(built: Layout, wanted: str, head: Head | None) -> Layout:
    """The layout partitioned as the config says; as the table is, with the reason, where it cannot be."""
    try:
        return built.partitioned(partitioning.resolved(wanted, built.fields))
    except SpecError as error:
        now = partitioning.current(head.metadata) if head is not None else ()
        return built.partitioned(now, (f"{error}; rows go on into the table as it is partitioned",))


def _sorted(built: Layout, wanted: str, head: Head | None) -> Layout:
    """The layout sorted as the config says; as the table is, with the reason, where it cannot be."""
    try:
        return built.sorted_by(sorting.resolved(wanted, built.fields))
    except OrderError as error:
        now = sorting.current(head.metadata) if head is not None else ()
        return built.sorted_by(now, (f"{error}; rows go on into the table as it is sorted",))


def _is_apart(bound: Schema, one: Registered) -> bool:
    """Whether it is one of several types that the topic's records may have.

    They may where subjects are called as messages, and of a file of PROTOBUF whose first message is not all
    that is taken: the others are apart from that one.
    """
    if bound.message:
        return False
    return bound.naming != Naming.SUBJECT or one.framed[1] not in ((0,), None)


def _gives_names(bound: Schema, one: Registered) -> bool:
    if not one.message or bound.naming != Naming.SUBJECT:
        return False
    return one.message == bound.message if bound.message else one.framed[1] in ((0,), None)


def _registered(framed: Framed, schema: RegisteredSchema | None, imports: Imports) -> Registered:
    """What a frame names, ready for a layout. Blocks; raises OSError as protobuf.descriptor_set."""
    name, indexes = framed
    told = f"schema {framing.shown(name)}"
    if schema is None:
        return Registered((name, None), problem=f"{told} was deleted from the registry for good")
    by_guid = 0 if isinstance(name, int) else schema.schema_id
    if schema.schema_type != PROTOBUF:
        return replace(_of_other_type(name, schema, imports), by_guid=by_guid)
    if not indexes:
        problem = f"Confluent frame of {told} has no message indexes"
        return Registered(framed, problem=problem, by_guid=by_guid)
    try:
        files = protobuf.descriptor_set(schema.canonical, imports)
        return Registered(framed, files, descriptors.message_at(files, indexes), by_guid=by_guid)
    except (InvalidSchema, DescriptorError) as error:
        return Registered(framed, problem=f"{told}: {error}", by_guid=by_guid)


def _of_other_type(name: SchemaName, schema: RegisteredSchema, imports: Imports) -> Registered:
    try:
        if schema.schema_type == AVRO:
            message = avro_columns.name_of(schema.canonical, imports)
        else:
            message = json_columns.name_of(schema.canonical)
    except InvalidSchema as error:
        return Registered((name, None), problem=f"schema {framing.shown(name)}: {error}")
    return Registered(
        (name, None),
        message=message,
        schema_type=schema.schema_type,
        form=schema.canonical,
        imports=tuple(sorted(imports.items())),
    )


def bindings(
    topic: Topic,
    known: Mapping[int, BoundSchema],
    role: int,
    current: int | None,
    used: Iterable[int],
    registered: tuple[Registered, ...] = (),
    names: frozenset[Framed] = frozenset(),
) -> Bindings:
    """The schemas of a role that rows may have, of those that the topic ever had and of the registry."""
    own = [schema_id for schema_id in topic.schema_ids if known[schema_id].role == role]
    wanted = set(used)
    chosen = tuple(Binding.of(known[schema_id]) for schema_id in own if schema_id in wanted)
    return Bindings(chosen, current or 0, tuple(own), registered, names)
