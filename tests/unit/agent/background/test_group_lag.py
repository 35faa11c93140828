"""How far groups are behind is told by group and topic, of the latest of them."""

from __future__ import annotations

from agent.background import group_lag
from agent.background.group_lag import GroupLags
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock
from coordination.commands import CommitOffsets, DeleteGroups, DeleteTopic
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch

Told = dict[tuple[str, str], float]


class Looking:
    """One agent's lags, looked at when a test says so."""

    def __init__(self, agent: Agent, named_max: int = 10) -> None:
        self.agent, self.clock, self.metrics = agent, ManualClock(), Metrics()
        self.lags = GroupLags(agent.services.replica, self.clock, self.metrics, named_max)

    async def commit(self, group: str, handle: int, offset: int) -> None:
        positions = CommitOffsets(group=group, generation=-1, partition=[handle], offset=[offset])
        await self.agent.services.replica.propose(positions)

    async def told(self) -> tuple[Told, Told]:
        """Records and seconds as the next reader of the metrics finds them."""
        await self.lags.look()
        for refresh in self.metrics.before_reading:
            refresh()
        both: tuple[Told, Told] = ({}, {})
        for found, metric in zip(both, ("floe_group_lag_records", "floe_group_lag_seconds"), strict=True):
            for family in self.metrics.registry.collect():
                for sample in family.samples:
                    if sample.name == metric:
                        found[sample.labels["group"], sample.labels["topic"]] = sample.value
        return both


async def test_a_group_is_behind_by_records_and_by_the_time_it_is_seen_so(agent: Agent) -> None:
    await create(agent, "t", partitions=2)
    looking = Looking(agent)
    first, second = agent.services.replica.state.topics["t"].partitions
    await looking.commit("g", first.handle, 0)
    assert await looking.told() == ({("g", "t"): 0}, {("g", "t"): 0})
    await produce(agent, batch(b"a", b"b", b"c"))
    await looking.told()
    looking.clock.advance(30)
    assert await looking.told() == ({("g", "t"): 3}, {("g", "t"): 30})
    await produce(agent, batch(b"d"))
    await looking.told()
    await looking.commit("g", first.handle, 3)
    looking.clock.advance(5)
    assert await looking.told() == ({("g", "t"): 1}, {("g", "t"): 5}), "the oldest that it lacks came later"
    await looking.commit("g", first.handle, 4)
    await looking.commit("g", second.handle, 0)
    assert await looking.told() == ({("g", "t"): 0}, {("g", "t"): 0})


async def test_the_latest_are_named_and_none_that_is_gone(agent: Agent) -> None:
    await create(agent, "t")
    looking = Looking(agent, named_max=2)
    partition, _ = agent.services.replica.state.topics["t"].partitions
    await produce(agent, batch(*[b"x"] * 9))
    for number in range(5):
        await looking.commit(f"g{number}", partition.handle, number)
    records, _ = await looking.told()
    assert records == {("g0", "t"): 9, ("g1", "t"): 8}
    await agent.services.replica.propose(DeleteGroups(group=["g0"]))
    for refresh in looking.metrics.before_reading:
        refresh()
    records, _ = await looking.told()
    assert records == {("g1", "t"): 8, ("g2", "t"): 7}
    await agent.services.replica.propose(DeleteTopic(name="t"))
    assert await looking.told() == ({}, {}), "its positions are of nothing any more"
    assert not looking.lags._marks


async def test_nobody_looks_where_none_shall_be_named(agent: Agent) -> None:
    looking = Looking(agent, named_max=0)
    looking.lags.start()
    assert looking.lags._task is None
    assert group_lag.LOOK_S > 0
