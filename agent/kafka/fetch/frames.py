"""Records of messages with or without Confluent's frame, as their reader wants them (`floe.frames`).

Which frame a bare message gets: that of the newest version of its subject whose message is the one that the
topic was bound to when the record came (schema/enveloping.py). What cannot be framed stays as it was written,
and a header says why. What nobody judged stays as it is, unless the topic itself says that it is read bare.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from agent.kafka.fetch.redacted import header_frame
from coordination.state.following import NAMINGS, ROLES, SUBJECT_NAMING, imported
from coordination.state.subject_types import RegisteredSchema
from coordination.state.types import Naming, Schema, Span, Topic
from coordination.topic_configs import effective
from iceberg import audited
from objectstore.batch import Buffer
from objectstore.revalued import Changed
from schema import descriptors, framing
from schema.descriptors import DescriptorError
from schema.enveloping import Form, frame_of
from schema.followed import PROTOBUF
from schema.registry import protobuf
from schema.registry.parsed import Imports, InvalidSchema

if TYPE_CHECKING:
    from agent.config.sections import ListenerConfig
    from agent.telemetry.metrics import Metrics
    from coordination.replica import Replica
    from coordination.state.state import State

UNFRAMED_HEADER = "floe.unframed"
"""Key of the header of a record that its reader wants framed and that cannot be; its value says why."""

VERSIONS_MAX = 64
"""Newest versions of a subject among which the bound message is looked for."""

KNOWN_MAX = 4_096
"""Frames that are kept ready; beyond, all are forgotten, and looked up again."""

CONFIG = "floe.frames"

AS_WRITTEN_CLIENTS = frozenset({audited.CLIENT_ID, "floe-cli"})
"""Ids of Floe's own clients, which know frames themselves, or compare what is stored."""

_Target = bytes | str
"""The frame of a bound schema's messages, or why there is none."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Where a bound message's frame is looked for: the subject's versions, the newest first."""

    bound: Schema
    subject: str
    versions: tuple[tuple[RegisteredSchema, Imports], ...]

    def target(self) -> _Target:
        """The frame, or why there is none. Blocks: call it in a thread. Raises OSError."""
        name = self.bound.message
        try:
            kind = descriptors.load(self.bound.descriptor_set, name)
        except DescriptorError as error:
            return f"the bound schema cannot be used: {error}"
        for schema, imports in self.versions:
            try:
                files = protobuf.descriptor_set(schema.canonical, imports)
            except InvalidSchema:
                continue
            found = frame_of(kind, schema.schema_id, files)
            if found is not None:
                return found
        return (
            f"no version of subject {self.subject} has the message {name} that was bound: "
            f"register its file there (floe schema register {self.subject} FILE.proto)"
        )


def candidates(state: State, topic: Topic, bound: Schema) -> Candidates:
    """The versions that may have a bound message, of the subject by the topic's strategy."""
    subject = subject_of(topic, bound)
    table = state.subjects
    found = table.subjects.get(subject)
    live = found.live[: -VERSIONS_MAX - 1 : -1] if found is not None else []
    schemas = [table.schemas[each.schema_id] for each in live]
    return Candidates(
        bound,
        subject,
        tuple((each, imported(table, each)) for each in schemas if each.schema_type == PROTOBUF),
    )


def subject_of(topic: Topic, bound: Schema) -> str:
    """Where Confluent's clients look for the schema of a topic's keys or values."""
    role = ROLES[bound.role]
    naming = NAMINGS[effective(SUBJECT_NAMING[role], topic.configs, {}).rpartition(".")[2]]
    names = {Naming.RECORD: bound.message, Naming.TOPIC_RECORD: f"{topic.name}-{bound.message}"}
    return names.get(naming, f"{topic.name}-{role}")


class Frames:
    """Says how records are read. One of an agent."""

    def __init__(self, replica: Replica, listeners: Sequence[ListenerConfig], metrics: Metrics) -> None:
        self._replica = replica
        self._listeners = {each.name: Form(each.frames) for each in listeners if each.frames != "topic"}
        self._metrics = metrics
        self._known: dict[tuple[int, str], tuple[int, _Target]] = {}  # by id and subject, with its revision

    def wanted(self, listener: str, client_id: str | None, topic: Topic) -> Form | None:
        """How a client of the listener reads the topic; None: as it is written."""
        if client_id in AS_WRITTEN_CLIENTS:
            return None
        found = self._listeners.get(listener) or self._of(topic)
        return None if found == Form.AS_WRITTEN else Form(found)

    def _of(self, topic: Topic) -> str:
        return effective(CONFIG, topic.configs, self._replica.state.cluster_configs)

    def judge(self, wanted: Form, topic: Topic, spans: Sequence[Span]) -> Bare | Enveloped | None:
        """What says how records are read; None: as they are written."""
        unbound = wanted is Form.BARE and self._of(topic) == Form.BARE
        bound = {each for span in spans for each in span[1:]} - {0}
        if not bound and not unbound:
            return None
        if wanted is Form.BARE:
            return Bare(spans, self._replica.state, unbound, self._count)
        return Enveloped(spans, self._replica.state, partial(self._targets, topic), self._count)

    async def _targets(self, topic: Topic, missing: set[int]) -> Mapping[int, _Target]:
        """The frames of these schemas, which were bound. Raises OSError."""
        state = self._replica.state
        told: dict[int, _Target] = {}
        asked: dict[tuple[int, str], tuple[int, Candidates]] = {}
        for schema_id in missing:
            bound = state.schemas.get(schema_id)
            if bound is None or bound.topic != topic.name or bound.naming:
                told[schema_id] = f"schema {schema_id} is none that the topic was bound to"
                continue
            place = schema_id, subject_of(topic, bound)
            subject = state.subjects.subjects.get(place[1])
            revision = subject.revision if subject is not None else 0
            known = self._known.get(place)
            if known is not None and known[0] == revision:
                told[schema_id] = known[1]
            else:
                asked[place] = revision, candidates(state, topic, bound)
        if asked:
            made = await asyncio.to_thread(
                lambda: {place: (revision, each.target()) for place, (revision, each) in asked.items()}
            )
            if len(self._known) > KNOWN_MAX:
                self._known.clear()
            self._known |= made
            told |= {place[0]: target for place, (_, target) in made.items()}
        return told

    def _count(self, changed: int, unframed: int) -> None:
        self._metrics.fetch_reframed.inc(changed)
        self._metrics.fetch_unframed.inc(unframed)


