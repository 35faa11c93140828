"""A Fetch waits for no more than its answer can hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest

from agent.kafka.fetch.waiters import Waiters
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import produce as p
from tests.unit.agent.rig import Agent, batch

TOPIC = "backlog"
PARTITIONS = 2
SLICES = 8
BATCH = batch(b"x" * 10_000)
SIZE = len(BATCH)
WAIT_MS = 1_000


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that a poll waits."""
    counted: list[int] = []
    watch = Waiters.watch

    @contextmanager
    def counting(self: Waiters, handles: Iterable[int]) -> Iterator[asyncio.Event]:
        counted.append(len(counted))
        with watch(self, handles) as event:
            yield event

    monkeypatch.setattr(Waiters, "watch", counting)
    return counted


@pytest.fixture
async def backlog(agent: Agent) -> Agent:
    """Partition 0 has records in several slices, of one batch each; partition 1 has none."""
    made = ct.CreateTopicsRequest([ct.CreatableTopic(TOPIC, PARTITIONS, 1)], 10_000)
    assert (await agent.call("CreateTopics", made, 7)).topics[0].error_code == 0
    for _ in range(SLICES):
        data = p.TopicProduceData(TOPIC, partition_data=[p.PartitionProduceData(0, memoryview(BATCH))])
        answer = await agent.call("Produce", p.ProduceRequest(None, -1, 10_000, [data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    return agent


async def fetch(agent: Agent, *limits: int, bytes_min: int, bytes_max: int, offset: int = 0) -> list[int]:
    """Bytes of each partition's records; `limits` are the partitions' own."""
    parts = [
        f.FetchPartition(index, fetch_offset=0 if index else offset, partition_max_bytes=limit)
        for index, limit in enumerate(limits)
    ]
    asked = f.FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=bytes_min,
        max_bytes=bytes_max,
        topics=[f.FetchTopic(topic=TOPIC, partitions=parts)],
    )
    answer = await agent.call("Fetch", asked, 12)
    return [len(part.records or b"") for part in answer.responses[0].partitions]


@pytest.mark.parametrize(
    ("bytes_min", "limits", "bytes_max", "slices"),
    [
        pytest.param(3 * SIZE - 1, (3 * SIZE - 1,), 99 * SIZE, 2, id="the minimum is the partition's limit"),
        pytest.param(6 * SIZE, (9 * SIZE,), 3 * SIZE - 1, 2, id="the answer's limit is below the minimum"),
        pytest.param(6 * SIZE, (3 * SIZE - 1,), 99 * SIZE, 2, id="the partition's limit is below it"),
        pytest.param(6 * SIZE, (6 * SIZE, SIZE), 3 * SIZE - 1, 2, id="another partition is empty"),
        pytest.param(99 * SIZE, (SIZE // 2,), 99 * SIZE, 1, id="the first batch is larger than its limit"),
    ],
)
async def test_what_is_full_is_answered_at_once(
    backlog: Agent, waits: list[int], bytes_min: int, limits: tuple[int, ...], bytes_max: int, slices: int
) -> None:
    """With a backlog each such answer took the whole of max_wait_ms, and a consumer got 2 MB/s."""
    found = await fetch(backlog, *limits, bytes_min=bytes_min, bytes_max=bytes_max)
    assert (found[0], waits) == (slices * SIZE, [])


async def test_the_agents_own_limit_of_an_answer_counts_too(backlog: Agent, waits: list[int]) -> None:
    backlog.services.fetch._limits.response_bytes_max = 3 * SIZE - 1
    found = await fetch(backlog, 99 * SIZE, SIZE, bytes_min=6 * SIZE, bytes_max=99 * SIZE)
    assert (found, waits) == ([2 * SIZE, 0], [])


async def test_while_more_would_fit_the_minimum_is_waited_for(backlog: Agent, waits: list[int]) -> None:
    """The other partition has room for what may come."""
    found = await fetch(backlog, SIZE, SIZE, bytes_min=2 * SIZE, bytes_max=99 * SIZE)
    assert (found, len(waits)) == ([SIZE, 0], 1)
    found = await fetch(backlog, 9 * SIZE, bytes_min=2 * SIZE, bytes_max=99 * SIZE, offset=SLICES - 1)
    assert (found, len(waits)) == ([SIZE], 2)
