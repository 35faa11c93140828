"""Batches that failed and come again: how many are remembered, how long, and what waits for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.config import ProduceConfig
from agent.kafka.produce.firsts import First, Firsts, Named
from coordination.kafka_codes import Code
from coordination.state.chunk_table import ChunkTable
from coordination.state.slices import SliceIndex
from coordination.state.types import Partition, ProducerEntry, Topic
from objectstore.batch import BatchHeader, NewRecord, build, peek
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until

BEFORE, AFTER = (0, 0), (1, 0)  # what had failed when a first batch came, and since


HERE: Named = "t", 0


def header(producer: int, sequence: int) -> BatchHeader:
    raw = build([NewRecord(1, None, b"v")], producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return peek(raw)


class Connection:
    """One connection's beginnings, and a partition that knows nobody."""

    def __init__(self, config: ProduceConfig) -> None:
        self.partition = Partition(0, Topic("t", bytes(16), {}, 0), 0, SliceIndex(ChunkTable()))
        self.firsts = Firsts(config)

    def begins(self, producer: int, now_s: float = 0.0) -> None:
        """Its first batch, with sequence 0, comes and fails."""
        self.firsts.note([First(HERE, self.partition, header(producer, 0))], BEFORE, now_s)

    def knows(self, producer: int, last: int) -> None:
        """The partition has its batches up to the sequence `last`."""
        entry = ProducerEntry(0, 0)
        entry.last_sequence = last
        self.partition.producers[producer] = entry

    def takes(
        self, producer: int, sequence: int, now_s: float = 0.0, failures: tuple[int, int] = AFTER
    ) -> bool:
        return self.firsts.in_order(
            [First(HERE, self.partition, header(producer, sequence))], failures, now_s
        )


def test_nothing_is_taken_in_front_of_a_first_batch_that_failed() -> None:
    one = Connection(ProduceConfig())
    one.begins(7)
    assert not one.takes(7, 1)
    assert one.takes(7, 0), "it came again"
    assert one.takes(8, 5), "of another producer nothing is known"


def test_a_first_batch_is_waited_for_as_long_as_the_config_says() -> None:
    one = Connection(ProduceConfig(first_batch_ms_max=2_000))
    one.begins(7)
    assert not one.takes(7, 1, now_s=2.0)
    assert one.takes(7, 1, now_s=2.1)


def test_as_many_are_remembered_as_the_config_says() -> None:
    one = Connection(ProduceConfig(first_batches_max=2))
    for producer in (7, 8, 9):
        one.begins(producer)
    assert [one.takes(producer, 1) for producer in (7, 8, 9)] == [True, False, False]


def test_what_is_behind_a_refused_first_batch_waits_until_it_is_taken() -> None:
    one = Connection(ProduceConfig())
    one.firsts.refuse(HERE, header(7, 0), 0.0)  # its topic is not known yet: there is no partition to ask
    one.firsts.refuse(HERE, header(7, 1), 0.0)
    assert not one.takes(7, 2, failures=BEFORE), "though nothing has failed since"
    assert one.takes(7, 0, failures=BEFORE)
    one.firsts.note([First(HERE, one.partition, header(7, 0))], BEFORE, 0.0)
    assert one.takes(7, 1, failures=BEFORE), "it follows on what was taken"
    assert one.takes(8, 5, failures=BEFORE)
    one.firsts.refuse(HERE, header(-1, -1), 0.0)
    assert one.takes(-1, -1), "without a producer there is no order to keep"


def test_a_refused_first_batch_is_waited_for_as_long_as_the_config_says() -> None:
    one = Connection(ProduceConfig(first_batch_ms_max=2_000))
    one.firsts.refuse(HERE, header(7, 0), 0.0)
    assert not one.takes(7, 1, 2.0, BEFORE)
    assert one.takes(7, 1, 2.1, BEFORE)