class _Judge:
    """What both directions share."""

    hides: ClassVar[bool] = False

    def __init__(self, spans: Sequence[Span], state: State, count: Callable[[int, int], None]) -> None:
        self.missing: set[int] = set()
        self.changed = self.unframed = 0
        self._spans = spans
        self._starts = [each.first_offset for each in spans]
        self._schemas = state.schemas
        self._registry = state.subjects
        self._count = count

    @property
    def slow(self) -> bool:
        """Frames are never too much for the event loop."""
        return False

    def again(self) -> None:
        """A batch is gone through, maybe once more."""
        self.missing = set()
        self.changed = self.unframed = 0

    async def learn(self) -> None:
        """Nothing is looked up."""

    def count(self) -> None:
        """The batch is done."""
        self._count(self.changed, self.unframed)

    def count_hidden(self, records: int) -> None:
        """Nothing is hidden."""

    def _span(self, offset: int) -> Span:
        return self._spans[max(0, bisect_right(self._starts, offset) - 1)]


class Bare(_Judge):
    """Takes frames away. `unbound`: also of values that nobody judged, if they name a registered schema."""

    def __init__(
        self, spans: Sequence[Span], state: State, unbound: bool, count: Callable[[int, int], None]
    ) -> None:
        super().__init__(spans, state, count)
        self._unbound = unbound

    def __call__(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Buffer
    ) -> Changed | None:
        """The record without frames; None: as it is."""
        span = self._span(offset)
        bare_key = self._bare("key", span.key_schema_id, key, headers, unbound=False)  # it may be a number
        bare_value = self._bare("value", span.value_schema_id, value, headers, unbound=self._unbound)
        if bare_key is key and bare_value is value:
            return None
        self.changed += 1
        return Changed(bare_key, bare_value)

    def _bare(
        self, role: str, bound: int, data: bytes | None, headers: Buffer, *, unbound: bool
    ) -> bytes | None:
        if data is None or data[:1] != b"\x00" or not (bound or unbound):
            return data
        schema = self._schemas.get(bound)
        try:
            if schema is not None and not schema.naming:
                return data[framing.parse(data).start :]
            if headers and header_frame(role, headers):  # the record is what stands behind its frame
                return data
            registered = self._registry.schemas.get(framing.schema_id(data))
            if registered is None:
                return data
            return data[framing.parse(data).start if registered.schema_type == PROTOBUF else framing.ID_END :]
        except framing.FramingError:
            return data


@dataclass(slots=True)
class _Read:
    """A key or a value as it is read."""

    data: bytes | None
    why: str = ""
    dropped: list[str] = field(default_factory=list)


class Enveloped(_Judge):
    """Puts frames on. `ask` gives the frames of messages that topics were bound to."""

    def __init__(
        self,
        spans: Sequence[Span],
        state: State,
        ask: Callable[[set[int]], Awaitable[Mapping[int, _Target]]],
        count: Callable[[int, int], None],
    ) -> None:
        super().__init__(spans, state, count)
        self._ask = ask
        self._targets: dict[int, _Target] = {}

    async def learn(self) -> None:
        """Look up what is missing. Raises OSError."""
        self._targets |= await self._ask(self.missing)

    def __call__(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Buffer
    ) -> Changed | None:
        """The record with frames; None: as it is."""
        span = self._span(offset)
        read_key = self._framed("key", span.key_schema_id, key, headers)
        read_value = self._framed("value", span.value_schema_id, value, headers)
        why = read_value.why or read_key.why
        if read_key.data is key and read_value.data is value and not why:
            return None
        self.changed += not why
        self.unframed += bool(why)
        added = ((UNFRAMED_HEADER, why.encode()),) if why else ()
        return Changed(
            read_key.data, read_value.data, added, frozenset((*read_key.dropped, *read_value.dropped))
        )

    def _framed(self, role: str, bound: int, data: bytes | None, headers: Buffer) -> _Read:
        schema = self._schemas.get(bound)
        if data is None or schema is None:
            return _Read(data)
        try:
            if schema.naming:
                return self._of_header(role, data, headers)
            own, start = bound, 0
            if data[:1] == b"\x00":
                frame = framing.parse(data)
                own, start = frame.schema_id, frame.start
        except framing.FramingError as error:
            return _Read(data, str(error))
        target = self._targets.get(own)
        if target is None:
            self.missing.add(own)
            return _Read(data)
        return _Read(data, target) if isinstance(target, str) else _Read(target + data[start:])

    def _of_header(self, role: str, data: bytes, headers: Buffer) -> _Read:
        """What follows a subject has a frame, before the message or in a header. Raises FramingError."""
        front = header_frame(role, headers) if headers else b""
        if not front:
            return _Read(data)
        name, end = framing.schema_named(front)
        registered = self._registry.named(name)
        if registered is None:
            return _Read(data, f"schema {framing.shown(name)} was deleted from the registry")
        frame = framing.prefix(registered.schema_id, (0,))[: framing.ID_END] + front[end:]
        return _Read(frame + data, dropped=[framing.ID_HEADERS[role]])
