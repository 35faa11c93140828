"""A coordinator dies and takes what it had not told the log with it: who comes back, and who never does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from agent.kafka.groups.members import GroupState
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from coordination.kafka_codes import Code
from tests.equipment.group_members import subscription
from tests.unit.agent.kafka.groups.conftest import StartGroups, sync
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

SESSION_MS, REBALANCE_MS = 800, 60_000
BEAT_S = 0.02
PARTITIONS = bytes(range(6))
AFRESH = (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION)


@dataclass(eq=False)
class Client:
    """A dynamic member as clients have it: it copes with the codes that they cope with, and with no other."""

    group: str
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    share: bytes = b""

    async def join(self, agent: Agent) -> jg.JoinGroupResponse:
        """JoinGroup until it is let in."""
        mine = [jg.JoinGroupRequestProtocol("range", subscription(["t"]))]
        while True:
            asked = (self.group, SESSION_MS, REBALANCE_MS, self.member_id, None, "consumer", mine)
            answer: jg.JoinGroupResponse = await agent.call("JoinGroup", jg.JoinGroupRequest(*asked), 9)
            code = Code(answer.error_code)
            if code is Code.NONE:
                self.member_id, self.generation = answer.member_id, answer.generation_id
                self.leads = answer.leader == answer.member_id
                return answer
            if code in AFRESH:
                self.member_id = ""
            elif code is Code.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            else:
                assert code is Code.REBALANCE_IN_PROGRESS

    async def enter(self, agent: Agent) -> None:
        """Join and get a share, however often it takes."""
        while True:
            joined = await self.join(agent)
            ids = [member.member_id for member in joined.members]
            shares = {name: PARTITIONS[place :: len(ids)] for place, name in enumerate(ids)}
            synced = await sync(agent, self.group, joined, shares)
            code = Code(synced.error_code)
            if code is Code.NONE:
                self.share = synced.assignment
                return
            assert code in (*AFRESH, Code.REBALANCE_IN_PROGRESS)
            self.share = b""

    async def live(self, agent: Agent) -> None:
        """Heartbeats for ever; shares anew when told to."""
        while True:
            request = hb.HeartbeatRequest(self.group, self.generation, self.member_id)
            code = Code((await agent.call("Heartbeat", request, 4)).error_code)
            if code is not Code.NONE:
                assert code in (*AFRESH, Code.REBALANCE_IN_PROGRESS)
                await self.enter(agent)
            await asyncio.sleep(BEAT_S)


@asynccontextmanager
async def living(agent: Agent, *clients: Client) -> AsyncIterator[None]:
    """The clients go on by this agent; what they do not cope with is raised."""
    tasks = [asyncio.create_task(client.live(agent)) for client in clients]
    try:
        yield
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def pair(begin: StartGroups) -> tuple[Agent, Agent, str]:
    """The coordinator of a group, the next one, and the group."""
    first = await begin("a", group_min_session_timeout_ms="100")
    second = await begin("b")
    await until(lambda: all(len(a.services.replica.state.brokers) == 2 for a in (first, second)))
    names = (f"g{number}" for number in range(1000))
    return first, second, next(name for name in names if first.services.groups.is_coordinator(name))


async def stable(agent: Agent, group: str, count: int) -> list[Client]:
    """So many members that share all partitions; the first one leads."""
    clients: list[Client] = []
    for _ in range(count):
        clients.append(Client(group))
        async with living(agent, *clients[:-1]):
            await clients[-1].enter(agent)
            await until(lambda: sorted(b"".join(each.share for each in clients)) == list(PARTITIONS))
    return clients


async def die(first: Agent, second: Agent, group: str) -> None:
    """The coordinator ends without a word, and the next one takes over."""
    await first.services.replica.stop()
    await until(lambda: second.services.groups.is_coordinator(group))


async def only(agent: Agent, survivor: Client) -> None:
    """Wait until the survivor has all, and the log knows of nobody else."""
    async with living(agent, survivor):
        await until(lambda: survivor.share == PARTITIONS)
        members = agent.services.replica.state.groups[survivor.group].classic.members
        assert [member.member_id for member in members.values()] == [survivor.member_id]


@pytest.mark.parametrize("which", [0, 1, 2])
async def test_who_comes_back_gets_what_the_others_had(begin: StartGroups, which: int) -> None:
    """A stable group, and one of its three members survives: its leader, or another one."""
    first, second, group = await pair(begin)
    clients = await stable(first, group, 3)
    await die(first, second, group)
    await only(second, clients[which])


async def test_a_rebalance_that_nobody_ends_any_more_is_not_waited_for(begin: StartGroups) -> None:
    """The coordinator waits for two members that never come, and dies of it before its sessions end."""
    first, second, group = await pair(begin)
    clients = await stable(first, group, 3)
    waiting = asyncio.create_task(clients[0].join(first))
    running = first.services.groups.group(group)
    assert running is not None
    await until(lambda: running.state is GroupState.PREPARING)
    await die(first, second, group)
    waiting.cancel()
    await only(second, clients[0])


@pytest.mark.parametrize("survivor", ["the leader", "a follower"])
async def test_a_generation_without_assignments_is_ended_by_who_comes_back(
    begin: StartGroups, survivor: str
) -> None:
    """All have joined and none has its share yet; the others, the leader among them perhaps, never come."""
    first, second, group = await pair(begin)
    clients = await stable(first, group, 3)
    await asyncio.gather(*(client.join(first) for client in clients))
    assert first.services.groups.group(group).state is GroupState.COMPLETING
    await die(first, second, group)
    left = next(client for client in clients if client.leads == (survivor == "the leader"))
    await only(second, left)


async def test_members_get_through_a_rebalance_that_dies_with_its_coordinator(begin: StartGroups) -> None:
    """One has joined anew, one has not heard of it, one is new and the log knows nothing of it: all share at
    the next coordinator, and no client is told what it does not cope with by itself."""
    first, second, group = await pair(begin)
    clients = await stable(first, group, 2)
    newcomer = Client(group)
    joins = [asyncio.create_task(each.join(first)) for each in (newcomer, clients[0])]
    running = first.services.groups.group(group)
    assert running is not None
    await until(lambda: sum(member.joining is not None for member in running.members.values()) == 2)
    assert running.state is GroupState.PREPARING
    assert len(first.services.replica.state.groups[group].classic.members) == 2
    await die(first, second, group)
    for join in joins:
        join.cancel()
    clients.append(newcomer)
    async with living(second, *clients):
        await until(
            lambda: (
                sorted(b"".join(each.share for each in clients)) == list(PARTITIONS)
                and all(each.share for each in clients)
                and len({each.generation for each in clients}) == 1
            )
        )
