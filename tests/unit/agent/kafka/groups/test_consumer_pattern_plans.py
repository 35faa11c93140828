"""Plans for members that subscribe to patterns: whatever else the agent has resolved, each has its topics."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import pytest

from agent.kafka.groups.consumer import patterns
from coordination.commands import ChangeConsumerGroup, ConsumerMember
from coordination.kafka_codes import Code
from tests.unit.agent.kafka.groups.conftest import StartGroups
from tests.unit.agent.kafka.groups.kip848 import Member, data_of, target
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

ALL = [0, 1, 2]  # partitions of the topic t
AT_ONCE = {"group_consumer_assignment_interval_ms": "0", "group_consumer_min_assignment_interval_ms": "0"}


def few(monkeypatch: pytest.MonkeyPatch, remembered: int) -> None:
    """So few patterns are remembered by an agent."""
    monkeypatch.setattr(patterns, "REMEMBERED_MAX", remembered)


async def shared(agent: Agent, *members: Member) -> None:
    """Heartbeats until all have come to their targets."""

    async def settled() -> bool:
        codes = [await member.beat(agent) for member in members]
        data = data_of(agent, members[0].group)
        return not any(codes) and all(m.epoch == data.group_epoch for m in data.members.values())

    async with asyncio.timeout(5):
        while not await settled():  # noqa: ASYNC110 - these are the heartbeats that it waits for
            await asyncio.sleep(0)


async def test_a_pattern_that_others_pushed_out_is_evaluated_for_the_next_plan(
    begin: StartGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quiet group's pattern is the first to go. Then a member leaves, whose heartbeat names no pattern."""
    few(monkeypatch, 10)
    agent = await begin(**AT_ONCE)
    stays, leaves = Member("g", "s" * 22, regex="t.*"), Member("g", "l" * 22, ("t",))
    await stays.beat(agent)
    await shared(agent, stays, leaves)
    before = data_of(agent, "g").metadata_hash
    for number in range(10):
        assert await Member(f"g{number}", "o" * 22, regex=f"other{number}").beat(agent) is Code.NONE
    await leaves.beat(agent, -1)
    await shared(agent, stays)
    assert target(agent, stays) == ALL
    assert data_of(agent, "g").metadata_hash == before


async def test_a_group_may_have_more_patterns_than_an_agent_remembers(
    begin: StartGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    few(monkeypatch, 1)
    agent = await begin(**AT_ONCE)
    members = [Member("g", letter * 22, regex=f"t|{letter}") for letter in "abc"]
    for member in members:
        await member.beat(agent)
    await shared(agent, *members)
    assert sorted(target(agent, member) for member in members) == [[number] for number in ALL]


async def test_a_member_that_came_by_another_coordinator_while_patterns_were_evaluated_keeps_its_topics(
    begin: StartGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is made on the group as it is after that, with that member's pattern."""
    agent = await begin(**AT_ONCE)
    first = Member("g", "f" * 22, ("t",))
    await first.beat(agent)
    under_way, go_on = asyncio.Event(), threading.Event()
    loop, really = asyncio.get_running_loop(), patterns.matching

    def slow(regex: str, topics: Iterable[str]) -> tuple[str, ...]:
        loop.call_soon_threadsafe(under_way.set)
        go_on.wait(5)
        return really(regex, topics)

    monkeypatch.setattr(patterns, "matching", slow)
    second = Member("g", "s" * 22, regex="x")
    joining = asyncio.create_task(second.beat(agent))
    await under_way.wait()
    data, revision = data_of(agent, "g"), agent.services.replica.state.groups["g"].revision
    other = ConsumerMember(member_id="o" * 22, regex="t.*", rebalance_timeout_ms=60_000)
    change = ChangeConsumerGroup(
        group="g", expected_revision=revision, group_epoch=data.group_epoch + 1,
        assignment_epoch=data.assignment_epoch, members=[other],
    )  # fmt: skip
    await agent.services.replica.propose(change)
    await until(lambda: "o" * 22 in data_of(agent, "g").members)
    go_on.set()
    assert await joining is Code.NONE
    assert len(target(agent, first)) + len(target(agent, Member("g", "o" * 22))) == len(ALL)
    assert target(agent, Member("g", "o" * 22))
