"""Whether a batch may enter the produce buffer. Pure; in Kafka's order, one partition at a time.

Kafka's order (ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords, LogValidator of
4.3): exactly one batch, magic 2, zstd only from Produce 7, base offset 0, size, CRC32C, control and
transactional bits, counts, timestamps. Records stay opaque here (records.py looks at them): what a header
says of them is trusted, as far as its own CRC and counts agree, so the maximum timestamp is not repaired as
Kafka does in silence.
Sequences and producers are judged by apply, where retries through any agent are seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from coordination import record_rules
from coordination.kafka_codes import Code
from coordination.record_rules import RecordRule
from coordination.topic_configs import (
    OFF,
    compacts,
    effective,
    effective_int,
    record_rules_in_force,
    rules_in_force,
)
from objectstore.batch import HEADER_BYTES, BatchHeader, CorruptBatch, check_crc, peek
from objectstore.compression import Compression
from schema.rules.ruled import RECORD

CODEC_MASK = 7  # the bits of a batch's attributes that name its codec
ZSTD_PRODUCE_VERSION_MIN = 7  # KIP-110
HEADERS, UNCOMPRESSED, FULL = "headers", "uncompressed", "full"  # values of floe.produce.check
OFFSETS_PER_BATCH_MAX = 1 << 24  # offsets one batch may take; a million records of 16 bytes fit 16 MB


class Rejected(Exception):
    """A batch that must not be stored; `code` and `message` go to the producer.

    `bad_records` are (index in the batch, reason) for INVALID_RECORD (KIP-467).
    """

    def __init__(self, code: Code, message: str, bad_records: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.bad_records = bad_records


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The topic configs that decide admission. Bytes and milliseconds."""

    message_bytes_max: int
    append_time: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    keys_required: bool
    check: str = UNCOMPRESSED
    """What of the records is looked at: HEADERS, UNCOMPRESSED or FULL."""
    policies: Mapping[str, str] = field(default_factory=dict)
    """What becomes of records that break rules, by role (key, value, record); none: OFF.

    Those of role record, the topic's own, are governed by the values' policy.
    """
    own: tuple[RecordRule, ...] = ()
    """The topic's own rules; none where its values' policy is OFF."""


def topic_rules(topic: Mapping[str, str], cluster: Mapping[str, str]) -> TopicRules:
    """The rules that a topic's own configs and the cluster's state."""
    if not topic and not cluster:
        return _DEFAULT_RULES
    return _rules(topic, cluster)


def _rules(topic: Mapping[str, str], cluster: Mapping[str, str]) -> TopicRules:
    own, rules = _own_rules(record_rules_in_force(topic, cluster)), rules_in_force(topic, cluster)
    by_role = dict(zip(("key", "value"), rules, strict=True))
    if own:
        by_role[RECORD] = by_role["value"]
    return TopicRules(
        message_bytes_max=effective_int("max.message.bytes", topic, cluster),
        append_time=effective("message.timestamp.type", topic, cluster) == "LogAppendTime",
        timestamp_before_ms_max=effective_int("message.timestamp.before.max.ms", topic, cluster),
        timestamp_after_ms_max=effective_int("message.timestamp.after.max.ms", topic, cluster),
        keys_required=compacts(topic, cluster),
        check=effective("floe.produce.check", topic, cluster),
        policies={role: policy for role, policy in by_role.items() if policy != OFF},
        own=own,
    )


_own_rules = lru_cache(maxsize=1_024)(record_rules.parse)


_DEFAULT_RULES = _rules({}, {})


