"""Batches that no sound client sends, as raw frames over TCP: each a clear error, nothing stored."""

from __future__ import annotations

import itertools
import time

import pytest

from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import produce as p
from coordination.kafka_codes import Code
from objectstore.batch import HEADER_BYTES, NewRecord, build, peek, seal
from tests.bench.load import Wire, create_topic
from tests.compat.conftest import Embedded

NOW = int(time.time() * 1000)  # retention lets it be
_numbers = itertools.count(1)


def sound() -> bytes:
    return build([NewRecord(NOW, b"k", b"v")])


def with_header(**changes: int) -> bytes:
    """The sound batch with another header and a right CRC."""
    return seal(peek(sound())._replace(**changes), sound()[HEADER_BYTES:])


def flipped(position: int) -> bytes:
    """The sound batch with one bit changed."""
    raw = bytearray(sound())
    raw[position] ^= 1
    return bytes(raw)


BAD = {
    "wrong CRC": (flipped(-1), Code.CORRUPT_MESSAGE),
    "wrong magic": (flipped(16), Code.INVALID_RECORD),
    "base offset": (flipped(7), Code.INVALID_RECORD),
    "empty": (b"", Code.INVALID_RECORD),
    "garbage": (b"\x55" * 100, Code.INVALID_RECORD),
    "two batches": (sound() * 2, Code.INVALID_RECORD),
    "control batch": (with_header(attributes=0x20), Code.INVALID_RECORD),
    "unknown codec": (with_header(attributes=7), Code.UNSUPPORTED_COMPRESSION_TYPE),
    "count": (with_header(record_count=9), Code.INVALID_RECORD),
    "records that are none": (seal(peek(sound()), b"\x55" * 40), Code.INVALID_RECORD),
    "no sequence": (with_header(producer_id=7, producer_epoch=0), Code.INVALID_RECORD),
    "future": (with_header(max_timestamp=2**60), Code.INVALID_TIMESTAMP),
}


async def send(wire: Wire, topic: str, raw: bytes) -> p.PartitionProduceResponse:
    data = p.TopicProduceData(topic, partition_data=[p.PartitionProduceData(0, memoryview(raw))])
    answer = await wire.call("Produce", p.ProduceRequest(acks=-1, timeout_ms=9_000, topic_data=[data]), 9)
    found: p.PartitionProduceResponse = answer.responses[0].partition_responses[0]
    return found


async def high_watermark(wire: Wire, topic: str) -> int:
    part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(topic, [part])])
    offset: int = (await wire.call("ListOffsets", request, 9)).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_batch_is_refused_and_the_connection_lives_on(embedded: Embedded, name: str) -> None:
    topic = f"bad-{next(_numbers)}"
    await create_topic(embedded.bootstrap, topic, 1)
    wire = await Wire.open(embedded.bootstrap)
    raw, code = BAD[name]
    answer = await send(wire, topic, raw)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.error_message
    assert await high_watermark(wire, topic) == 0
    assert (await send(wire, topic, sound())).base_offset == 0
    await wire.close()


async def test_a_sequence_gap_is_out_of_order(embedded: Embedded) -> None:
    topic = f"bad-{next(_numbers)}"
    await create_topic(embedded.bootstrap, topic, 1)
    wire = await Wire.open(embedded.bootstrap)

    def batch(sequence: int, epoch: int = 3) -> bytes:
        return with_header(producer_id=77, producer_epoch=epoch, base_sequence=sequence)

    assert (await send(wire, topic, batch(0))).base_offset == 0
    gap = await send(wire, topic, batch(5))
    assert (gap.error_code, gap.base_offset) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    old = await send(wire, topic, batch(1, epoch=2))
    assert (old.error_code, old.base_offset) == (Code.INVALID_PRODUCER_EPOCH, -1)
    assert (await send(wire, topic, batch(0))).base_offset == 0, "a retry of the first is recognised"
    assert (await send(wire, topic, batch(1))).base_offset == 1
    await wire.close()
