"""Records that broke their topic's rules, as they are kept: one floe.quarantine.v1.Record each.

Pure. The message holds all of a record and why it is not where it was meant to be; what quarantines are bound
to is `descriptor_set`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple, Protocol

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from objectstore.batch import NO_PRODUCER_ID, BatchHeader, NewRecord, Record, build
from schema.proto import quarantine_pb2

VIOLATIONS_MAX = 16
"""Violations of one record that are kept."""

TEXT_CHARS_MAX = 400
"""Characters of one violation's text, and of its field's path."""

CLIENT_ID_CHARS_MAX = 100
"""Characters of the client's own name."""

NO_MESSAGE = "schema"
"""The rule of a record that is no message of its topic's at all."""

_SEQUENCE_MASK = (1 << 31) - 1
_HASHES_KEPT = 64


class Violation(NamedTuple):
    """A rule that a record breaks. `role`: key, value or record; `field`: a path, empty for all of it."""

    role: str
    field: str
    rule: str
    text: str


class SetAside(NamedTuple):
    """A record that is not to be in its topic: its place in the batch, itself, and why."""

    place: int
    record: Record
    violations: Sequence[Violation]


class Schema(Protocol):
    """What keys or values are bound to (coordination/state/types.py)."""

    @property
    def schema_id(self) -> int: ...
    @property
    def descriptor_set(self) -> bytes: ...
    @property
    def message(self) -> str: ...
    @property
    def subject(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the records of a batch were meant to go, who sent them, and by what they were judged, by role."""

    topic: str
    partition: int
    client_id: str
    schemas: Mapping[str, Schema]
    policy: str


@lru_cache(maxsize=1)
def descriptor_set() -> bytes:
    """Of floe.quarantine.v1.Record, self-contained."""
    file = FileDescriptorProto()
    quarantine_pb2.DESCRIPTOR.CopyToProto(file)
    return FileDescriptorSet(file=[file]).SerializeToString(deterministic=True)


def batch_of(origin: Origin, sent: BatchHeader, records: Iterable[SetAside], now_ms: int) -> bytes:
    """The batch of a quarantine with these records of a batch `sent`, as that one compressed.

    It has no sequence; the producer only as far as its transaction goes. The records' time is `now_ms` (Unix
    ms), when they were set aside: retention counts from there.
    """
    same, written = _of_all(origin, sent), _Written()
    kept = [
        NewRecord(
            now_ms,
            None,
            b"".join((same, _of_one(sent, each), *map(written.of, each.violations[:VIOLATIONS_MAX]))),
        )
        for each in records
    ]
    producer = (sent.producer_id, sent.producer_epoch) if sent.transactional else (NO_PRODUCER_ID, -1)
    return build(
        kept,
        compression=sent.compression,
        producer_id=producer[0],
        producer_epoch=producer[1],
        transactional=sent.transactional,
    )


def _of_all(origin: Origin, sent: BatchHeader) -> bytes:
    """What all records of a batch have. A message may be written in parts, one behind the other."""
    schemas = {role: _schema(schema) for role, schema in origin.schemas.items()}
    message = quarantine_pb2.Record(
        topic=origin.topic,
        partition=origin.partition,
        producer_id=sent.producer_id,
        producer_epoch=sent.producer_epoch,
        client_id=origin.client_id[:CLIENT_ID_CHARS_MAX],
        key_schema=schemas.get("key"),
        value_schema=schemas.get("value"),
        policy=origin.policy,
    )
    return message.SerializeToString()


def _of_one(sent: BatchHeader, aside: SetAside) -> bytes:
    """What one record has of its own."""
    place, record = aside.place, aside.record
    message = quarantine_pb2.Record(
        batch_index=place,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=[quarantine_pb2.Header(key=key, value=value) for key, value in record.headers],
        sequence=(sent.base_sequence + place) & _SEQUENCE_MASK if sent.producer_id >= 0 else -1,
    )
    return message.SerializeToString()


class _Written:
    """Violations as a record has them. Those of a batch are often the same: each is written once."""

    def __init__(self) -> None:
        self._known: dict[Violation, bytes] = {}

    def of(self, violation: Violation) -> bytes:
        """One of them."""
        found = self._known.get(violation)
        if found is None:
            found = self._known[violation] = _violation(violation)
        return found


def _violation(violation: Violation) -> bytes:
    role, field, rule, text = violation
    one = quarantine_pb2.Violation(
        role=role, field=field[:TEXT_CHARS_MAX], rule=rule[:TEXT_CHARS_MAX], text=text[:TEXT_CHARS_MAX]
    )
    return quarantine_pb2.Record(violations=[one]).SerializeToString()


def _schema(schema: Schema) -> quarantine_pb2.Schema:
    own = schema.descriptor_set
    return quarantine_pb2.Schema(
        id=schema.schema_id,
        message=schema.message,
        subject=schema.subject,
        descriptor_sha256=_hash(own) if own else b"",
    )


@lru_cache(maxsize=_HASHES_KEPT)
def _hash(content: bytes) -> bytes:
    return sha256(content).digest()