def test_what_is_behind_a_refused_batch_of_a_producer_that_is_known_waits_for_it() -> None:
    """Told of a gap, librdkafka numbers anew what another agent may still store."""
    one = Connection(ProduceConfig(first_batch_ms_max=2_000))
    one.knows(7, last=4)
    assert one.takes(7, 9), "the log tells of the gap: nothing was refused here"
    one.firsts.refuse(HERE, header(7, 5), 0.0)
    one.firsts.refuse(HERE, header(7, 6), 0.0)
    assert not one.takes(7, 6, 2.0)
    assert one.takes(7, 6, 2.1), "its client left the refused one out for good"
    assert one.takes(7, 5), "it came again"
    one.firsts.note([First(HERE, one.partition, header(7, 5))], AFTER, 0.0)
    assert one.takes(7, 6), "what was behind it follows at once, before that one is applied"


def test_what_was_refused_and_came_by_another_way_is_waited_for_no_longer() -> None:
    one = Connection(ProduceConfig())
    one.knows(7, last=4)
    one.firsts.refuse(HERE, header(7, 5), 0.0)
    one.knows(7, last=8)
    assert not one.takes(7, 10)
    assert one.takes(7, 9), "the partition expects it"
    assert one.takes(7, 10)


def test_another_topic_of_that_name_begins_anew() -> None:
    one = Connection(ProduceConfig())
    one.begins(7)
    one.partition = Partition(1, Topic("t", bytes(16), {}, 0), 0, SliceIndex(ChunkTable()))
    assert one.takes(7, 1)


async def test_a_topic_that_comes_while_its_records_are_on_their_way(agent: Agent) -> None:
    """What the seed 1342 found: an agent that did not know the topic yet refused two, and took the third."""

    async def send(sequence: int) -> Any:
        raw = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return (await produce(agent, raw)).error_code

    assert await send(0) == Code.UNKNOWN_TOPIC_OR_PARTITION
    await create(agent)
    assert await send(1) == Code.NOT_ENOUGH_REPLICAS
    assert [await send(sequence) for sequence in (0, 1, 2)] == [0, 0, 0]


async def test_a_first_batch_that_was_damaged_on_its_way_is_waited_for(agent: Agent) -> None:
    await create(agent)
    first, second = (
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    damaged = first[:-1] + bytes([first[-1] ^ 1])
    sent = [(await produce(agent, raw)).error_code for raw in (damaged, second, first, second)]
    assert sent == [Code.CORRUPT_MESSAGE, Code.NOT_ENOUGH_REPLICAS, 0, 0]


async def test_what_is_behind_a_batch_that_was_not_stored_is_sent_again_and_no_gap(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is away for the second one and back for the third: Kafka's leader would not be."""
    await create(agent)

    async def send(sequence: int) -> Any:
        raw = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return (await produce(agent, raw)).error_code

    assert await send(0) == 0
    monkeypatch.setattr(agent.services.standing, "away", lambda: True)
    assert await send(1) == Code.NOT_LEADER_OR_FOLLOWER
    monkeypatch.undo()
    assert await send(2) == Code.NOT_ENOUGH_REPLICAS, "not OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert [await send(sequence) for sequence in (1, 2)] == [0, 0]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_ends_by_an_exception_has_failed_for_those_behind_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    """The first is let in, waits for room and ends by a defect, or is cancelled; the other is behind it."""
    await create(agent)
    sent, fails = asyncio.Event(), asyncio.Event()

    async def room(size: int) -> None:
        sent.set()
        await fails.wait()
        raise ValueError("a defect")

    monkeypatch.setattr(agent.services.produce, "room", room)
    monkeypatch.setattr(agent.services.produce.budget, "taken", lambda size: False)
    first, second = (
        batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence) for sequence in (0, 1)
    )
    failing = asyncio.ensure_future(produce(agent, first))
    await sent.wait()
    behind = asyncio.ensure_future(produce(agent, second))
    await until(lambda: bool(agent.client.gate._waiters))
    monkeypatch.undo()
    failing.cancel() if cancelled else fails.set()
    assert (await behind).error_code == Code.NOT_ENOUGH_REPLICAS
    await asyncio.wait([failing])
    assert failing.cancelled() if cancelled else isinstance(failing.exception(), ValueError)
    assert [(await produce(agent, raw)).base_offset for raw in (first, second)] == [0, 1]
