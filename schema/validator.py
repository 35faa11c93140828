"""Judges record batches: does every record parse strictly as the message its topic is bound to?

A batch with one bad record is refused whole, as Kafka does with INVALID_RECORD (KIP-467).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from functools import partial
from itertools import islice
from typing import Final, Protocol

from google.protobuf.message import Message

from objectstore import batch as record_batch
from objectstore.opening import opened
from schema import descriptors, framing
from schema.descriptors import MessageType
from schema.followed import NOTHING_REFUSED, FollowedPart, Refused
from schema.rules.apart import apart
from schema.rules.ruled import RECORD, OwnRule, Places, Ruled
from schema.rules.sure.doubts import Doubts
from schema.rules.sure.kinds import Obeys
from schema.strict import BAD_RECORDS_MAX, DOUBT, REASON_CHARS_MAX, BadRecord, problem, told

__all__ = ["BAD_RECORDS_MAX", "REASON_CHARS_MAX", "BadRecord", "Framing", "Validator", "ValidatorCache"]

ROLES = ("key", "value")

NO_DOUBTS: Final[Mapping[str, Doubts]] = {}
"""Where nobody asks for rules."""

RECORDS_PER_LOOK = 4096
"""Records of a batch that are decoded at once."""

INLINE_BYTES_MAX = 16 << 10
"""Uncompressed batches up to this many bytes are judged on the event loop (about 0.1 ms)."""


class Framing(IntEnum):
    """How a topic's records carry the message; the numbers are BindSchema.Framing's."""

    ANY = 0
    PLAIN = 1
    CONFLUENT = 2


class BoundSchema(Protocol):
    """What the replicated state knows of a schema (coordination/state)."""

    @property
    def schema_id(self) -> int: ...
    @property
    def topic(self) -> str: ...
    @property
    def role(self) -> int: ...
    @property
    def descriptor_set(self) -> bytes: ...
    @property
    def message(self) -> str: ...
    @property
    def framing(self) -> int: ...
    @property
    def tombstones(self) -> bool: ...
    @property
    def naming(self) -> int: ...


class BoundTopic(Protocol):
    """What the replicated state knows of a topic's bindings."""

    @property
    def name(self) -> str: ...
    @property
    def value_schema_id(self) -> int | None: ...
    @property
    def key_schema_id(self) -> int | None: ...
    @property
    def bound_revision(self) -> int: ...


