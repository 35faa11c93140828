"""/admin/topics/{name}/schema: binding a topic's keys or values to a message, or a subject of the registry.

Kafka's protocol has no request for this. A binding is one command of the log; what a producer sends
after the answer is checked against it by every agent that has applied it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, flag, number, parse_json, read_body, refused
from agent.http.asking import require_any, require_subject
from agent.http.barrier import barrier, submit
from agent.http.bindings import as_json, bound_ever, bound_now, registered_as_json, registered_of, spans_of
from agent.http.needs import READ_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.requests import qualified
from agent.http.registry.shown import identity_of
from agent.http.rules import (
    Ruled,
    of_subject,
    policy_wanted,
    require_own_usable,
    require_usable,
    source_of_subject,
)
from agent.rules.messages import Source
from coordination.commands import BindSchema, command
from coordination.state.bounds import SCHEMA_ID_MAX
from coordination.state.following import imported
from coordination.state.levels import FOLLOWED_SUBJECTS
from coordination.state.schemas import DESCRIPTOR_BYTES_MAX
from coordination.state.subject_types import RegisteredSchema
from coordination.state.subjects import NAME_LENGTH_MAX
from coordination.state.types import Refused, Topic
from coordination.topic_configs import effective
from iceberg.compatibility import LOOKED_AT_MAX, changes
from iceberg.head import enabled
from schema.compiler import CompileError, compile_protos
from schema.descriptors import DescriptorError, load
from schema.registry.known import imported_by

Role = Literal["value", "key"]
Framing = Literal["any", "plain", "confluent"]
Policy = Literal["off", "observe", "reject", "quarantine"]
SOURCES_MAX = 256


class Binding(BaseModel):
    """What a client asks for. Give `descriptor_set` (base64), `sources` or `subject`; or `unbind`.

    `subject_version` 0 follows every version of the subject; another number stays at that one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role = "value"
    message: str = Field(default="", max_length=512)
    framing: Framing = "any"
    tombstones: bool = False
    descriptor_set: str = ""
    sources: Mapping[str, str] = Field(default_factory=dict, max_length=SOURCES_MAX)
    subject: str = Field(default="", max_length=NAME_LENGTH_MAX)
    subject_version: int = Field(default=0, ge=0, le=SCHEMA_ID_MAX, strict=True)
    unbind: bool = False
    force: bool = False
    rules: Policy | None = None