def admit(
    records: memoryview | None, rules: TopicRules, version: int, now_ms: int, *, transactional: bool = False
) -> BatchHeader:
    """The header of the one batch in `records`, checked; raises Rejected.

    `version` is the Produce request's; `now_ms` the wall clock for the timestamp bounds; `transactional`
    whether the request names a transactional id.
    """
    header = _one_batch(records)
    assert records is not None
    if header.attributes & CODEC_MASK == Compression.ZSTD and version < ZSTD_PRODUCE_VERSION_MIN:
        raise Rejected(
            Code.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} cannot carry zstd: version 7 or newer can.",
        )
    if header.base_offset != 0:
        raise Rejected(
            Code.INVALID_RECORD, f"The base offset of a produced batch must be 0, not {header.base_offset}."
        )
    if len(records) > rules.message_bytes_max:
        raise Rejected(
            Code.MESSAGE_TOO_LARGE,
            f"The batch has {len(records)} bytes; the topic's max.message.bytes allows "
            f"{rules.message_bytes_max}.",
        )
    if not check_crc(records, 0, len(records)):
        raise Rejected(Code.CORRUPT_MESSAGE, f"The batch does not match its CRC32C {header.crc:#010x}.")
    _check_header(header, transactional)
    if not rules.append_time:
        _check_timestamps(header, rules, now_ms)
    return header


def _one_batch(records: memoryview | None) -> BatchHeader:
    """The header, when `records` is exactly one whole batch of magic 2."""
    if not records:
        raise Rejected(Code.INVALID_RECORD, "A partition of a Produce request must carry one record batch.")
    if len(records) > 16 and records[16] != 2:
        raise Rejected(
            Code.INVALID_RECORD,
            f"Produce version 3 and newer carry batches of magic 2 only, not {records[16]}.",
        )
    if len(records) < HEADER_BYTES:
        raise Rejected(
            Code.CORRUPT_MESSAGE, f"{len(records)} bytes are less than a record batch's {HEADER_BYTES}."
        )
    try:
        header = peek(records)
    except CorruptBatch as error:
        raise Rejected(Code.CORRUPT_MESSAGE, str(error)) from None
    size = header.size
    if size < len(records):
        raise Rejected(
            Code.INVALID_RECORD,
            f"A partition of a Produce request carries one record batch; {len(records) - size} bytes "
            "follow the first.",
        )
    if size > len(records):
        raise Rejected(
            Code.CORRUPT_MESSAGE, f"The batch says it has {size} bytes but {len(records)} were sent."
        )
    return header


def _check_header(header: BatchHeader, transactional: bool) -> None:
    """Bits and counts that a client's batch must have (LogValidator.validateBatch)."""
    if header.control:
        raise Rejected(Code.INVALID_RECORD, "Clients may not write control records.")
    if header.transactional and not transactional:
        raise Rejected(
            Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "The batch is part of a transaction: the request must name its transactional id.",
        )
    if header.transactional and header.producer_id < 0:
        raise Rejected(Code.INVALID_RECORD, "The batch is part of a transaction but names no producer.")
    codec = header.attributes & CODEC_MASK
    if codec > Compression.ZSTD:
        raise Rejected(Code.UNSUPPORTED_COMPRESSION_TYPE, f"Compression codec {codec} is not known.")
    offsets = header.last_offset_delta + 1
    if offsets != header.record_count or not 0 < offsets <= OFFSETS_PER_BATCH_MAX:
        raise Rejected(
            Code.INVALID_RECORD,
            f"The batch's offsets (0 to {header.last_offset_delta}) disagree with its count of records "
            f"({header.record_count}; 1 to {OFFSETS_PER_BATCH_MAX} are allowed).",
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Rejected(
            Code.INVALID_RECORD,
            f"Producer {header.producer_id} sent base sequence {header.base_sequence} and epoch "
            f"{header.producer_epoch}; neither may be negative.",
        )


def _check_timestamps(header: BatchHeader, rules: TopicRules, now_ms: int) -> None:
    """The create times lie within the topic's bounds around now (KIP-937)."""
    if header.max_timestamp - now_ms > rules.timestamp_after_ms_max:
        raise Rejected(
            Code.INVALID_TIMESTAMP,
            f"Timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms="
            f"{rules.timestamp_after_ms_max} after the agent's clock {now_ms}.",
        )
    if now_ms - header.base_timestamp > rules.timestamp_before_ms_max and header.base_timestamp >= 0:
        raise Rejected(
            Code.INVALID_TIMESTAMP,
            f"Timestamp {header.base_timestamp} is more than message.timestamp.before.max.ms="
            f"{rules.timestamp_before_ms_max} before the agent's clock {now_ms}.",
        )