class _Part:
    """Judges the keys or the values of a topic that is bound to a message of its own."""

    def __init__(
        self, role: str, schema: BoundSchema, earlier: Iterable[BoundSchema], allow_unknown: bool
    ) -> None:
        self._role = role
        self._framing = Framing(schema.framing)
        self._nullable = schema.tombstones
        self._allow_unknown = allow_unknown
        self._type = descriptors.load(schema.descriptor_set, schema.message)
        self._parse: Callable[[bytes], Message] = self._type.message_class.FromString
        self._prefix = framing.prefix(schema.schema_id, self._type.indexes)
        self._types = {
            known.schema_id: descriptors.load(known.descriptor_set, known.message)
            for known in (*earlier, schema)
            if not known.naming
        }
        self.has_rules = any(kind.has_rules for kind in self._types.values())
        """Whether a message that is taken has rules of protovalidate."""

    def check(
        self, records: Sequence[bytes | None], _refused: Refused, doubts: Doubts | None = None
    ) -> list[BadRecord]:
        """The bad ones among `records`, at most BAD_RECORDS_MAX. `doubts` is told which may break rules."""
        bad: list[BadRecord] = []
        asked = doubts is not None and any(record is not None for record in records)
        obeys = doubts.obeys(self._type) if doubts is not None and asked else None
        for index, record in enumerate(records):
            reason = self._judge(record, obeys, doubts)
            if reason is None:
                continue
            if doubts is not None and reason == DOUBT:
                doubts.places.append(index)
                continue
            bad.append(BadRecord(index, told(self._role, record, reason, self._type.name)))
            if len(bad) == BAD_RECORDS_MAX:
                break
        return bad

    def note(self, records: Places, ruled: Ruled, first: int, _stored: Places, places: range) -> None:
        """Of which messages the good ones at these places are, the batch's from record `first` on.

        Raises TooMixed.
        """
        noted: tuple[MessageType, int] | None = None
        plain, framed = (self._type, 0), (self._type, len(self._prefix))
        for place in places:
            record = records[place]
            if record is None:
                continue
            if record[:1] != b"\x00":
                found = plain
            elif record.startswith(self._prefix):
                found = framed
            else:
                frame = framing.parse(record)
                found = self._types[frame.schema_id], frame.start
            if found != noted:
                ruled.note(self._role, first + place, *found)
                noted = found

    def _judge(self, record: bytes | None, obeys: Obeys | None, doubts: Doubts | None) -> str | None:
        if record is None:
            return None if self._nullable else "is null, but the topic's binding allows no tombstones"
        if record[:1] != b"\x00":
            if self._framing is Framing.CONFLUENT:
                return "has no Confluent frame (0x00 and schema id), which the topic's binding asks for"
            return problem(record, self._type, self._allow_unknown, obeys)
        if self._framing is Framing.PLAIN:
            return "starts with 0x00: a Confluent frame, but the topic's binding asks for plain protobuf"
        if record.startswith(self._prefix):
            return problem(record[len(self._prefix) :], self._type, self._allow_unknown, obeys)
        return self._framed(record, doubts)

    def _framed(self, record: bytes, doubts: Doubts | None) -> str | None:
        try:
            frame = framing.parse(record)
        except framing.FramingError as error:
            return str(error)
        found = self._types.get(frame.schema_id)
        if found is None:
            known = ", ".join(str(number) for number in sorted(self._types))
            return f"Confluent frame names schema {frame.schema_id}; bound to this topic: {known}"
        if frame.indexes != found.indexes:
            return (
                f"Confluent frame has the message indexes {list(frame.indexes)}; "
                f"{found.name} is {list(found.indexes)}"
            )
        obeys = None if doubts is None else doubts.obeys(found)
        return problem(record[frame.start :], found, self._allow_unknown, obeys)


