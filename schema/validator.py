"""Judges record batches: does every record parse strictly as the message its topic is bound to?

A batch with one bad record is refused whole, as Kafka does with INVALID_RECORD (KIP-467).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import islice
from typing import Protocol

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from objectstore import batch as record_batch
from objectstore.opening import opened
from schema import descriptors, diagnosis, framing
from schema.descriptors import MessageType
from schema.rules.ruled import Ruled

BAD_RECORDS_MAX = 128
"""Bad records named per batch; the search ends there."""

RECORDS_PER_LOOK = 4096
"""Records of a batch that are decoded at once."""

REASON_CHARS_MAX = 400
"""Characters of one reason."""

INLINE_BYTES_MAX = 16 << 10
"""Uncompressed batches up to this many bytes are judged on the event loop (about 0.1 ms)."""


class Framing(IntEnum):
    """How a topic's records carry the message; the numbers are BindSchema.Framing's."""

    ANY = 0
    PLAIN = 1
    CONFLUENT = 2


@dataclass(frozen=True, order=True, slots=True)
class BadRecord:
    """A record that was refused. `index` counts from 0 within the batch."""

    index: int
    reason: str


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


class BoundTopic(Protocol):
    """What the replicated state knows of a topic's bindings."""

    @property
    def name(self) -> str: ...
    @property
    def value_schema_id(self) -> int | None: ...
    @property
    def key_schema_id(self) -> int | None: ...


class _Record(Protocol):
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


_Taken = list[tuple[MessageType, int]] | None
"""Of which message a good record is, and its size: for whom it is to be noted."""


class _Part:
    """Judges the keys or the values of a topic."""

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
        }

    @property
    def has_rules(self) -> bool:
        """Whether a message that is taken has rules of protovalidate."""
        return any(kind.has_rules for kind in self._types.values())

    def check(
        self, records: Sequence[bytes | None], ruled: Ruled | None = None, first: int = 0
    ) -> list[BadRecord]:
        """The bad ones among `records`, at most BAD_RECORDS_MAX.

        `ruled`: is told of which messages the good ones are, from the batch's record `first` on.
        """
        noted = ruled if ruled is not None and self._role in ruled.roles and self.has_rules else None
        taken: _Taken = None if noted is None else []
        bad: list[BadRecord] = []
        for index, record in enumerate(records):
            reason = self._judge(record, taken)
            if noted is not None and taken:
                kind, size = taken.pop()
                noted.note(self._role, first + index, kind, len(record or b"") - size)
            if reason is not None:
                bad.append(BadRecord(index, self._told(record, reason)[:REASON_CHARS_MAX]))
                if len(bad) == BAD_RECORDS_MAX:
                    break
        return bad

    def _told(self, record: bytes | None, reason: str) -> str:
        """The reason for people; sending JSON is the mistake that newcomers make first."""
        if record is None or not diagnosis.looks_like_json(record):
            return f"{self._role}: {reason}"
        return (
            f"{self._role}: the bytes look like JSON; the topic takes the protobuf message "
            f"{self._type.name}, serialized: {reason}"
        )

    def _judge(self, record: bytes | None, taken: _Taken) -> str | None:
        if record is None:
            return None if self._nullable else "is null, but the topic's binding allows no tombstones"
        if record[:1] != b"\x00":
            if self._framing is Framing.CONFLUENT:
                return "has no Confluent frame (0x00 and schema id), which the topic's binding asks for"
            return self._message(record, self._type, taken)
        if self._framing is Framing.PLAIN:
            return "starts with 0x00: a Confluent frame, but the topic's binding asks for plain protobuf"
        if record.startswith(self._prefix):
            return self._message(record[len(self._prefix) :], self._type, taken)
        return self._framed(record, taken)

    def _framed(self, record: bytes, taken: _Taken) -> str | None:
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
        return self._message(record[frame.start :], found, taken)

    def _message(self, payload: bytes, kind: MessageType, taken: _Taken) -> str | None:
        try:
            message = kind.message_class.FromString(payload)
        except DecodeError:
            return diagnosis.why_unparsable(payload, kind.descriptor)
        if kind.has_required and not message.IsInitialized():
            return diagnosis.why_incomplete(message)
        if not self._allow_unknown and _has_unknown(message, kind):
            return diagnosis.why_unknown(payload, kind.descriptor)
        if taken is not None:
            taken.append((kind, len(payload)))
        return None


