"""What clients without clearance get of topics that have `floe.redact`: batches without marked fields.

Offsets, times and producers stay, so a consumer counts on as ever. What a record's schema marks is replaced
as schema/redaction says; a value that no schema explains is withheld whole: it is empty, and a header says
why. So nothing is shown for want of knowledge. Batches of other topics are not opened, and none are that
cleared clients read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from agent.config.redaction import RedactionConfig, names
from agent.net.listening import ANONYMOUS
from coordination.state.following import imported
from coordination.state.redacting import policy_of
from coordination.state.types import Schema, Span, Topic
from objectstore.batch import Buffer
from objectstore.revalued import Changed, headers_of
from schema import descriptors, framing
from schema.descriptors import DescriptorError
from schema.followed import AVRO, JSON, PROTOBUF, Framed
from schema.redaction import avro as avro_redaction
from schema.redaction import json as json_redaction
from schema.redaction import messages
from schema.redaction.marks import Action, Marks, Redactor, Unreadable
from schema.redaction.metadata_tags import BadTags, with_metadata
from schema.registry import protobuf
from schema.registry.avro.filler import Endless
from schema.registry.parsed import InvalidSchema

if TYPE_CHECKING:
    from agent.telemetry.metrics import Metrics
    from coordination.replica import Replica
    from coordination.state.subject_types import RegisteredSchema

WITHHELD_HEADER = "floe.withheld"
"""Key of the header of a record whose value is withheld; the header's value says why."""

KNOWN_MAX = 1_024
"""Schemas that are kept ready; beyond, all are forgotten, and looked up again."""

LOOKED_UP_MAX = 256
"""Schemas that are looked up at once."""

_FRAMES = (b"\x00", b"\x01")
_MARK = b"_schema_id"  # in the names of both headers that may have a frame

_Place = tuple[int, Framed | None]
"""The schema that was bound, and what the record's frame names; no indexes: any."""

_Verdict = Redactor | str | None
"""What makes records of a place fit to be read; why they are withheld; None: they are as they are."""


@dataclass(slots=True)
class _Known:
    """What there is to know of one topic's config; `of`: the registry's schema that a verdict is about."""

    marks: Marks
    verdicts: dict[_Place, _Verdict] = field(default_factory=dict)
    of: dict[_Place, RegisteredSchema | None] = field(default_factory=dict)
    slow: bool = False
    """Whether records of some place take too long for the event loop."""


async def _nothing(_: set[_Place]) -> None:
    """There is nobody to ask."""


