"""What clients without clearance get of topics that have `floe.redact`: batches without marked fields.

Offsets, times and producers stay, so a consumer counts on as ever. What a record's schema marks is replaced
as schema/redaction says; a value that no schema explains is withheld whole: it is empty, and a header says
why. So nothing is shown for want of knowledge. Batches of other topics are not opened, and none are that
cleared clients read.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from agent.config.redaction import RedactionConfig, names
from agent.kafka.fetch.driver import Fetched
from agent.net.listening import ANONYMOUS
from coordination.kafka_codes import Code
from coordination.state.following import imported
from coordination.state.redacting import policy_of
from coordination.state.schemas import spans_between
from coordination.state.types import Partition, Schema, Span, Topic
from objectstore.batch import Buffer, CorruptBatch, peek, split
from objectstore.opening import opened
from objectstore.revalued import Changed, hollow, revalued
from schema import descriptors, framing
from schema.descriptors import DescriptorError
from schema.followed import AVRO, JSON, PROTOBUF, Framed
from schema.redaction import avro as avro_redaction
from schema.redaction import json as json_redaction
from schema.redaction import messages
from schema.redaction.marks import Action, Marks, Redactor, Unreadable
from schema.registry import protobuf
from schema.registry.avro.filler import Endless
from schema.registry.parsed import InvalidSchema

if TYPE_CHECKING:
    from agent.telemetry.metrics import Metrics
    from coordination.replica import Replica
    from coordination.state.subject_types import RegisteredSchema

WITHHELD_HEADER = "floe.withheld"
"""Key of the header of a record whose value is withheld; the header's value says why."""

INLINE_BYTES_MAX = 4 << 10
"""Uncompressed batches up to this size are rewritten on the event loop (about 0.1 ms), but for JSON's."""

KNOWN_MAX = 1_024
"""Schemas that are kept ready; beyond, all are forgotten, and looked up again."""

LOOKS_MAX, LOOKED_UP_MAX = 64, 256
"""Times that schemas are looked up for one batch, and how many at once; beyond, the batch is withheld."""

SIDE_BY_SIDE_MAX = 2
"""Partitions of one agent that are rewritten at once: each has a thread, and a copy of what is answered."""

_Place = tuple[int, Framed | int | None]
"""The schema that was bound, and what the record's frame names: of a schema whose frames name no message (or
that is gone) its id alone."""

_Verdict = Redactor | str | None
"""What makes records of a place fit to be read; why they are withheld; None: they are as they are."""


@dataclass(slots=True)
class _Known:
    """What there is to know of one topic's config; `of`: the registry's schema that a verdict is about."""

    marks: Marks
    verdicts: dict[_Place, _Verdict] = field(default_factory=dict)
    of: dict[_Place, RegisteredSchema | None] = field(default_factory=dict)
    slow: bool = False
    """Whether a verdict is one that takes too long for the event loop."""


class Redaction:
    """Rewrites what is fetched. One of an agent."""

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
        self._turns = asyncio.Semaphore(SIDE_BY_SIDE_MAX)

    def cleared(self, listener: str, client_id: str | None, principal: str = ANONYMOUS) -> bool:
        """Whether a client reads all fields."""
        if listener in self._listeners or principal in self._principals:
            return True
        name = client_id or ""
        return name in self._ids or name.startswith(self._prefixes)

    async def apply(self, fetched: Sequence[Fetched]) -> None:
        """Rewrite what is not for everybody. A partition whose schemas cannot be had answers that alone."""
        for each in fetched:
            partition = each.planned.wanted.partition
            if not each.records or not isinstance(partition, Partition):
                continue
            marks = self._marks(partition.topic)
            if marks is None:
                continue
            async with self._turns:
                try:
                    each.records = await self._redacted(partition, each.records, marks)
                except OSError:  # the compiler works in a temporary folder
                    each.records = []
                    each.planned = replace(each.planned, code=Code.KAFKA_STORAGE_ERROR)

    def _marks(self, topic: Topic) -> Marks | None:
        found = policy_of(self._replica.state, topic)
        return None if found is None else Marks(Action(found.action), found.tags)

    async def _redacted(
        self, partition: Partition, records: Sequence[memoryview], marks: Marks
    ) -> list[memoryview]:
        state, known = self._replica.state, self._known_of(marks)
        views = [view[at : at + size] for view in records for at, size in split(view)]
        first, last = peek(views[0]).base_offset, peek(views[-1]).last_offset
        spans = spans_between(state, partition, first, last + 1)
        done: list[memoryview] = []
        for view in views:
            done.append(memoryview(await self._batch(view, spans, known)))
        return done

    def _known_of(self, marks: Marks) -> _Known:
        """What is known and still so: an import into the registry may give an id again."""
        if (
            sum(len(each.verdicts) for each in self._known.values()) > KNOWN_MAX
            or len(self._known) > KNOWN_MAX
        ):
            self._known.clear()
        known = self._known.setdefault(marks, _Known(marks))
        schemas = self._replica.state.subjects.schemas
        changed = [place for place, was in known.of.items() if schemas.get(_named(place[1])) is not was]
        for place in changed:
            del known.of[place], known.verdicts[place]
        return known

    async def _batch(self, view: memoryview, spans: Sequence[Span], known: _Known) -> Buffer:
        header = peek(view)
        if header.control or not header.record_count:
            return view
        for _ in range(LOOKS_MAX):
            inline = 0 if header.attributes & 0x07 or known.slow else INLINE_BYTES_MAX
            judge = _Judge(spans, known.verdicts)
            try:
                found = await opened(partial(_rewritten, judge), view, inline)
            except CorruptBatch:
                self._metrics.fetch_withheld.inc(header.record_count)
                return hollow(view)
            if not judge.missing:
                self._metrics.fetch_redacted.inc(judge.changed)
                self._metrics.fetch_withheld.inc(judge.withheld)
                return found
            await self._look_up(known, judge.missing)
        self._metrics.fetch_withheld.inc(header.record_count)
        return hollow(view)

    async def _look_up(self, known: _Known, missing: set[_Place]) -> None:
        """Learn what these places hold. Raises OSError."""
        state = self._replica.state
        table = state.subjects
        waiting: dict[_Place, partial[_Verdict]] = {}
        for place in missing:
            bound_id, framed = place
            assert not isinstance(framed, int), "records are looked up by what stands in their frames"
            bound = state.schemas.get(bound_id)
            if bound is not None and bound.naming and framed is not None:
                registered = table.schemas.get(framed[0])
                if registered is None or registered.schema_type != PROTOBUF:  # whatever stands behind its id
                    place = (bound_id, framed[0])
                imports = imported(table, registered) if registered is not None else {}
                known.of[place] = registered
                waiting[place] = partial(self._registered, known.marks, framed, registered, imports)
            else:
                waiting[place] = partial(self._own, known.marks, bound, framed, state.schemas)
        made = await asyncio.to_thread(lambda: {place: work() for place, work in waiting.items()})
        known.verdicts |= made
        known.slow = known.slow or any(_is_slow(each) for each in made.values())

    def _registered(
        self, marks: Marks, framed: Framed, schema: RegisteredSchema | None, imports: Mapping[str, bytes]
    ) -> _Verdict:
        """Of a schema of the registry."""
        schema_id, indexes = framed
        if schema is None:
            return f"schema {schema_id} was deleted from the registry"
        try:
            if schema.schema_type == AVRO:
                return avro_redaction.redactor(schema.canonical, imports, marks, self._key)
            if schema.schema_type == JSON:
                return json_redaction.redactor(schema.canonical, imports, marks, self._key)
            files = protobuf.descriptor_set(schema.canonical, imports)
            kind = descriptors.load(files, descriptors.message_at(files, indexes))
        except (InvalidSchema, DescriptorError, Endless) as error:
            return f"schema {schema_id}: {error}"
        return messages.redactor(kind, marks, self._key)

    def _own(
        self, marks: Marks, bound: Schema | None, framed: Framed | None, schemas: Mapping[int, Schema]
    ) -> _Verdict:
        """Of a schema that the topic itself is, or was, bound to."""
        schema = bound if framed is None else schemas.get(framed[0])
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