class AdminRoutes:
    """Reads and changes bindings through the replicated state."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def read(self, request: Request) -> Response:
        """The topic's bindings as of now (a read barrier comes first), and those that it had before.

        `descriptors=true`: with their descriptor sets; `after`: of ids above it. `spans=true`: also which of
        them judged the records, by partition; `from_partition`: from its index on. `registered_after`: also
        schemas of the registry that records may name, of ids above it.
        """
        descriptors, spans = flag(request, "descriptors"), flag(request, "spans")
        after, first = number(request, "after", 0), number(request, "from_partition", 0)
        await barrier(self._parts)
        state, topic = self._parts.replica.state, topic_of(self._parts, request)
        answer: dict[str, object] = {"topic": topic.name}
        registered: list[tuple[RegisteredSchema, dict[str, bytes]]] | None = None
        if "registered_after" in request.query_params:
            registered, go_on = registered_of(state, topic, number(request, "registered_after"))
            if go_on is not None:
                answer["next_registered"] = go_on
        now = bound_now(state, topic)
        ever, go_on_after = bound_ever(state, topic, after, descriptors=descriptors)
        if go_on_after is not None:
            answer["next_after"] = go_on_after
        if spans:
            answer["spans"], go_on_from = spans_of(state, topic, first)
            if go_on_from is not None:
                answer["next_partition"] = go_on_from

        def told() -> Response:
            """Descriptor sets may have some MiB, so not on the event loop. A schema never changes."""
            answer["schemas"] = [as_json(each) for each in now]
            answer["history"] = [as_json(each, descriptors=descriptors) for each in ever]
            if registered is not None:
                answer["registered"] = [registered_as_json(*each) for each in registered]
            return JSONResponse(answer)

        return await asyncio.to_thread(told)

    async def registered(self, request: Request) -> Response:
        """A schema of the registry by its id or guid, as `registered` of a topic tells them: to decode by."""
        given = str(request.path_params["name"])
        await barrier(self._parts)
        table = self._parts.replica.state.subjects
        is_id = given.isascii() and given.isdigit() and len(given) <= len(str(SCHEMA_ID_MAX))
        found = table.named(int(given) if is_id else identity_of(given) or b"")
        if found is None:
            raise Problem(404, f"the registry has no schema {given[:NAME_LENGTH_MAX]}", "floe schema list")
        users = table.users.get(found.schema_id, ())
        require_any(self._parts, READ_SUBJECT, (name for name, _ in users))
        imports = imported(table, found)
        return await asyncio.to_thread(lambda: JSONResponse(registered_as_json(found, imports)))

    async def bind(self, request: Request) -> Response:
        """Bind, replace or remove one binding; answers with the topic's bindings after it."""
        body = await read_body(request, self._parts.config.http.body_bytes_max)
        wanted = _binding(body)
        if wanted.subject:
            require_subject(self._parts, READ_SUBJECT, qualified(wanted.subject, ""))
        await barrier(self._parts)
        topic = topic_of(self._parts, request)
        if wanted.subject and self._parts.replica.state.feature_level < FOLLOWED_SUBJECTS:
            why = f"subject: topics follow subjects from feature level {FOLLOWED_SUBJECTS} on"
            raise Problem(409, why, "finalize it: kafka-features upgrade --feature floe.level=2")
        descriptor_set, ruled = await self._looked_at(request, wanted)
        topic = topic_of(self._parts, request)
        has_rules = bool(ruled.messages)
        policy = policy_wanted(self._parts, topic, wanted.role, wanted.rules or "", ruled=has_rules)
        message = BindSchema(
            topic=topic.name,
            role=BindSchema.Role.Value(wanted.role.upper()),
            descriptor_set=descriptor_set,
            message=wanted.message,
            framing=BindSchema.Framing.Value(wanted.framing.upper()),
            tombstones=wanted.tombstones,
            unbind=wanted.unbind,
            subject=qualified(wanted.subject, ""),
            subject_version=wanted.subject_version,
        )
        result = await submit(self._parts, *policy, command(message))
        if isinstance(result, Refused):
            raise refused(result)
        topic, cluster = topic_of(self._parts, request), self._parts.replica.state.cluster_configs
        rules = effective(f"floe.{wanted.role}.rules", topic.configs, cluster)
        told = {"topic": topic.name, "schemas": self._bindings(topic), "has_rules": has_rules, "rules": rules}
        return JSONResponse(told)

    async def _looked_at(self, request: Request, wanted: Binding) -> tuple[bytes, Ruled]:
        """The descriptor set to bind, and what has rules. Raises Problem where it must be forced."""
        source: Source | None = None
        if wanted.unbind:
            files, ruled = b"", Ruled(b"", [])
        elif wanted.subject:
            about = (qualified(wanted.subject, ""), wanted.subject_version, wanted.message)
            files, ruled = b"", await of_subject(self._parts, *about)
            source = await source_of_subject(self._parts, *about)
        else:
            files, ruled = await _descriptor_set(wanted)
            source = files, wanted.message
            if not wanted.force:
                await self._refuse_changed_columns(topic_of(self._parts, request), wanted, files)
        if not wanted.force:
            topic = topic_of(self._parts, request)
            await require_own_usable(self._parts, topic, wanted.role, source, unbound=wanted.unbind)
        if ruled.messages and not wanted.force:
            await require_usable(self._parts, ruled)
        return files, ruled

    async def _refuse_changed_columns(self, topic: Topic, wanted: Binding, descriptor_set: bytes) -> None:
        """Raises Problem 409 where a name would stand for another column of the table from now on."""
        state, key = self._parts.replica.state, wanted.role == "key"
        if not enabled(topic, state.cluster_configs):
            return
        role = BindSchema.Role.Value(wanted.role.upper())
        ever = [state.schemas[schema_id] for schema_id in topic.schema_ids[-LOOKED_AT_MAX:]]
        own = [each for each in ever if each.role == role and not each.naming]
        earlier = [(each.descriptor_set, each.message) for each in own]
        if not earlier:
            return
        told = await asyncio.to_thread(changes, earlier, descriptor_set, wanted.message, key=key)
        if told:
            message = f"{wanted.message} would change what columns of topic {topic.name}'s table are: "
            remedy = "keep names and types of fields; or force it (force: true, floe topic bind --force)"
            raise Problem(409, message + "; ".join(told), remedy)

    def _bindings(self, topic: Topic) -> list[dict[str, object]]:
        return [as_json(each) for each in bound_now(self._parts.replica.state, topic)]


