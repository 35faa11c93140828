"""POST /admin/subjects/{subject}/impact: what a schema would touch if it became the subject's next version.

Nothing is written. It is judged as a registration is; then the topics whose records it would concern are
looked for, the columns of their tables, and the groups that have positions there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import may, may_subject, require_subject
from agent.http.barrier import barrier
from agent.http.bindings import ROLES, bound_now
from agent.http.needs import DESCRIBE_GROUP_QUIETLY, DESCRIBE_QUIETLY, READ_SUBJECT, SHOW_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.judging import (
    Reader,
    Wanted,
    earlier_of,
    imports_of,
    law_of,
    normalizes,
    references_of,
    schema_given,
)
from agent.http.registry.requests import flag, object_of, qualified, subject_meant
from agent.http.registry.shown import answer
from agent.http.registry.writes import identity_of_wanted
from coordination.state import State
from coordination.state.following import ROLES as SUFFIXES
from coordination.state.subject_types import SubjectTable, context_of
from coordination.state.subjects import referring, registered
from coordination.state.types import Naming, Schema, Topic
from iceberg import flat, head, ledger, metadata
from objectstore.late import ready
from objectstore.turns import Turns, in_turns
from schema import judges
from schema.descriptors import DescriptorError, message_at
from schema.followed import PROTOBUF
from schema.registry import protobuf
from schema.registry.parsed import InvalidSchema

if TYPE_CHECKING:
    from iceberg.impact import Impact, Message

MESSAGES_MAX = 64  # of the file, at its top level: columns of those are told
TOPICS_TOLD_MAX = 200
GROUPS_TOLD_MAX = 200  # of a topic
LOOKED_AT_PER_TURN = 2_000  # topics or groups before others may go on
FOLLOWS, STAYS, NAMED, OWN, UNBOUND = "follows", "stays", "named", "own", "unbound"
"""How a topic goes with the subject: takes every version; stays at one; takes subjects that are called as
messages; is bound to a message of that name itself; is not bound, but the subject is called after it."""


class Touched(NamedTuple):
    """A topic that the schema concerns, for its keys or its values."""

    topic: Topic
    role: int
    how: str
    bound: Schema | None


class ImpactRoutes:
    """Reads and judges; writes nothing."""

    def __init__(self, parts: Parts, reader: Reader) -> None:
        self._parts = parts
        self._reader = reader

    @property
    def _state(self) -> State:
        return self._parts.replica.state

    async def impact(self, request: Request) -> Response:
        """What it would touch."""
        await ready("iceberg.impact")
        given = schema_given(await object_of(request, self._parts.config.http.body_bytes_max))
        await barrier(self._parts)
        table, subject = self._state.subjects, subject_meant(self._state.subjects, request)
        for one in given.references or ():
            require_subject(self._parts, READ_SUBJECT, qualified(one.subject, context_of(subject)))
        references = references_of(table, subject, given)
        wanted = await self._reader.read(
            given,
            references,
            imports_of(table, references),
            normalize=normalizes(table, subject, asked=flag(request, "normalize")),
        )
        await barrier(self._parts)
        shown = await self._judged(subject, wanted)
        messages = await asyncio.to_thread(_messages, wanted)
        touched = await in_turns(_touched(self._state, subject, messages))
        topics = [each for each in touched if may(self._parts, DESCRIBE_QUIETLY, each.topic.name)]
        newest = await self._newest(table, subject)
        told = [
            await self._topic(
                each,
                _taken(each, subject, messages),
                _taken(each, subject, newest) if each.how != OWN else [],
            )
            for each in topics[:TOPICS_TOLD_MAX]
        ]
        return answer({**shown, "topics": told, "topics_more": max(len(topics) - TOPICS_TOLD_MAX, 0)})

    async def _judged(self, subject: str, wanted: Wanted) -> dict[str, object]:
        """Whether it would be registered, as which version, and who refers to the newest one."""
        state, table = self._state, self._state.subjects
        held, law = table.subjects.get(subject), law_of(table, subject)
        live = held.live if held is not None else []
        known = registered(state, subject, identity_of_wanted(wanted))
        following = next(reversed(held.versions), 0) + 1 if held is not None else 1
        refers = referring(state, subject, live[-1].version) if live else []
        named = [sorted(table.users[one])[0] for one in refers]
        users = [each for each in named if may_subject(self._parts, SHOW_SUBJECT, each[0])]
        earlier = [] if known is not None else await earlier_of(table, live, law)
        problems = await self._reader.compared(wanted, earlier, law)
        return {
            "subject": subject,
            "type": wanted.schema_type,
            "level": law.level,
            "registered_as": known.version if known is not None else None,
            "version": known.version if known is not None else following,
            "compatible": not problems,
            "problems": problems,
            "referenced_by": [{"subject": name, "version": number} for name, number in users],
        }

    async def _newest(self, table: SubjectTable, subject: str) -> list[Message]:
        """The messages of the newest version; none where it has none."""
        held = table.subjects.get(subject)
        live = held.live if held is not None else []
        if not live:
            return []
        schema = table.schemas[live[-1].schema_id]
        imports = imports_of(table, schema.references)
        return await asyncio.to_thread(_named, schema.schema_type, schema.canonical, imports)

    async def _topic(
        self, each: Touched, messages: list[Message], newest: list[Message]
    ) -> dict[str, object]:
        topic, bound = each.topic, each.bound
        held = await in_turns(_groups(self._state, topic))
        groups = [each for each in held if may(self._parts, DESCRIBE_GROUP_QUIETLY, each)]
        shown: dict[str, object] = {
            "topic": topic.name,
            "role": ROLES[each.role],
            "how": each.how,
            "groups": groups[:GROUPS_TOLD_MAX],
            "groups_more": max(len(groups) - GROUPS_TOLD_MAX, 0),
            "table": None,
        }
        if bound is not None and bound.subject_version:
            shown["subject_version"] = bound.subject_version
        if each.how in (FOLLOWS, NAMED, OWN) and head.enabled(topic, self._state.cluster_configs):
            shown["table"] = await self._columns(each, messages, newest)
        return shown

    async def _columns(
        self, each: Touched, messages: list[Message], newest: list[Message]
    ) -> dict[str, object]:
        """The topic's table and what becomes of its columns; `unknown`: why that cannot be told."""
        namespace, name = head.place(self._state, each.topic)
        shown: dict[str, object] = {"name": f"{namespace}.{name}", "made": False}
        if not messages:
            return {**shown, "unknown": "it has no message that the topic takes"}
        catalog = self._parts.catalog
        found: dict[str, Any] | None = None
        if (namespace, name) in self._state.tables:
            if catalog is None:
                return {**shown, "made": True, "unknown": "this agent serves no catalog"}
            status, told = await catalog.handle("GET", f"/v1/namespaces/{namespace}/tables/{name}", {}, b"")
            if status != 200 or not isinstance(told, dict):
                return {**shown, "made": True, "unknown": f"the catalog answered {status}"}
            found, shown["made"] = _of_metadata(told["metadata"]), True
        key, types_max = ROLES[each.role] == "key", self._parts.config.tables.types_max
        from iceberg.impact import impact

        columns: Impact = await asyncio.to_thread(
            impact, found, messages, newest, key=key, types_max=types_max
        )
        return {**shown, "columns": columns.shown()}