def _has_unknown(message: Message, kind: MessageType) -> bool:
    """Whether bytes were parsed that belong to no field of the message or of one inside it."""
    if not kind.has_submessages:
        return len(UnknownFieldSet(message)) > 0
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return message.ByteSize() != size


class Validator:
    """The verdict over batches of one topic. Thread-safe: it holds no changing state."""

    def __init__(self, key: _Part | None, value: _Part | None) -> None:
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

        def part(role: str, schema: BoundSchema | None) -> _Part | None:
            if schema is None:
                return None
            return _Part(role, schema, [old for old in olds if old.role == schema.role], allow_unknown)

        return cls(part("key", key), part("value", value))

    def check(
        self, batch: memoryview | bytes, decoded_bytes_max: int = record_batch.DECODED_BYTES_MAX
    ) -> list[BadRecord]:
        """The bad records of one v2 record batch, by index; empty when it is good.

        Raises objectstore.batch.CorruptBatch when the records cannot be read at all.
        """
        return self.check_records(record_batch.records(batch, decoded_bytes_max))

    def check_records(self, records: Iterable[_Record], ruled: Ruled | None = None) -> list[BadRecord]:
        """The same for records as they are decoded: some at a time, a small batch may have millions.

        `ruled` is told of which messages they are. Raises TooMixed.
        """
        bad: list[BadRecord] = []
        rest, start = iter(records), 0
        while len(bad) < BAD_RECORDS_MAX and (some := list(islice(rest, RECORDS_PER_LOOK))):
            bad += [
                BadRecord(start + each.index, each.reason) for each in self._check_some(some, ruled, start)
            ]
            start += len(some)
        return bad[:BAD_RECORDS_MAX]

    def _check_some(self, records: Sequence[_Record], ruled: Ruled | None, start: int) -> list[BadRecord]:
        bad: list[BadRecord] = []
        if self._key is not None:
            bad += self._key.check([record.key for record in records], ruled, start)
        if self._value is not None:
            bad += self._value.check([record.value for record in records], ruled, start)
        return sorted(bad)

    async def judge_off_loop(
        self, batch: memoryview, roles: Iterable[str] = ()
    ) -> tuple[list[BadRecord], Ruled | None]:
        """`check` as `check_off_loop` does it, and which rules of those roles are to be evaluated besides.

        None where there are no such. Raises TooMixed.
        """
        parts = {"key": self._key, "value": self._value}
        wanted = [role for role in roles if (part := parts[role]) is not None and part.has_rules]
        if not wanted:
            return await self.check_off_loop(batch), None

        def judged(batch: memoryview, decoded_bytes_max: int) -> tuple[list[BadRecord], Ruled]:
            ruled = Ruled(wanted)
            return self.check_records(record_batch.records(batch, decoded_bytes_max), ruled), ruled

        compressed = record_batch.peek(batch).compression
        bad, ruled = await opened(judged, batch, 0 if compressed else INLINE_BYTES_MAX)
        return bad, ruled if ruled else None

    async def check_off_loop(self, batch: memoryview) -> list[BadRecord]:
        """`check`, in a thread unless the batch is small and not compressed."""
        compressed = record_batch.peek(batch).compression
        return await opened(self.check, batch, 0 if compressed else INLINE_BYTES_MAX)


class ValidatorCache:
    """The validators of the topics in use; least recently used go first."""

    def __init__(self, *, entries_max: int = 4096, allow_unknown: bool = False) -> None:
        self._entries_max = entries_max
        self._allow_unknown = allow_unknown
        self._validators: OrderedDict[tuple[str, int | None, int | None], Validator] = OrderedDict()

    def for_topic(self, topic: BoundTopic, schemas: Mapping[int, BoundSchema]) -> Validator | None:
        """The validator of a topic's current bindings; None when it has none. Raises DescriptorError."""
        key_id, value_id = topic.key_schema_id, topic.value_schema_id
        if key_id is None and value_id is None:
            return None
        identity = (topic.name, key_id, value_id)
        found = self._validators.get(identity)
        if found is None:
            found = Validator.from_binding(
                None if value_id is None else schemas[value_id],
                None if key_id is None else schemas[key_id],
                earlier=[schema for schema in schemas.values() if schema.topic == topic.name],
                allow_unknown=self._allow_unknown,
            )
            self._validators[identity] = found
            if len(self._validators) > self._entries_max:
                self._validators.popitem(last=False)
        else:
            self._validators.move_to_end(identity)
        return found
