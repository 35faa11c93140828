"""Which batches enter the produce buffer, and the error that the others are refused with."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from agent.kafka.produce.admission import Rejected, TopicRules, admit, topic_rules
from coordination.kafka_codes import Code
from objectstore.batch import HEADER_BYTES, BatchHeader, NewRecord, build, peek, seal
from objectstore.compression import Compression

NOW = 1_700_000_000_000
RULES = topic_rules({}, {})


def batch(**changes: int) -> bytes:
    """A sound batch of two records, then `changes` of its header, with a right CRC."""
    plain = build([NewRecord(NOW, b"k", b"v"), NewRecord(NOW + 5, b"k", b"w")])
    return seal(peek(plain)._replace(**changes), plain[HEADER_BYTES:])


def refusal(records: bytes | None, version: int = 9, rules: TopicRules = RULES) -> Code:
    with pytest.raises(Rejected) as caught:
        admit(memoryview(records) if records is not None else None, rules, version, NOW)
    assert caught.value.message
    return caught.value.code


def test_a_sound_batch_is_admitted() -> None:
    header = admit(memoryview(batch()), RULES, 9, NOW)
    assert (header.record_count, header.max_timestamp) == (2, NOW + 5)


def resealed(edit: Callable[[bytearray], None]) -> bytes:
    raw = bytearray(batch())
    edit(raw)
    return bytes(raw)


def cut_crc(raw: bytearray) -> None:
    raw[-1] ^= 1


def old_magic(raw: bytearray) -> None:
    raw[16] = 1


def base_offset(raw: bytearray) -> None:
    struct.pack_into(">q", raw, 0, 7)


def long_length(raw: bytearray) -> None:
    struct.pack_into(">i", raw, 8, len(raw))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, Code.INVALID_RECORD),
        (b"", Code.INVALID_RECORD),
        (b"\0" * 20, Code.INVALID_RECORD),
        (b"\0" * 16 + b"\2" + b"\0" * 20, Code.CORRUPT_MESSAGE),
        (batch() + batch(), Code.INVALID_RECORD),
        (resealed(old_magic), Code.INVALID_RECORD),
        (resealed(cut_crc), Code.CORRUPT_MESSAGE),
        (resealed(long_length), Code.CORRUPT_MESSAGE),
        (resealed(base_offset), Code.INVALID_RECORD),
        (batch(attributes=0x20), Code.INVALID_RECORD),
        (batch(attributes=0x10), Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (batch(attributes=5), Code.UNSUPPORTED_COMPRESSION_TYPE),
        (batch(record_count=3), Code.INVALID_RECORD),
        (batch(record_count=0, last_offset_delta=-1), Code.INVALID_RECORD),
        (batch(record_count=2**30, last_offset_delta=2**30 - 1), Code.INVALID_RECORD),
        (batch(producer_id=1, producer_epoch=0, base_sequence=-1), Code.INVALID_RECORD),
        (batch(max_timestamp=NOW + 3_600_001), Code.INVALID_TIMESTAMP),
    ],
)
def test_a_broken_batch_is_refused_as_kafka_does(records: bytes | None, code: Code) -> None:
    assert refusal(records) == code


def test_zstd_needs_produce_7() -> None:
    zstd = build([NewRecord(NOW, None, b"v")], compression=Compression.ZSTD)
    assert refusal(zstd, version=6) == Code.UNSUPPORTED_COMPRESSION_TYPE
    assert admit(memoryview(zstd), RULES, 7, NOW).record_count == 1


def test_the_size_is_judged_before_the_crc() -> None:
    rules = topic_rules({"max.message.bytes": "80"}, {})
    large = bytearray(build([NewRecord(NOW, None, b"v" * 100)]))
    large[-1] ^= 1
    assert refusal(bytes(large), rules=rules) == Code.MESSAGE_TOO_LARGE


def test_append_time_topics_do_not_judge_timestamps() -> None:
    rules = topic_rules({"message.timestamp.type": "LogAppendTime"}, {})
    late: BatchHeader = admit(memoryview(batch(max_timestamp=NOW * 2)), rules, 9, NOW)
    assert late.max_timestamp == NOW * 2


def test_old_timestamps_are_refused_where_the_topic_says_so() -> None:
    rules = topic_rules({"message.timestamp.before.max.ms": "1000"}, {})
    assert refusal(batch(base_timestamp=NOW - 1001), rules=rules) == Code.INVALID_TIMESTAMP
    assert admit(memoryview(batch(base_timestamp=NOW - 1000)), rules, 9, NOW)


def test_cluster_configs_count_where_the_topic_has_none() -> None:
    assert topic_rules({}, {"message.max.bytes": "5"}).message_bytes_max == 5
    assert topic_rules({"max.message.bytes": "7"}, {"message.max.bytes": "5"}).message_bytes_max == 7
