"""The retention job over real agents: log starts move by command, and deleted bytes are given back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.background.collection import make_collector
from agent.background.retention.job import LogRetention
from agent.net.wire.generated import delete_topics as dt
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, Claim, MoveLogStart, PurgeTopics
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.merged import MergedRanges
from tests.unit.agent.background.merging_rig import merge_rows
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import TOPIC, alter, create, topic
from tests.unit.agent.kafka.test_handlers_retention import send
from tests.unit.agent.rig import Agent

SET = 0
NOW = 1_700_000_000_000


class At(ManualClock):
    """A clock that stands at a time, Unix ms."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._at_ms = now_ms

    def now_ms(self) -> int:
        return self._at_ms


async def pass_at(agent: Agent, store: MemoryStore, now_ms: int, metrics: Metrics | None = None) -> None:
    """One pass of the job, at this time, by this agent."""
    replica = agent.services.replica
    result = await replica.propose(Claim(name=LogRetention.claim))
    assert isinstance(result, Done)
    job = LogRetention(replica, MergedRanges(store), At(now_ms), metrics or Metrics())
    held = job.held()
    assert held is not None
    await job.step(held)


async def fill(agent: Agent, name: str, *times: int) -> None:
    """One batch of one record and 1 kB per time, each a piece of its own."""
    for at in times:
        assert (await send(agent, name, build([NewRecord(at, b"k", b"v" * 1000)]))).error_code == 0


def starts(agent: Agent, name: str) -> list[int]:
    """The log starts of a topic's partitions."""
    return [partition.log_start for partition in agent.services.replica.state.topics[name].partitions]


@pytest.mark.parametrize(
    ("configs", "left"),
    [
        ({"retention_ms": "50"}, 2),
        ({"retention_ms": "-1"}, 0),
        ({"retention_bytes": "2200"}, 1),
        ({"retention_ms": "-1", "retention_bytes": "0"}, 4),
        ({"retention_ms": "50", "cleanup_policy": "compact,delete"}, 2),
        ({"retention_ms": "50", "cleanup_policy": "compact"}, 0),
        ({"retention_ms": "50", "retention_bytes": "0", "cleanup_policy": ""}, 0),
    ],
)
async def test_the_log_start_moves_by_age_and_size(
    agent: Agent, memory_store: MemoryStore, configs: dict[str, Any], left: int
) -> None:
    await create(agent, topic("t", 1, **configs))
    await fill(agent, "t", NOW - 100, NOW - 60, NOW - 50, NOW)
    await pass_at(agent, memory_store, NOW)
    assert starts(agent, "t") == [left]
    await pass_at(agent, memory_store, NOW)
    assert starts(agent, "t") == [left]


@pytest.mark.parametrize("merged", [False, True])
async def test_what_is_held_neither_counts_nor_stands_in_the_way(
    agent: Agent, memory_store: MemoryStore, merged: bool
) -> None:
    """By size only what can be read counts; a younger record that was deleted keeps no older one."""
    more = {"retention_bytes": "2200", "retention_ms": "50", "floe_records_grace_ms": "3600000"}
    await create(agent, topic("t", 1, **more))
    await fill(agent, "t", NOW, NOW, NOW - 100, NOW, NOW)
    partition = agent.services.replica.state.topics["t"].partitions[0]
    await agent.services.replica.propose(MoveLogStart(partition=[partition.handle], offset=[2]))
    if merged:
        await merge_rows(agent, memory_store, 2)
        assert partition.merged is not None
    assert partition.held_start == 0
    for _ in range(2):
        await pass_at(agent, memory_store, NOW)
        assert (starts(agent, "t"), partition.held_start) == ([3], 0)


async def test_what_an_altered_config_says_counts_at_the_next_pass(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    a, b = await start("a"), await start("b")
    await create(a, topic("t", 2))
    await fill(a, "t", NOW - 100, NOW)
    await pass_at(b, memory_store, NOW)
    assert starts(b, "t") == [0, 0]
    await alter(a, TOPIC, "t", ("retention.ms", SET, "50"))
    metrics = Metrics()
    await pass_at(b, memory_store, NOW, metrics)
    assert starts(b, "t") == [1, 0]
    assert metrics.registry.get_sample_value("floe_log_starts_moved_total") == 1


async def test_a_pass_comes_only_when_its_interval_is_over(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, topic("t", 1, retention_ms="50"))
    replica = agent.services.replica
    await replica.propose(Claim(name=LogRetention.claim))
    job = LogRetention(replica, MergedRanges(memory_store), At(NOW), Metrics())
    held = job.held()
    assert held is not None
    await job.step(held)
    await fill(agent, "t", NOW - 100)
    await job.step(held)
    assert starts(agent, "t") == [0], "five minutes have not passed"
    often = AlterTopicConfigs.Change(name="log.retention.check.interval.ms", value="1")
    await replica.propose(AlterClusterConfigs(changes=[often]))
    async with asyncio.timeout(60):
        while starts(agent, "t") != [1]:
            await job.step(held)
            await asyncio.sleep(0)


async def chunks(store: MemoryStore) -> set[str]:
    """The keys of everything that holds records."""
    found: set[str] = set()
    for prefix in ("chunks/", "segments/", "manifests/"):
        async for page in store.list(prefix):
            found |= {each.key for each in page}
    return found


@pytest.mark.parametrize("how", ["retention", "deletion"])
async def test_bytes_are_given_back_after_the_grace_period_and_not_before(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await create(agent, topic("gone", 1, retention_ms="50"), topic("stays", 1, retention_ms="-1"))
    await fill(agent, "gone", NOW - 100, NOW - 90)
    of_gone = await chunks(memory_store)
    await fill(agent, "stays", NOW - 100)
    of_both = await chunks(memory_store)
    assert len(of_both) == 3
    if how == "retention":
        await pass_at(agent, memory_store, NOW)
    else:
        request = dt.DeleteTopicsRequest([dt.DeleteTopicState("gone")], timeout_ms=5000)
        assert (await agent.call("DeleteTopics", request, 6)).responses[0].error_code == 0
        state = agent.services.replica.state
        await agent.services.replica.propose(PurgeTopics(topic_id=list(state.deleted)))
    replica, clock = agent.services.replica, agent.services.clock
    await make_collector(replica, memory_store, clock, 3600).run()
    assert await chunks(memory_store) == of_both, "a reader may have planned with them"
    await make_collector(replica, memory_store, clock, 0).run()
    assert await chunks(memory_store) == of_both - of_gone
    assert not replica.state.chunks.garbage
