"""Decompression bombs behind a login: a few kilobytes that want to be gigabytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator

import cramjam
import pytest

from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done
from objectstore.batch import DECODED_BYTES_MAX, HEADER_BYTES, NewRecord, build, peek, seal
from objectstore.compression import Compression
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import SASL, serving
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.schema import samples

PACKERS = {Compression.GZIP: cramjam.gzip, Compression.ZSTD: cramjam.zstd}


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def bomb(codec: Compression, times: int) -> bytes:
    """A batch of one record whose bytes, decoded, are so many times what may be decoded."""
    plain = memoryview(build([NewRecord(1, b"k", b"v")]))[HEADER_BYTES:]
    zeros = bytes(DECODED_BYTES_MAX * times)
    packed = bytes(PACKERS[codec].compress(bytes(plain) + zeros, level=9))
    del zeros
    head = peek(memoryview(build([NewRecord(1, b"k", b"v")])))
    return bytes(seal(head._replace(attributes=codec), packed))


@pytest.mark.parametrize("codec", PACKERS, ids=lambda codec: codec.name)
async def test_decompression_bomb_behind_a_login(start: StartAgent, traced: None, codec: Compression) -> None:
    """A topic whose records are looked into refuses it, within what one batch may take; others go on."""
    agent = await start("a", **SASL)
    await create(agent)
    bound = BindSchema(
        topic="t", descriptor_set=samples.descriptor_set(samples.FLIGHTS), message="nyc.Flight"
    )
    assert isinstance(await agent.services.replica.propose(bound), Done)
    raw_batch = bomb(codec, 2)
    assert len(raw_batch) < 1 << 20
    data = TopicProduceData("t", partition_data=[PartitionProduceData(0, memoryview(raw_batch))])
    async with serving(agent) as (_, connect):
        raw = await connect()
        await raw.ask("plain")
        await raw.ask("good")
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        answer = await raw.ask(("Produce", 9, ProduceRequest(None, -1, 10_000, [data])))
        peak = tracemalloc.get_traced_memory()[1] - before
        row = answer.responses[0].partition_responses[0]
        assert row.error_code in (Code.CORRUPT_MESSAGE, Code.INVALID_RECORD)
        assert str(DECODED_BYTES_MAX) in row.error_message
        assert peak < 3 * DECODED_BYTES_MAX
        assert await raw.ask("metadata") is not None