def topic_of(parts: Parts, request: Request) -> Topic:
    """The topic that the path names. Raises Problem 404."""
    name: str = request.path_params["name"]
    topic = parts.replica.state.topics.get(name)
    if topic is None:
        raise Problem(404, f"topic {name!r} does not exist", "create it first: floe topic create NAME")
    return topic


async def _descriptor_set(wanted: Binding) -> tuple[bytes, Ruled]:
    """The descriptor set given or compiled, checked off the event loop, and what of it has rules."""
    if wanted.descriptor_set:
        found = _decode(wanted.descriptor_set)
    else:
        sources = {name: text.encode() for name, text in wanted.sources.items()}
        try:
            found = await asyncio.to_thread(lambda: compile_protos(sources, imported_by(sources)))
        except CompileError as error:
            raise Problem(400, f"sources: {error}", "correct the .proto files") from None
        except OSError as error:  # the compiler works in a temporary folder
            remedy = "free space in this agent's TMPDIR, ask another agent, or send a descriptor set"
            raise Problem(503, f"sources: not compiled: {error}", remedy) from None
    if len(found) > DESCRIPTOR_BYTES_MAX:
        message = f"the descriptor set has {len(found)} bytes, at most {DESCRIPTOR_BYTES_MAX} are taken"
        raise Problem(413, message, "leave out files that the message does not need")
    try:
        kind = await asyncio.to_thread(load, found, wanted.message)
    except DescriptorError as error:
        raise Problem(400, str(error), "name a message of the descriptor set in full") from None
    return found, Ruled(found, [wanted.message] if kind.has_rules else [])


def _binding(body: bytes) -> Binding:
    try:
        wanted = Binding.model_validate(parse_json(body))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        allowed = ", ".join(Binding.model_fields)
        raise Problem(400, f"{place}: {first['msg']}", f"fields are {allowed}") from None
    _check(wanted)
    return wanted


def _check(wanted: Binding) -> None:
    """Raises Problem 400 for what does not go together."""
    given = [name for name in ("descriptor_set", "sources", "subject") if getattr(wanted, name)]
    if wanted.unbind and (wanted.message or given):
        raise Problem(
            400,
            "unbind: true goes with role alone",
            "leave message, descriptor_set, sources and subject out",
        )
    if wanted.unbind:
        return
    if wanted.subject_version and not wanted.subject:
        raise Problem(400, "subject_version: of which subject?", "give subject as well")
    if wanted.subject and (wanted.framing != "any" or wanted.tombstones):
        raise Problem(
            400,
            "framing and tombstones are of a message of the topic's own",
            "leave them out: records have a frame, or are null",
        )
    if not wanted.message and not wanted.subject:
        raise Problem(400, "message: the full name of the protobuf message is missing", "package.Message")
    if len(given) != 1:
        raise Problem(
            400,
            "give exactly one of descriptor_set (base64), sources and subject",
            "sources maps import paths to .proto texts; subject is one of the schema registry",
        )


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(400, "descriptor_set is not base64", "give a FileDescriptorSet in base64") from None