class _Judge:
    """What becomes of each record. `missing`: places that nobody has looked up; then nothing counts."""

    def __init__(self, spans: Sequence[Span], verdicts: Mapping[_Place, _Verdict]) -> None:
        self.changed = self.withheld = 0
        self.missing: set[_Place] = set()
        self._spans = spans
        self._starts = [each.first_offset for each in spans]
        self._verdicts = verdicts

    def again(self) -> None:
        """The batch is gone through once more."""
        self.changed = self.withheld = 0
        self.missing = set()

    def __call__(self, offset: int, key: bytes | None, value: bytes | None) -> Changed | None:
        """The record as it may be read; None: as it is."""
        span = self._spans[max(0, bisect_right(self._starts, offset) - 1)]
        read_key, why_key = self._read(span.key_schema_id, key) if span.key_schema_id else (key, "")
        read_value, why = self._read(span.value_schema_id, value)
        why = why or why_key
        if why:
            self.withheld += 1
            return Changed(read_key, read_value, ((WITHHELD_HEADER, why.encode()),))
        if read_key is key and read_value is value:
            return None
        self.changed += 1
        return Changed(read_key, read_value)

    def _read(self, bound: int, data: bytes | None) -> tuple[bytes | None, str]:
        """What may be read, and why all of it is withheld."""
        if data is None:
            return data, ""
        if not bound:
            return b"", "no schema says what is in it"
        try:
            verdict, start = self._verdict(bound, data)
            if isinstance(verdict, str):
                return b"", verdict
            if verdict is None:
                return data, ""
            inside = data[start:]
            left = verdict.redacted(inside)
            return data if left == inside else data[:start] + left, ""
        except (framing.FramingError, Unreadable) as error:
            return b"", str(error)

    def _verdict(self, bound: int, data: bytes) -> tuple[_Verdict, int]:
        """What is known of the place, and where the message begins."""
        if data[:1] != b"\x00":
            return self._look(bound, None), 0
        schema_id = framing.schema_id(data)
        whole = (bound, schema_id)
        if whole in self._verdicts:
            return self._verdicts[whole], framing.ID_END
        try:
            frame = framing.parse(data)
        except framing.FramingError:  # there is a message behind the id, or it is no frame of protobuf
            return self._look(bound, (schema_id, ())), framing.ID_END
        return self._look(bound, (frame.schema_id, frame.indexes)), frame.start

    def _look(self, bound: int, framed: Framed | None) -> _Verdict:
        place = (bound, framed)
        if place not in self._verdicts:
            if len(self.missing) < LOOKED_UP_MAX:
                self.missing.add(place)
            return None
        return self._verdicts[place]


def _named(framed: Framed | int | None) -> int:
    """The id that a frame names; 0: it is none."""
    return framed if isinstance(framed, int) else framed[0] if framed is not None else 0


def _is_slow(verdict: _Verdict) -> bool:
    return verdict is not None and not isinstance(verdict, str) and verdict.slow


def _rewritten(judge: _Judge, batch: memoryview, decoded_bytes_max: int) -> Buffer:
    judge.again()
    return revalued(batch, judge, decoded_bytes_max)
