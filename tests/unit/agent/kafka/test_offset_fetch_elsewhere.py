"""OffsetFetch at an agent that does not coordinate the group: never to be taken for "no position"."""

from __future__ import annotations

import asyncio

import pytest

from agent.net.wire.generated.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from coordination.kafka_codes import Code
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from tests.unit.agent.rig import Agent, start_agent


def _elsewhere(agent: Agent) -> str | None:
    """A group that is another agent's, as this one knows them."""
    names = (f"group-{number}" for number in range(1000))
    return next((name for name in names if not agent.services.groups.is_coordinator(name)), None)


@pytest.mark.parametrize("version", [1, 2, 3, 7])
async def test_every_partition_says_that_the_group_is_elsewhere(version: int) -> None:
    """Seed 1 of the simulation: aiokafka (version 3) looks at partitions only, and began at offset 0 anew."""
    server, store = MemoryServer(), MemoryStore()
    first = await start_agent(server, store, "a", 1)
    second = await start_agent(server, store, "b", 2)
    try:
        async with asyncio.timeout(60):
            while (group := _elsewhere(first)) is None:  # noqa: ASYNC110 - until it has heard of the other
                await asyncio.sleep(0.05)
        asked = OffsetFetchRequest(group, [OffsetFetchRequestTopic("t", [0, 1])])
        answer = await first.call("OffsetFetch", asked, version)
    finally:
        await second.stop()
        await first.stop()
    rows = [(row.error_code, row.committed_offset) for row in answer.topics[0].partitions]
    assert rows == [(Code.NOT_COORDINATOR, -1)] * 2
    assert version < 2 or answer.error_code == Code.NOT_COORDINATOR
