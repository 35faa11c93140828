"""What another agent has changed is seen; without the log, what this one knows, where that does no harm."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.kafka.context import Context
from agent.kafka.handlers import k03_metadata
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import metadata as m
from agent.net.wire.generated import offset_for_leader_epoch as oe
from coordination.kafka_codes import Code
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent, two_agents


async def partitions(agent: Agent) -> int:
    """How many the agent says the topic has."""
    answer = await agent.call("Metadata", m.MetadataRequest([m.MetadataRequestTopic(name="t")]), 12)
    return len(answer.topics[0].partitions)


@pytest.fixture
async def two() -> AsyncIterator[tuple[Agent, Agent]]:
    """Two agents of one cluster that know the topic `t`."""
    async with two_agents() as (first, second):
        await create(first)
        await partitions(second)
        yield first, second


async def test_partitions_added_through_another_agent_are_told(two: tuple[Agent, Agent]) -> None:
    first, second = two
    known = await partitions(second)
    more = cp.CreatePartitionsRequest([cp.CreatePartitionsTopic("t", known + 1, None)], 10_000)
    async with second.services.replica.applying:  # it is slow to hear of it
        assert (await first.call("CreatePartitions", more, 3)).results[0].error_code == 0
        asked = asyncio.create_task(partitions(second))
        await asyncio.sleep(0)
    assert await asked == known + 1


async def test_without_the_log_known_topics_are_told_all_the_same(
    two: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that look for another agent ask this one where the others are."""
    _, second = two
    known, waited = await partitions(second), []

    async def away(_: Context, seconds: float = 60.0) -> bool:
        waited.append(seconds)
        return False

    monkeypatch.setattr(Context, "barrier", away)
    assert await partitions(second) == known
    assert waited == [k03_metadata.KNOWN_S_MAX]


async def test_without_the_log_no_epoch_ends_where_the_log_was(
    two: tuple[Agent, Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that is further would take it for a truncation, and begin anew or read again."""
    _, second = two
    part = oe.OffsetForLeaderPartition(0, -1, 0)
    request = oe.OffsetForLeaderEpochRequest(topics=[oe.OffsetForLeaderTopic("t", [part])])

    async def end() -> tuple[int, int]:
        answer = (await second.call("OffsetForLeaderEpoch", request, 4)).topics[0].partitions[0]
        return answer.error_code, answer.end_offset

    async def away(*_: object) -> bool:
        return False

    assert await end() == (Code.NONE, 0)
    monkeypatch.setattr(Context, "barrier", away)
    assert await end() == (Code.LEADER_NOT_AVAILABLE, -1)