class Redaction:
    """Says what is not for everybody. One of an agent."""

    def __init__(self, replica: Replica, config: RedactionConfig, metrics: Metrics) -> None:
        self._replica = replica
        self._listeners = frozenset(names(config.cleared_listeners))
        self._principals = frozenset(names(config.cleared_principals, ";")) - {ANONYMOUS}
        ids = names(config.cleared_client_ids)
        self._ids = frozenset(each for each in ids if not each.endswith("*"))
        self._prefixes = tuple(each[:-1] for each in ids if each.endswith("*"))
        self._key = config.hash_key.get_secret_value().encode()
        self._metrics = metrics
        self._known: dict[Marks, _Known] = {}

    def cleared(self, listener: str, client_id: str | None, principal: str = ANONYMOUS) -> bool:
        """Whether a client reads all fields."""
        if listener in self._listeners or principal in self._principals:
            return True
        name = client_id or ""
        return name in self._ids or name.startswith(self._prefixes)

    def judge(self, marks: Marks, spans: Sequence[Span]) -> Judge:
        """What says how records of a topic with these marks are read by clients without clearance."""
        known = self._known_of(marks)
        return Judge(
            spans,
            known.verdicts,
            self._following(spans),
            partial(self._look_up, known),
            self._count,
            lambda: known.slow,
        )

    def _following(self, spans: Sequence[Span]) -> frozenset[int]:
        """Those of the schemas of spans that follow a subject: header ids are looked at there."""
        schemas = self._replica.state.schemas
        bound = {each for span in spans for each in span[1:]} - {0}
        return frozenset(each for each in bound if each in schemas and schemas[each].naming)

    def _count(self, changed: int, withheld: int) -> None:
        self._metrics.fetch_redacted.inc(changed)
        self._metrics.fetch_withheld.inc(withheld)

    def marks(self, topic: Topic) -> Marks | None:
        """How the topic redacts; a quarantine does as its topic, unless it says so itself."""
        found = policy_of(self._replica.state, topic)
        return None if found is None else Marks(Action(found.action), found.tags)

    def _known_of(self, marks: Marks) -> _Known:
        """What is known and still so: an import into the registry may give an id again."""
        if (
            sum(len(each.verdicts) for each in self._known.values()) > KNOWN_MAX
            or len(self._known) > KNOWN_MAX
        ):
            self._known.clear()
        known = self._known.setdefault(marks, _Known(marks))
        named = self._replica.state.subjects.named
        changed = [
            place for place, was in known.of.items() if named(place[1][0] if place[1] else 0) is not was
        ]
        for place in changed:
            del known.of[place], known.verdicts[place]
        return known

    async def _look_up(self, known: _Known, missing: set[_Place]) -> None:
        """Learn what these places hold. Raises OSError."""
        state = self._replica.state
        table = state.subjects
        waiting: dict[_Place, partial[_Verdict]] = {}
        for place in missing:
            bound_id, framed = place
            bound = state.schemas.get(bound_id)
            if bound is not None and bound.naming and framed is not None:
                registered = table.named(framed[0])
                if registered is None or registered.schema_type != PROTOBUF:  # whatever stands behind its id
                    place = (bound_id, (framed[0], ()))
                imports = imported(table, registered) if registered is not None else {}
                known.of[place] = registered
                waiting[place] = partial(self._registered, known.marks, framed, registered, imports)
            else:
                waiting[place] = partial(self._own, known.marks, bound, framed, state.schemas)
        made = await asyncio.to_thread(lambda: {place: work() for place, work in waiting.items()})
        known.verdicts |= made
        known.slow = known.slow or any(map(_is_slow, made.values()))

    def _registered(
        self, marks: Marks, framed: Framed, schema: RegisteredSchema | None, imports: Mapping[str, bytes]
    ) -> _Verdict:
        """Of a schema of the registry."""
        name, indexes = framed
        if schema is None:
            return f"schema {framing.shown(name)} was deleted from the registry"
        try:
            marks = with_metadata(marks, schema.metadata)
            if schema.schema_type == AVRO:
                return avro_redaction.redactor(schema.canonical, imports, marks, self._key)
            if schema.schema_type == JSON:
                return json_redaction.redactor(schema.canonical, imports, marks, self._key)
            files = protobuf.descriptor_set(schema.canonical, imports)
            kind = descriptors.load(files, descriptors.message_at(files, indexes))
        except (InvalidSchema, DescriptorError, Endless, BadTags) as error:
            return f"schema {framing.shown(name)}: {error}"
        return messages.redactor(kind, marks, self._key)

    def _own(
        self, marks: Marks, bound: Schema | None, framed: Framed | None, schemas: Mapping[int, Schema]
    ) -> _Verdict:
        """Of a schema that the topic itself is, or was, bound to."""
        own = framed[0] if framed is not None else 0
        schema = bound if framed is None else schemas.get(own) if isinstance(own, int) else None
        if bound is None or schema is None or (schema.topic, schema.role) != (bound.topic, bound.role):
            return "its schema is none of the topic's"
        if schema.naming:
            return "it names no schema of the registry"
        try:
            kind = descriptors.load(schema.descriptor_set, schema.message)
        except DescriptorError as error:
            return f"schema {schema.schema_id}: {error}"
        if framed is not None and framed[1] != kind.indexes:
            return f"its frame names another message than {kind.name}"
        return messages.redactor(kind, marks, self._key)


def header_frame(role: str, headers: Buffer) -> bytes:
    """The frame that a header has, to stand before the record; empty where there is none.

    Raises CorruptBatch.
    """
    if _MARK not in bytes(headers):
        return b""
    return framing.composed(role, b"", headers_of(headers)) or b""


