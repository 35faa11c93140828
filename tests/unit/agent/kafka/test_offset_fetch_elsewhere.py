"""OffsetFetch at an agent that does not coordinate the group: the truth, and never an empty answer for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.kafka.context import Context
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from coordination.kafka_codes import Code
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent, two_agents


def _elsewhere(agent: Agent) -> str | None:
    """A group that is another agent's, as this one knows them."""
    names = (f"group-{number}" for number in range(1000))
    return next((name for name in names if not agent.services.groups.is_coordinator(name)), None)


@pytest.fixture
async def elsewhere() -> AsyncIterator[tuple[Agent, str]]:
    """An agent, and a group of another one's, with position 7 in partition 0 of the topic `t`."""
    async with two_agents() as (first, second):
        async with asyncio.timeout(60):
            while (group := _elsewhere(first)) is None:  # noqa: ASYNC110 - until it has heard of the other
                await asyncio.sleep(0.05)
            while not second.services.groups.is_coordinator(group):  # noqa: ASYNC110 - until it knows the group too
                await asyncio.sleep(0.05)
        await create(second)
        partition = oc.OffsetCommitRequestPartition(0, 7)
        commit = oc.OffsetCommitRequest(
            group, topics=[oc.OffsetCommitRequestTopic(name="t", partitions=[partition])]
        )
        done = await second.call("OffsetCommit", commit, 8)
        assert done.topics[0].partitions[0].error_code == 0
        yield first, group


async def ask(agent: Agent, group: str, version: int) -> tuple[int, list[Any]]:
    """The error of the group, and the answer for each partition."""
    asked = OffsetFetchRequest(group, [OffsetFetchRequestTopic("t", [0, 1])])
    if version >= 8:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)])
    answer = await agent.call("OffsetFetch", asked, version)
    told = answer.groups[0] if version >= 8 else answer
    rows = [(row.error_code, row.committed_offset) for each in told.topics for row in each.partitions]
    return told.error_code, rows


@pytest.mark.parametrize("version", [1, 2, 3, 7, 8, 9])
async def test_every_agent_tells_what_a_group_has_committed(
    elsewhere: tuple[Agent, str], version: int
) -> None:
    """librdkafka tells applications of NOT_COORDINATOR here, as groups would be told when agents restart."""
    agent, group = elsewhere
    assert await ask(agent, group, version) == (0, [(0, 7), (0, -1)])


@pytest.mark.parametrize("version", [1, 2, 3, 7, 8])
async def test_without_the_log_every_partition_says_so(
    elsewhere: tuple[Agent, str], version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 1 of the simulation: aiokafka (version 3) looks at partitions only, and began at offset 0 anew."""

    async def unanswered(_: Context) -> bool:
        return False

    monkeypatch.setattr(Context, "barrier", unanswered)
    code, rows = await ask(*elsewhere, version)
    told = Code.COORDINATOR_NOT_AVAILABLE if version < 2 else Code.NOT_COORDINATOR
    assert rows == ([] if version >= 8 else [(told, -1)] * 2)
    assert version < 2 or code == Code.COORDINATOR_NOT_AVAILABLE
