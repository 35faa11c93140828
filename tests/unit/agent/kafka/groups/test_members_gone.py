"""Members that are gone: nothing watches or counts them, whatever was under way when they went."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import GroupState, Join, Joined, Limits
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import leave_group as lg
from coordination.kafka_codes import Code
from tests.equipment.group_members import assignment
from tests.unit.agent.kafka.groups.conftest import StartGroups, join, settings, sync
from tests.unit.agent.net.server.harness import until
from tests.unit.agent.rig import Agent

ME = "m" * 22
OTHER = "o" * 22


@pytest.fixture
async def agent(begin: StartGroups) -> AsyncIterator[Agent]:
    """Entries take a moment to be applied, and sessions of consumers last no longer than a few of those."""
    one = await begin()
    one.log.faults.delivery_delay_s = 0.02
    one.services.consumer_groups.start()
    yield one
    await one.services.consumer_groups.stop()


async def short_sessions(agent: Agent) -> None:
    await settings(
        agent,
        group_consumer_min_heartbeat_interval_ms="10",
        group_consumer_heartbeat_interval_ms="10",
        group_consumer_min_session_timeout_ms="50",
        group_consumer_session_timeout_ms="200",
    )


async def beat(agent: Agent, group: str, epoch: int, *topics: str, member: str = ME) -> int:
    """ConsumerGroupHeartbeat; the member's epoch. `topics`: it says anew what it wants."""
    owned: list[ch.TopicPartitions] | None = [] if epoch == 0 else None
    said = list(topics) or None
    request = ch.ConsumerGroupHeartbeatRequest(
        group, member, epoch, None, None, 60_000, said, None, None, owned
    )
    answer = await agent.call("ConsumerGroupHeartbeat", request, 1)
    assert answer.error_code == 0, answer
    return int(answer.member_epoch)


async def now(true: Callable[[], bool]) -> None:
    """Go on in the very round of the event loop in which it becomes true."""
    async with asyncio.timeout(5):
        while not true():  # noqa: ASYNC110 - nobody tells it
            await asyncio.sleep(0)


async def leave(agent: Agent, member_id: str) -> int:
    """LeaveGroup of one member of g; its code."""
    request = lg.LeaveGroupRequest("g", members=[lg.MemberIdentity(member_id)])
    return int((await agent.call("LeaveGroup", request, 5)).error_code)


async def delete(agent: Agent, group: str) -> Code:
    return Code((await agent.call("DeleteGroups", dg.DeleteGroupsRequest([group]), 2)).results[0].error_code)


async def test_a_consumer_that_leaves_while_its_heartbeat_is_under_way_is_forgotten(agent: Agent) -> None:
    """Planned together, both are answered together: the heartbeat must not watch who has left by it."""
    epoch = await beat(agent, "g", 0, "t")
    await asyncio.gather(beat(agent, "g", epoch, "t", "no-topic"), beat(agent, "g", -1))
    groups = agent.services.consumer_groups
    assert not groups.runner("g").sessions.busy


async def test_a_classic_member_that_leaves_while_it_joins_is_forgotten(agent: Agent) -> None:
    """The same of a member that has not moved to the consumer protocol yet."""
    joined = await join(agent, "g")
    await sync(agent, "g", joined, {joined.member_id: assignment([("t", 0), ("t", 1), ("t", 2)])})
    await beat(agent, "g", 0, "t")
    again, left = await asyncio.gather(join(agent, "g", joined.member_id), leave(agent, joined.member_id))
    assert (again.error_code, left) == (0, 0)
    sessions = agent.services.consumer_groups.runner("g").sessions
    assert not sessions.ends(joined.member_id)
    assert sessions.ends(ME)


async def test_a_deadline_of_somebody_whom_the_log_took_out_ends_itself(agent: Agent) -> None:
    """Whatever left it there: it is neither proposed nor told again every few seconds."""
    await short_sessions(agent)
    await beat(agent, "g", 0, "t")
    groups = agent.services.consumer_groups
    groups.runner("g").sessions.heard(OTHER, 0.0, asyncio.get_running_loop().time())
    await until(lambda: not groups.runner("g").sessions.ends(OTHER))


async def test_a_group_is_deleted_in_the_moment_in_which_its_last_session_ends(agent: Agent) -> None:
    await short_sessions(agent)
    for group in ("a", "b", "c"):
        await beat(agent, group, 0, "t")
        runner = agent.services.consumer_groups.runner(group)
        await now(lambda runner=runner: runner.busy)
        assert await delete(agent, group) is Code.NONE


async def test_a_classic_group_is_deleted_while_its_last_member_is_leaving(agent: Agent) -> None:
    """It leaves while the log takes the assignments: its turn comes after that."""
    joined = await join(agent, "g")
    known = agent.services.groups.group("g")
    assert known is not None
    given = asyncio.create_task(sync(agent, "g", joined, {joined.member_id: b"all"}))
    await now(lambda: known.busy)
    left = asyncio.create_task(leave(agent, joined.member_id))
    await asyncio.sleep(0)
    assert known.members, "it waits for the log's word about the assignments"
    assert await delete(agent, "g") is Code.NONE
    assert await left == 0
    await given


@pytest.mark.parametrize("id_required", [True, False], ids=["JoinGroup 4", "JoinGroup 3"])
def test_who_comes_while_a_group_that_all_have_left_still_forms_is_let_in(id_required: bool) -> None:
    """Its first delay goes on without a member. Nobody is left there to have other protocols."""
    group, told = ClassicGroup("g", lambda: Limits(initial_delay_s=3)), list[Joined]()
    first = Join("", None, "c", "/h", 10, 20, "consumer", (("range", b""),), "first", id_required=False)
    group.join(0, first, told.append)
    group.leave(1, [("first", None)], lambda _: None)
    assert (group.state, group.members) == (GroupState.PREPARING, {})
    other = replace(first, protocols=(("sticky", b""),), new_id="other", id_required=id_required)
    group.join(2, other, told.append)
    if id_required:
        assert told.pop().code is Code.MEMBER_ID_REQUIRED
        group.join(2, replace(other, member_id="other"), told.append)
    told.clear()
    group.tick(3)
    group.tick(6)
    group.decided(6, 1, 1)
    assert [(each.code, each.member_id, each.protocol) for each in told] == [(Code.NONE, "other", "sticky")]