def _of_metadata(told: dict[str, Any]) -> dict[str, Any]:
    return {
        "fields": metadata.current_fields(told),
        "ids": told["properties"].get(ledger.COLUMNS_PROPERTY, ""),
        "flat": flat.is_flat(told),
    }


def _messages(wanted: Wanted) -> list[Message]:
    return _named(wanted.schema_type, wanted.parsed.canonical, dict(wanted.imports))


def _named(schema_type: str, form: bytes, imports: dict[str, bytes]) -> list[Message]:
    """A file's messages of the top level, or what a schema of another type describes. Blocks."""
    from iceberg.avro_columns import UNNAMED
    from iceberg.impact import Message

    found = []
    try:
        if schema_type != PROTOBUF:
            name = judges.of(schema_type, form, imports).name
            given = tuple(sorted(imports.items()))
            return [Message(form, name or UNNAMED, True, schema_type=schema_type, imports=given)]
        files = protobuf.descriptor_set(form, imports)
        for place in range(MESSAGES_MAX):
            found.append(Message(files, message_at(files, (place,)), True, apart=place > 0, spare=place > 0))
    except (InvalidSchema, DescriptorError):  # there is none behind the last one
        pass
    return found


def _taken(each: Touched, subject: str, messages: list[Message]) -> list[Message]:
    """Those that the topic takes: what the binding names; where subjects are called as messages, what this
    one is called as. Of several each is apart, but for the first of its file.
    """
    bound = each.bound
    if bound is None:
        return messages
    if bound.message:
        return [one._replace(apart=False, spare=False) for one in messages if one.name == bound.message]
    if bound.naming == Naming.SUBJECT:
        return messages
    return [
        one._replace(apart=True, spare=False)
        for one in messages
        if subject == f"{_beginning(bound)}{one.name}"
    ]


def _beginning(bound: Schema) -> str:
    return f"{bound.topic}-" if bound.naming == Naming.TOPIC_RECORD else ""


def _touched(state: State, subject: str, messages: list[Message]) -> Turns[list[Touched]]:
    """Topics that the subject's next version concerns, by name."""
    found = []
    for number, (_, topic) in enumerate(sorted(state.topics.items())):
        if number % LOOKED_AT_PER_TURN == 0:
            yield
        found += list(_of_topic(state, topic, subject, messages))
    return found


def _of_topic(state: State, topic: Topic, subject: str, messages: list[Message]) -> Iterator[Touched]:
    bound = {one.role: one for one in bound_now(state, topic)}
    for role, suffix in SUFFIXES.items():
        one = bound.get(role)
        if one is None:
            if subject == f"{topic.name}-{suffix}":
                yield Touched(topic, role, UNBOUND, None)
        elif one.naming == Naming.SUBJECT:
            if one.subject == subject:
                yield Touched(topic, role, STAYS if one.subject_version else FOLLOWS, one)
        elif one.naming:
            if any(subject == f"{_beginning(one)}{each.name}" for each in messages):
                yield Touched(topic, role, NAMED, one)
        elif any(each.schema_type == PROTOBUF and each.name == one.message for each in messages):
            yield Touched(topic, role, OWN, one)


def _groups(state: State, topic: Topic) -> Turns[list[str]]:
    """Groups that have a position in one of the topic's partitions."""
    handles = [partition.handle for partition in topic.partitions]
    found = []
    for number, (name, group) in enumerate(sorted(state.groups.items())):
        if number % LOOKED_AT_PER_TURN == 0:
            yield
        if any(group.offsets.get(handle) is not None for handle in handles):
            found.append(name)
    return found
