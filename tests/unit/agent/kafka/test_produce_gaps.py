"""Batches behind a gap: who is told of it, and when, while what is missing may come through another agent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.config import ProduceConfig
from agent.kafka.produce.gaps import Gaps
from coordination.kafka_codes import Code
from coordination.state.chunk_table import ChunkTable
from coordination.state.slices import SliceIndex
from coordination.state.types import Partition, ProducerEntry, Topic
from objectstore.batch import BatchHeader, NewRecord, build, peek
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch, two_agents

PRODUCER = 7


def partition(last: int | None, epoch: int = 0, handle: int = 0) -> Partition:
    """One that has the producer's batches up to the sequence `last`; None: it does not know it."""
    found = Partition(handle, Topic("t", bytes(16), {}, 0), 0, SliceIndex(ChunkTable()))
    if last is not None:
        entry = found.producers[PRODUCER] = ProducerEntry(epoch, 0)
        entry.last_sequence = last
    return found


def header(sequence: int, epoch: int = 0) -> BatchHeader:
    raw = build(
        [NewRecord(1, None, b"v")], producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence
    )
    return peek(raw)


def test_a_gap_is_told_once_what_is_missing_has_had_its_time() -> None:
    gaps = Gaps(ProduceConfig(first_batch_ms_max=2_000))
    here = partition(last=4)
    assert gaps.waits(here, header(6), 10.0, others=True)
    assert gaps.waits(here, header(9), 12.0, others=True)
    assert not gaps.waits(here, header(6), 12.1, others=True), "its producer left one out for good"
    assert gaps.waits(partition(last=4, handle=1), header(6), 12.1, others=True), "in another partition"
    gaps.stored(here, header(5))
    assert gaps.waits(here, header(7), 13.0, others=True), "that gap was filled, this is another"


def test_where_nobody_else_could_store_what_is_missing_a_gap_is_told_at_once() -> None:
    assert not Gaps(ProduceConfig()).waits(partition(last=4), header(6), 0.0, others=False)


@pytest.mark.parametrize("others", [True, False])
def test_what_is_next_by_now_is_sent_again(others: bool) -> None:
    gaps = Gaps(ProduceConfig(first_batch_ms_max=0))
    assert gaps.waits(partition(last=4), header(5), 0.0, others=others)
    assert gaps.waits(partition(last=(1 << 31) - 1), header(0), 1.0, others=others), "numbers wrap around"
    assert gaps.waits(partition(last=None), header(5), 1.0, others=others), "it was forgotten meanwhile"


def test_a_new_epoch_may_have_its_first_batch_under_way_elsewhere() -> None:
    assert Gaps(ProduceConfig()).waits(partition(last=4), header(2, epoch=1), 0.0, others=True)


def test_what_is_wrong_in_another_way_is_told_at_once() -> None:
    gaps = Gaps(ProduceConfig())
    assert not gaps.waits(partition(last=4), header(3), 0.0, others=True), "neither new nor known again"
    assert not gaps.waits(partition(last=4, epoch=2), header(6, epoch=1), 0.0, others=True)


def test_as_many_are_remembered_as_the_config_says() -> None:
    gaps = Gaps(ProduceConfig(first_batches_max=2, first_batch_ms_max=1_000))
    for handle in range(3):
        gaps.waits(partition(last=4, handle=handle), header(6), 0.0, others=True)
    late = [gaps.waits(partition(last=4, handle=handle), header(6), 5.0, others=True) for handle in (2, 1, 0)]
    assert late == [False, False, True], "the oldest is forgotten first"


async def send(agent: Agent, sequence: int) -> Any:
    raw = batch(b"v", producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    return (await produce(agent, raw)).error_code


async def test_a_batch_that_overtakes_what_another_agent_still_stores_is_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka takes its next epoch upon a gap, and sends all again: it was there twice."""
    async with two_agents() as (one, other):
        await create(one)
        assert await send(one, 0) == 0
        may, put = asyncio.Event(), one.services.produce._put_chunk

        async def held(*given: Any) -> None:
            await may.wait()
            await put(*given)

        monkeypatch.setattr(one.services.produce, "_put_chunk", held)
        await other.services.replica.barrier()
        under_way = asyncio.create_task(send(one, 1))
        assert await send(other, 2) == Code.NOT_ENOUGH_REPLICAS, "not OUT_OF_ORDER_SEQUENCE_NUMBER"
        may.set()
        assert await under_way == 0
        assert await send(other, 2) == 0


async def test_of_one_agent_alone_a_gap_is_told_at_once(agent: Agent) -> None:
    await create(agent)
    assert [await send(agent, sequence) for sequence in (0, 2)] == [0, Code.OUT_OF_ORDER_SEQUENCE_NUMBER]