class Validator:
    """The verdict over batches of one topic. Thread-safe."""

    def __init__(self, key: _Part | FollowedPart | None, value: _Part | FollowedPart | None) -> None:
        self._key = key
        self._value = value

    @classmethod
    def from_binding(
        cls,
        value: BoundSchema | None,
        key: BoundSchema | None = None,
        *,
        earlier: Iterable[BoundSchema] = (),
        allow_unknown: bool = False,
    ) -> Validator:
        """Build from the topic's current schemas.

        `earlier` are former versions, still accepted when a Confluent frame names their id.
        `allow_unknown` accepts field numbers that the message does not have (a newer producer).
        Raises DescriptorError.
        """
        olds = list(earlier)

        def part(role: str, schema: BoundSchema | None) -> _Part | FollowedPart | None:
            if schema is None:
                return None
            if schema.naming:
                return FollowedPart(role, schema, allow_unknown=allow_unknown)
            return _Part(role, schema, [old for old in olds if old.role == schema.role], allow_unknown)

        return cls(part("key", key), part("value", value))

    def followed(self, role: str) -> FollowedPart:
        """What judges the keys or values ("key", "value"), which follow a subject: UnknownSchemas told so."""
        found = self._part(role)
        assert isinstance(found, FollowedPart), f"the {role}s follow no subject"
        return found

    def check(
        self,
        batch: memoryview | bytes,
        decoded_bytes_max: int = record_batch.DECODED_BYTES_MAX,
        refused: Refused = NOTHING_REFUSED,
    ) -> list[BadRecord]:
        """The bad records of one v2 record batch, by index; empty when it is good.

        Raises objectstore.batch.CorruptBatch when the records cannot be read at all, and
        followed.UnknownSchemas where keys or values follow a subject and name what nobody has looked up yet.
        `refused`: what was looked up for this batch and may not be named, and why.
        """
        return self.check_records(record_batch.contents(batch, decoded_bytes_max), refused)

    def check_records(
        self,
        records: Iterable[record_batch.Content],
        refused: Refused = NOTHING_REFUSED,
        ruled: Ruled | None = None,
    ) -> list[BadRecord]:
        """The same for records as they are decoded: some at a time, a small batch may have millions.

        `ruled` is told of which messages they are that may break rules, as long as none is bad. Raises
        TooMixed.
        """
        bad: list[BadRecord] = []
        rest, start = iter(records), 0
        doubts = {} if ruled is None else {role: Doubts() for role in ruled.roles if role != RECORD}
        while len(bad) < BAD_RECORDS_MAX and (some := list(islice(rest, RECORDS_PER_LOOK))):
            found = self._check_some(some, refused, doubts)
            bad += [BadRecord(start + each.index, each.reason) for each in found]
            if ruled is not None and not bad:
                self._note(some, ruled, start, doubts)
            start += len(some)
        if ruled is not None:
            ruled.seen = any(each.seen for each in doubts.values())
        return bad[:BAD_RECORDS_MAX]

    async def judge_off_loop(
        self,
        batch: memoryview,
        roles: Iterable[str] = (),
        refused: Refused = NOTHING_REFUSED,
        own: Sequence[OwnRule] = (),
        *,
        parted: bool = False,
    ) -> tuple[list[BadRecord], Ruled | None]:
        """`check` as `check_off_loop` does it, and which rules of those roles are to be evaluated besides.

        `own`: the topic's own rules, of role RECORD. None where there are no such, or records are bad.
        `parted`: what may break rules is likely to leave the batch. Raises TooMixed.
        """
        wanted = [role for role in roles if (role == RECORD and own) or self._may_have_rules(role)]
        if not wanted:
            return await self.check_off_loop(batch, refused), None

        def judged(batch: memoryview, decoded_bytes_max: int) -> tuple[list[BadRecord], Ruled]:
            ruled = Ruled(wanted, own)
            ruled.settled = {*wanted} - {RECORD}
            bad = self.check_records(record_batch.contents(batch, decoded_bytes_max), refused, ruled)
            if not bad and ruled:
                ruled.apart = apart(batch, ruled, decoded_bytes_max, parted=parted)
            return bad, ruled

        bad, ruled = await opened(judged, batch, self._inline_max(batch))
        return bad, ruled if not bad and (ruled or ruled.seen) else None

    def _may_have_rules(self, role: str) -> bool:
        """Of what follows a subject it is known once its records were looked at."""
        part = self._part(role) if role != RECORD else None
        return part is not None and (part.has_rules or isinstance(part, FollowedPart))

    def _part(self, role: str) -> _Part | FollowedPart | None:
        return self._key if role == "key" else self._value

    def _note(
        self,
        records: Sequence[record_batch.Content],
        ruled: Ruled,
        first: int,
        doubts: Mapping[str, Doubts],
    ) -> None:
        for role in ROLES if ruled.own else ruled.roles:
            part = self._part(role)
            if part is None or not (part.has_rules or ruled.own):
                continue
            places = ruled.chosen(role, doubts[role].taken() if role in doubts else [], len(records))
            if not places:
                ruled.pass_over(role, first)
                continue
            content, stored = _noted(role, records, part, places)
            at = 0
            for some in places:
                if at < some.start:
                    ruled.pass_over(role, first + at)
                part.note(content, ruled, first, stored, some)
                at = some.stop
            if at < len(records):
                ruled.pass_over(role, first + at)

    def _check_some(
        self,
        records: Sequence[record_batch.Content],
        refused: Refused,
        doubts: Mapping[str, Doubts] = NO_DOUBTS,
    ) -> list[BadRecord]:
        bad: list[BadRecord] = []
        for role in ROLES:
            part = self._part(role)
            if part is not None:
                bad += part.check(_of_role(role, records, part), refused, doubts.get(role))
        return sorted(bad)

    def check_all(
        self,
        batch: memoryview | bytes,
        decoded_bytes_max: int = record_batch.DECODED_BYTES_MAX,
        refused: Refused = NOTHING_REFUSED,
        *,
        bad_max: int,
    ) -> list[BadRecord]:
        """`check` to the end of the batch, or until there are more than `bad_max` bad ones."""
        bad: list[BadRecord] = []
        rest, start = iter(record_batch.contents(batch, decoded_bytes_max)), 0
        # No more at once than are named of one look: none is left out.
        while len(bad) <= bad_max and (some := list(islice(rest, BAD_RECORDS_MAX))):
            bad += [BadRecord(start + each.index, each.reason) for each in self._check_some(some, refused)]
            start += len(some)
        return bad

    async def check_off_loop(
        self, batch: memoryview, refused: Refused = NOTHING_REFUSED, all_up_to: int = 0
    ) -> list[BadRecord]:
        """`check`, in a thread unless the batch is small and not compressed, and no schema named is slow.

        With `all_up_to`, `check_all` of so many bad ones.
        """
        check = partial(self.check, refused=refused)
        if all_up_to:
            check = partial(self.check_all, refused=refused, bad_max=all_up_to)
        return await opened(check, batch, self._inline_max(batch))

    def _inline_max(self, batch: memoryview) -> int:
        """Bytes up to which a batch like this is judged on the event loop."""
        slow = any(isinstance(each, FollowedPart) and each.slow for each in (self._key, self._value))
        return 0 if slow or record_batch.peek(batch).compression else INLINE_BYTES_MAX


