"""Judges keys or values that name, in their frames, a schema of a subject that their topic follows.

Messages by the strict parse, data of AVRO and JSON by their schemas (judges.py).

Which schemas those are the replicated state says, and it is not asked here: what a frame names and nobody
has looked up yet is raised (UnknownSchemas), whoever knows the state tells (`settle`), and the batch is
judged again. What may be named stays known for as long as the binding does; what may not is told for one
batch alone, since it may be registered in a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol, TypeAlias

from schema import descriptors, framing, judges
from schema.descriptors import DescriptorError, MessageType
from schema.framing import SchemaName
from schema.registry import protobuf
from schema.registry.parsed import Imports, InvalidSchema
from schema.rules.ruled import Places, Ruled
from schema.rules.sure.doubts import Doubts
from schema.strict import BAD_RECORDS_MAX, DOUBT, REASON_CHARS_MAX, BadRecord, problem, told

KINDS_MAX = 1_024
"""Schemas that one topic's keys or values have ready; beyond, all are forgotten, and looked up again."""

UNKNOWN_MAX = 256
"""Schemas that are looked up for one batch at once."""

PROTOBUF, AVRO, JSON = "PROTOBUF", "AVRO", "JSON"
_PREFIX = 6  # bytes of a frame that names the first message of its file

_FRAMES = (b"\x00", b"\x01")

Framed: TypeAlias = tuple[SchemaName, tuple[int, ...]]
"""What a frame names: schema id or guid, and message indexes; no indexes: bytes that are none."""

Refused: TypeAlias = Mapping[Framed, str]
"""What may not be named, and why."""

NOTHING_REFUSED: Final[Refused] = {}


class Naming(IntEnum):
    """How the subject is found; the numbers are coordination/state/types.py Naming's."""

    SUBJECT = 1
    RECORD = 2
    TOPIC_RECORD = 3