class Judge:
    """What becomes of each record. `missing`: places that nobody has looked up; then nothing counts."""

    hides: ClassVar[bool] = True
    """What it cannot read it shows nobody."""

    def __init__(
        self,
        spans: Sequence[Span],
        verdicts: Mapping[_Place, _Verdict],
        following: frozenset[int] = frozenset(),
        look_up: Callable[[set[_Place]], Awaitable[None]] = _nothing,
        count: Callable[[int, int], None] = lambda changed, withheld: None,
        slow: Callable[[], bool] = lambda: False,
    ) -> None:
        self.changed = self.withheld = 0
        self.missing: set[_Place] = set()
        self._spans = spans
        self._starts = [each.first_offset for each in spans]
        self._verdicts = verdicts
        self._following = following
        self._look_up = look_up
        self._count = count
        self._slow = slow

    @property
    def slow(self) -> bool:
        """Whether a batch is too much for the event loop however small."""
        return self._slow()

    def again(self) -> None:
        """A batch is gone through, maybe once more."""
        self.changed = self.withheld = 0
        self.missing = set()

    async def learn(self) -> None:
        """Look up what is missing. Raises OSError."""
        await self._look_up(self.missing)

    def count(self) -> None:
        """The batch is done."""
        self._count(self.changed, self.withheld)

    def count_hidden(self, records: int) -> None:
        """A batch of so many records was shown to nobody."""
        self._count(0, records)

    def __call__(
        self, offset: int, key: bytes | None, value: bytes | None, headers: Buffer
    ) -> Changed | None:
        """The record as it may be read; None: as it is."""
        span = self._spans[max(0, bisect_right(self._starts, offset) - 1)]
        read_key, why_key = key, ""
        if span.key_schema_id:
            read_key, why_key = self._read("key", span.key_schema_id, key, headers)
        read_value, why = self._read("value", span.value_schema_id, value, headers)
        why = why or why_key
        if why:
            self.withheld += 1
            return Changed(read_key, read_value, ((WITHHELD_HEADER, why.encode()),))
        if read_key is key and read_value is value:
            return None
        self.changed += 1
        return Changed(read_key, read_value)

    def _read(self, role: str, bound: int, data: bytes | None, headers: Buffer) -> tuple[bytes | None, str]:
        """What may be read, and why all of it is withheld."""
        if data is None:
            return data, ""
        if not bound:
            return b"", "no schema says what is in it"
        front = b""
        try:
            if headers and bound in self._following:
                front = header_frame(role, headers)
            verdict, start = self._verdict(bound, front + data)
            if isinstance(verdict, str):
                return b"", verdict
            if verdict is None:
                return data, ""
            if start < len(front):
                raise framing.FramingError("its header has more than a frame")
            start -= len(front)
            inside = data[start:]
            left = verdict.redacted(inside)
            return data if left == inside else data[:start] + left, ""
        except (framing.FramingError, Unreadable) as error:
            return b"", str(error)

    def _verdict(self, bound: int, data: bytes) -> tuple[_Verdict, int]:
        """What is known of the place, and where the message begins."""
        if data[:1] not in _FRAMES:
            return self._look(bound, None), 0
        name, end = framing.schema_named(data)
        whole = (bound, (name, ()))
        if whole in self._verdicts:
            return self._verdicts[whole], end
        try:
            frame = framing.named(data)
        except framing.FramingError:  # there is a message behind the id, or it is no frame of protobuf
            return self._look(bound, (name, ())), end
        return self._look(bound, (frame.schema, frame.indexes)), frame.start

    def _look(self, bound: int, framed: Framed | None) -> _Verdict:
        place = (bound, framed)
        if place not in self._verdicts:
            if len(self.missing) < LOOKED_UP_MAX:
                self.missing.add(place)
            return None
        return self._verdicts[place]


def _is_slow(verdict: _Verdict) -> bool:
    return verdict is not None and not isinstance(verdict, str) and verdict.slow