def _of_role(
    role: str, records: Sequence[record_batch.Content], part: _Part | FollowedPart
) -> Sequence[bytes | None]:
    """The keys or values, behind the frames that their headers have where the topic follows a subject."""
    found = [one.key for one in records] if role == "key" else [one.value for one in records]
    if isinstance(part, _Part):
        return found
    return framing.composed_all(role, found, [one.headers for one in records], exact=True)


def _noted(
    role: str,
    records: Sequence[record_batch.Content],
    part: _Part | FollowedPart,
    places: Sequence[range],
) -> tuple[Places, Places]:
    """What `_of_role` gives, and what is stored; as far as these places need it."""
    if not isinstance(part, _Part):
        stored = [one.key for one in records] if role == "key" else [one.value for one in records]
        return _of_role(role, records, part), stored
    found = {at: records[at].key if role == "key" else records[at].value for some in places for at in some}
    return found, found


class ValidatorCache:
    """The validators of the topics in use; least recently used go first."""

    def __init__(self, *, entries_max: int = 4096, allow_unknown: bool = False) -> None:
        self._entries_max = entries_max
        self._allow_unknown = allow_unknown
        self._validators: OrderedDict[tuple[str, int | None, int | None, int], Validator] = OrderedDict()

    def for_topic(self, topic: BoundTopic, schemas: Mapping[int, BoundSchema]) -> Validator | None:
        """The validator of a topic's current bindings; None when it has none. Raises DescriptorError."""
        key_id, value_id = topic.key_schema_id, topic.value_schema_id
        if key_id is None and value_id is None:
            return None
        # With the revision: what frames may name changes without the ids where a topic follows a subject.
        identity = (topic.name, key_id, value_id, topic.bound_revision)
        found = self._validators.get(identity)
        if found is None:
            value = None if value_id is None else schemas[value_id]
            key = None if key_id is None else schemas[key_id]
            of_its_own = any(each is not None and not each.naming for each in (value, key))
            found = Validator.from_binding(
                value,
                key,
                earlier=[each for each in schemas.values() if each.topic == topic.name] if of_its_own else (),
                allow_unknown=self._allow_unknown,
            )
            self._validators[identity] = found
            if len(self._validators) > self._entries_max:
                self._validators.popitem(last=False)
        else:
            self._validators.move_to_end(identity)
        return found