class Following(Protocol):
    """What the replicated state knows of a binding that follows."""

    @property
    def topic(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def naming(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Named:
    """A schema that a frame names, with all that it imports, and as which subjects it counts."""

    schema_type: str
    form: bytes
    imports: Imports
    subjects: frozenset[str]


class UnknownSchemas(Exception):
    """Frames of a batch name what nobody has looked up yet. `role`: "key" or "value"."""

    def __init__(self, role: str, framed: Sequence[Framed]) -> None:
        super().__init__(role, framed)
        self.role = role
        self.framed = framed


class FollowedPart:
    """Judges the keys or the values of a topic."""

    def __init__(self, role: str, bound: Following, *, allow_unknown: bool) -> None:
        self.bound = bound
        self.slow = False
        """Whether schemas of a type were named whose records are not judged on an event loop."""
        self._role = role
        self._allow_unknown = allow_unknown
        self._kinds: dict[Framed, MessageType] = {}
        self._first: dict[bytes, MessageType] = {}  # the same of first messages, by the whole prefix
        self._texts: set[bytes] = set()  # frames of schemas of JSON
        self._others: dict[SchemaName, Callable[[bytes], str | None]] = {}  # what judges those of other types
        self.has_rules = False
        """Whether a message that was looked up has rules of protovalidate."""

    def check(
        self, records: Sequence[bytes | None], refused: Refused, doubts: Doubts | None = None
    ) -> list[BadRecord]:
        """The bad ones among `records`, at most BAD_RECORDS_MAX. Raises UnknownSchemas. Null is good.

        Those whose frame is in a header stand behind it (framing.composed). `doubts` is told which may break
        rules.
        """
        bad: list[BadRecord] = []
        unknown: dict[Framed, None] = {}
        for index, record in enumerate(records):
            if record is None:
                continue
            kind = self._first.get(record[:_PREFIX])
            if kind is not None:
                obeys = None if doubts is None else doubts.obeys(kind)
                reason = problem(record[_PREFIX:], kind, self._allow_unknown, obeys)
            else:
                reason = self._framed(record, refused, unknown, doubts)
            if reason == DOUBT and doubts is not None:
                doubts.places.append(index)
            elif reason is not None:
                bad.append(BadRecord(index, self._told(record, reason)))
                if len(bad) == BAD_RECORDS_MAX:
                    return bad
            if len(unknown) == UNKNOWN_MAX:
                break
        if unknown:
            raise UnknownSchemas(self._role, [*unknown])
        return bad

    def _told(self, record: bytes, reason: str) -> str:
        """Of what looks like JSON and shall be that, nothing is said of it."""
        if not self._texts.isdisjoint((record[: framing.ID_END], record[: framing.GUID_END])):
            return f"{self._role}: {reason}"[:REASON_CHARS_MAX]
        return told(self._role, record, reason, "a message in a frame")

    def _framed(
        self, record: bytes, refused: Refused, unknown: dict[Framed, None], doubts: Doubts | None
    ) -> str | None:
        """Why the record is bad; None where it is good, or not known yet."""
        if record[:1] not in _FRAMES:
            return (
                "has no Confluent frame (0x00 and schema id), which the topic asks for: send through a "
                "serializer that has this registry"
            )
        try:
            name, end = framing.schema_named(record)
        except framing.FramingError as error:
            return str(error)
        judge = self._others.get(name)
        if judge is not None:
            return judge(record[end:])
        try:
            frame = framing.named(record)
        except framing.FramingError as error:
            framed: Framed = (name, ())
            if framed in refused:
                return refused[framed] or str(error)
            unknown[framed] = None
            return None
        framed = (name, frame.indexes)
        kind = self._kinds.get(framed)
        if kind is not None:
            obeys = None if doubts is None else doubts.obeys(kind)
            return problem(record[frame.start :], kind, self._allow_unknown, obeys)
        if framed not in refused:
            unknown[framed] = None
            return None
        return refused[framed]

    def note(self, records: Places, ruled: Ruled, first: int, stored: Places, places: range) -> None:
        """Of which messages those at these places are, the batch's from record `first` on: all good.

        `stored`: the same as they stand in the batch. Raises TooMixed, and UnknownSchemas where what they
        name was forgotten meanwhile.
        """
        for place in places:
            record = records[place]
            if record is None:
                continue
            kind, start = self._first.get(record[:_PREFIX]), _PREFIX
            if kind is None:
                kind, start = self._framed_kind(record) or (None, 0)
            front = len(record) - len(stored[place] or b"")
            ruled.note(self._role, first + place, kind, 0 if kind is None else start - front)

    def _framed_kind(self, record: bytes) -> tuple[MessageType, int] | None:
        """Of which message a good record is, and where it begins; None: of another schema type."""
        name, _ = framing.schema_named(record)
        if name in self._others:
            return None
        try:
            frame = framing.named(record)
        except framing.FramingError:
            raise UnknownSchemas(self._role, [(name, ())]) from None
        kind = self._kinds.get((name, frame.indexes))
        if kind is None:
            raise UnknownSchemas(self._role, [(name, frame.indexes)])
        return kind, frame.start

    def settle(self, framed: Framed, named: Named) -> str | None:
        """What a frame names is this: from now on it may be named (None), or why not; empty: ask the frame.

        Blocks as protobuf.descriptor_set does: call it in a thread.
        """
        schema, indexes = framed
        if named.schema_type != PROTOBUF:
            return self._settle_other(schema, named)
        if not indexes:
            return ""
        try:
            files = protobuf.descriptor_set(named.form, named.imports)
            name = descriptors.message_at(files, indexes)
            kind = descriptors.load(files, name)
        except (InvalidSchema, DescriptorError) as error:
            return f"Confluent frame names schema {framing.shown(schema)}: {error}"
        why = self._not_taken(schema, name, named.subjects)
        if why is None:
            self._keep(framed, kind)
        return why

    def _settle_other(self, schema: SchemaName, named: Named) -> str | None:
        if named.schema_type == JSON:
            if len(self._texts) >= KINDS_MAX:
                self._texts = set()
            self._texts.add(framing.first_bytes(schema))
        try:
            judge = judges.of(named.schema_type, named.form, named.imports)
        except InvalidSchema as error:
            return f"Confluent frame names schema {framing.shown(schema)}: {error}"
        why = self._not_taken(schema, judge.name, named.subjects)
        if why is None:
            if len(self._others) >= KINDS_MAX:
                self._others = {}
            self._others[schema] = judge.problem
            self.slow = self.slow or judge.slow
        return why

    def _not_taken(self, schema: SchemaName, name: str, subjects: frozenset[str]) -> str | None:
        """Why the topic does not take a message or record of this name (empty: it has none)."""
        told = f"{name or 'a type without a name'} of schema {framing.shown(schema)}"
        if self.bound.message and name != self.bound.message:
            return f"Confluent frame names {told}; the topic takes {self.bound.message}"
        wanted = {Naming.RECORD: name, Naming.TOPIC_RECORD: f"{self.bound.topic}-{name}"}.get(
            Naming(self.bound.naming)
        )
        if wanted is not None and wanted not in subjects:
            return (
                f"Confluent frame names {told}, which is no version of subject "
                f"{wanted}: register it there first"
            )
        return None

    def _keep(self, framed: Framed, kind: MessageType) -> None:
        if len(self._kinds) >= KINDS_MAX:
            self._kinds, self._first = {}, {}
        self.has_rules = self.has_rules or kind.has_rules
        self._kinds[framed] = kind
        schema, indexes = framed
        if isinstance(schema, int) and len(prefix := framing.prefix(schema, indexes)) == _PREFIX:
            self._first[prefix] = kind
