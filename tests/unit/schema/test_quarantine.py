"""What a quarantined record says of itself, and that it can be read by what its topic is bound to."""

from __future__ import annotations

from hashlib import sha256

from coordination.state.types import Schema
from objectstore.batch import NewRecord, build, peek, records
from objectstore.compression import Compression
from schema.descriptors import load
from schema.proto.quarantine_pb2 import Record
from schema.quarantine import (
    TEXT_CHARS_MAX,
    VIOLATIONS_MAX,
    Origin,
    SetAside,
    Violation,
    batch_of,
    descriptor_set,
)

NOW = 1_700_000_000_500
BOUND = Schema(9, "t", 0, 1, b"set", "nyc.Flight", 0, False)
ORIGIN = Origin("t", 3, "me" * 100, {"value": BOUND}, "value=quarantine")


def sent(transactional: bool = False, producer: int = 7) -> bytes:
    made = [NewRecord(5, b"k", None, [("h", b"1"), ("n", None)]), NewRecord(6, None, b"v")]
    pair = (
        {"producer_id": producer, "producer_epoch": 2, "base_sequence": (1 << 31) - 1}
        if producer >= 0
        else {}
    )
    return build(made, compression=Compression.ZSTD, transactional=transactional, **pair)


def kept(batch: bytes) -> list[Record]:
    return [Record.FromString(each.value or b"") for each in records(batch)]


def test_it_has_all_of_the_record_and_why_it_is_there() -> None:
    batch = sent()
    broken = [Violation("value", "a.b", "double.gt", "x" * 1000)] * 20
    aside = [SetAside(at, each, broken) for at, each in enumerate(records(batch))]
    first, second = kept(batch_of(ORIGIN, peek(batch), aside, NOW))
    assert (first.topic, first.partition, first.batch_index, first.timestamp_ms) == ("t", 3, 0, 5)
    assert (first.key, first.HasField("value"), second.HasField("key"), second.value) == (
        b"k",
        False,
        False,
        b"v",
    )
    assert [(each.key, each.HasField("value")) for each in first.headers] == [("h", True), ("n", False)]
    assert (first.producer_id, first.producer_epoch, first.sequence) == (7, 2, (1 << 31) - 1)
    assert second.sequence == 0, "sequences wrap"
    assert len(first.client_id) == 100
    assert not first.HasField("key_schema")
    schema = first.value_schema
    assert (schema.id, schema.message, schema.descriptor_sha256) == (9, "nyc.Flight", sha256(b"set").digest())
    assert len(first.violations) == VIOLATIONS_MAX
    assert first.violations[0].text == "x" * TEXT_CHARS_MAX
    assert first.policy == "value=quarantine"


def test_its_batch_has_no_sequence_and_no_producer_but_for_a_transaction() -> None:
    for transactional, producer in ((False, 7), (True, 7), (False, -1)):
        batch = sent(transactional, producer)
        aside = [SetAside(0, next(records(batch)), [Violation("value", "", "schema", "no")])]
        header = peek(batch_of(ORIGIN, peek(batch), aside, NOW))
        assert header.transactional is transactional
        assert (header.producer_id, header.producer_epoch) == ((7, 2) if transactional else (-1, -1))
        assert header.base_sequence == -1
        assert header.compression is Compression.ZSTD
        assert header.max_timestamp == NOW


def test_what_quarantines_are_bound_to_is_the_whole_of_its_message() -> None:
    kind = load(descriptor_set(), "floe.quarantine.v1.Record")
    batch = sent()
    aside = [SetAside(0, next(records(batch)), [Violation("value", "", "schema", "no")])]
    (record,) = records(batch_of(ORIGIN, peek(batch), aside, NOW))
    message = kind.message_class.FromString(record.value or b"")
    assert message.ByteSize() == len(record.value or b"")
    assert message.topic == "t"  # type: ignore[attr-defined]  # made from the descriptor
