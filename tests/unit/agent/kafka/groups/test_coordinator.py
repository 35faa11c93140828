"""The coordinator as a driver: timers, moves between agents, an agent that believes too long."""

from __future__ import annotations

import asyncio

import pytest

from agent.background.expiry.positions import OffsetExpiry
from agent.kafka.groups import coordinator
from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import GroupState
from agent.kafka.groups.timers import Timers
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from coordination.commands import ClassicMember, PutClassicGeneration
from coordination.kafka_codes import Code
from objectstore.tasks import DEFECTS
from tests.unit.agent.kafka.groups.conftest import StartGroups, join, sync
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

UNKNOWN, NOT_COORDINATOR = Code.UNKNOWN_MEMBER_ID, Code.NOT_COORDINATOR


async def beat(agent: Agent, group: str, joined: jg.JoinGroupResponse) -> Code:
    request = hb.HeartbeatRequest(group, joined.generation_id, joined.member_id)
    return Code((await agent.call("Heartbeat", request, 4)).error_code)


async def commit(agent: Agent, group: str, offset: int, generation: int = -1, member_id: str = "") -> Code:
    topic = oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, offset)])
    request = oc.OffsetCommitRequest(group, generation, member_id, topics=[topic])
    answer = await agent.call("OffsetCommit", request, 8)
    return Code(answer.topics[0].partitions[0].error_code)


async def position(agent: Agent, group: str) -> int:
    topics = [of.OffsetFetchRequestTopics("t", partition_indexes=[0])]
    request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, topics=topics)])
    answer = (await agent.call("OffsetFetch", request, 8)).groups[0]
    assert answer.error_code == 0
    offset: int = answer.topics[0].partitions[0].committed_offset
    return offset


def named_for(agent: Agent, others: list[Agent]) -> str:
    """A group that this one coordinates while all live."""
    groups = agent.services.groups
    return next(f"g{n}" for n in range(1000) if groups.is_coordinator(f"g{n}"))


async def stable(agent: Agent, group: str) -> jg.JoinGroupResponse:
    """A group of one member with its assignment."""
    joined = await join(agent, group)
    assert joined.error_code == 0
    assert (await sync(agent, group, joined, {joined.member_id: b"all"})).assignment == b"all"
    return joined


async def all_see(agents: list[Agent]) -> None:
    """Wait until every agent knows every broker."""
    await until(lambda: all(len(a.services.replica.state.brokers) == len(agents) for a in agents))


async def test_members_carry_on_with_the_next_coordinator(begin: StartGroups) -> None:
    """The coordinator is fenced: same member, same generation, no rebalance, no commit lost."""
    agents = [await begin("a"), await begin("b")]
    await all_see(agents)
    first, second = agents
    group = named_for(first, agents)
    joined = await stable(first, group)
    assert await commit(first, group, 7, 1, joined.member_id) is Code.NONE
    assert await beat(second, group, joined) is NOT_COORDINATOR
    assert await commit(second, group, 8, 1, joined.member_id) is NOT_COORDINATOR
    await first.services.replica.stop()
    await until(lambda: second.services.groups.is_coordinator(group))
    await until(lambda: second.services.groups.group(group))
    assert await beat(second, group, joined) is Code.NONE
    assert await position(second, group) == 7
    assert await commit(second, group, 8, 1, joined.member_id) is Code.NONE
    running = second.services.groups.group(group)
    assert running is not None
    assert (running.state, running.generation) == (GroupState.STABLE, 1)


async def test_who_waits_is_told_when_coordination_moves_away(begin: StartGroups) -> None:
    agents = [await begin("a"), await begin("b")]
    await all_see(agents)
    first = agents[0]
    group = named_for(first, agents)
    joined = await stable(first, group)
    parked = asyncio.create_task(join(first, group))
    await until(lambda: (g := first.services.groups.group(group)) and g.state is GroupState.PREPARING)
    await first.services.replica.leave()
    assert (await parked).error_code == NOT_COORDINATOR
    assert first.services.groups.group(group) is None
    assert await beat(agents[1], group, joined) is Code.NONE


async def test_a_coordinator_that_was_overtaken_learns_it_from_the_log(
    agent: Agent, begin: StartGroups
) -> None:
    """Somebody else put a generation: this one's proposal is refused, its members are sent away once."""
    agent = await begin()
    joined = await stable(agent, "g")
    replica = agent.services.replica
    seen = replica.state.groups["g"].revision
    await replica.propose(PutClassicGeneration(group="g", expected_revision=seen))
    assert await beat(agent, "g", joined) is UNKNOWN
    assert replica.state.groups["g"].classic.generation == 2
    again = await stable(agent, "g")
    assert again.generation_id == 3


async def test_silent_members_are_out_when_their_session_ends(begin: StartGroups) -> None:
    """The session is long while the group forms, and short from the member's last heartbeat on."""
    agent = await begin("a")
    mine = [jg.JoinGroupRequestProtocol("range", b"")]
    request = jg.JoinGroupRequest("g", 60_000, 60_000, "", "static", "consumer", mine)
    joined = await agent.call("JoinGroup", request, 9)
    assert joined.error_code == 0
    await sync(agent, "g", joined, {})
    group = agent.services.groups.group("g")
    assert group.state is GroupState.STABLE
    group.members[joined.member_id].session_s = 0.1
    assert await beat(agent, "g", joined) is Code.NONE
    await until(lambda: not agent.services.replica.state.groups["g"].classic.members)
    await until(lambda: agent.services.groups.group("g") is None)  # an empty group costs the agent nothing
    assert agent.services.replica.state.groups["g"].classic.generation == 2


async def test_the_sessions_of_a_group_nobody_asks_for_are_kept(begin: StartGroups) -> None:
    """A coordinator and all members die at once: the next agent ends the sessions all the same."""
    agents = [await begin("a", group_min_session_timeout_ms="100"), await begin("b")]
    await all_see(agents)
    group = named_for(agents[0], agents)
    mine = [jg.JoinGroupRequestProtocol("range", b"")]
    request = jg.JoinGroupRequest(group, 300, 300, "", "static", "consumer", mine)
    assert (await agents[0].call("JoinGroup", request, 9)).error_code == 0
    await agents[0].services.replica.leave()
    await until(lambda: not agents[1].services.replica.state.groups[group].classic.members)


async def test_after_a_pause_of_this_process_nobody_is_taken_for_silent(begin: StartGroups) -> None:
    agent = await begin("a")
    await stable(agent, "g")
    running = agent.services.groups.group("g")
    member = next(iter(running.members.values()))
    member.deadline = 0.0
    for tell in agent.services.replica.on_wake:
        tell()
    running.tick(asyncio.get_running_loop().time())
    assert running.state is GroupState.STABLE


async def test_positions_expire_by_a_job_that_one_agent_holds(begin: StartGroups) -> None:
    """A commit that names its own retention (OffsetCommit 2 to 4), and a group that goes with it."""
    agent = await begin("a", offsets_retention_check_interval_ms="1")
    assert await commit(agent, "stays", 5) is Code.NONE
    topic = oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, 1)])
    request = oc.OffsetCommitRequest("goes", -1, "", retention_time_ms=0, topics=[topic])
    assert (await agent.call("OffsetCommit", request, 4)).topics[0].partitions[0].error_code == 0
    replica = agent.services.replica
    assert list(replica.state.groups) == ["stays", "goes"]
    job = OffsetExpiry(replica, agent.services.clock, poll_s=0.01)
    job.start()
    await until(lambda: list(replica.state.groups) == ["stays"])
    await job.stop()


def test_timers_keep_one_place_for_each_group() -> None:
    timers = Timers()
    for at in range(5000, 0, -1):
        timers.arm("g", float(at))
    timers.arm("h", 7.0)
    assert len(timers) < 5000
    assert timers.next() == 1.0
    assert timers.take(6.0, 10) == ["g"]
    assert timers.take(6.0, 10) == []
    timers.arm("g", 9.0)
    timers.disarm("h")
    assert timers.next() == 9.0
    timers.arm("i", 9.0)
    assert timers.take(10.0, 1) == ["g"]
    assert timers.take(10.0, 1) == ["i"]
    assert timers.next() is None


def test_keys_that_are_disarmed_do_not_wait_in_the_heap_for_whoever_looks_next() -> None:
    timers = Timers()
    for number in range(5000):
        timers.arm(str(number), float(number))
    for number in range(5000):
        timers.disarm(str(number))
    assert not len(timers)


@pytest.mark.parametrize("version", [2, 5, 8, 9])
async def test_an_acknowledged_commit_is_what_any_agent_tells(begin: StartGroups, version: int) -> None:
    agents = [await begin("a"), await begin("b")]
    await all_see(agents)
    group = named_for(agents[1], agents)
    topic = oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, 11)])
    answer = await agents[1].call("OffsetCommit", oc.OffsetCommitRequest(group, topics=[topic]), version)
    assert answer.topics[0].partitions[0].error_code == 0
    await agents[1].services.replica.leave()
    assert await position(agents[0], group) == 11


async def test_a_group_whose_change_fails_as_nobody_expects_is_told_and_goes_on(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a callback of the log's: whoever joined would have waited for ever."""

    def broken(*_: object) -> None:
        raise RuntimeError("odd")

    with monkeypatch.context() as patched:
        patched.setattr(ClassicGroup, "decided", broken)
        async with asyncio.timeout(5):
            refused = await join(agent, "g")
    assert refused.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert (await join(agent, "g")).error_code == 0


async def late(agent: Agent, *groups: str) -> None:
    """Something is due in these groups, in one turn of the clock."""
    for name in groups:
        group = agent.services.groups.group(name)
        assert group is not None
        group.wake_at = 0.0
        for member in group.members.values():
            member.deadline = 0.0
    for name in groups:
        agent.services.groups._arm(agent.services.groups.group(name))


def members(agent: Agent, group: str) -> list[str]:
    """Who is in the group as the log has it."""
    return list(agent.services.replica.state.groups[group].classic.members)


async def test_what_one_group_raises_in_its_turn_does_not_cost_others_theirs(
    begin: StartGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group itself is loaded anew, though nobody asks for it, and its sessions are kept."""
    agent = await begin("a")
    for group in ("bad", "good"):
        await stable(agent, group)
    monkeypatch.setattr(coordinator, "AGAIN_S", 0.01)
    really, bad = ClassicGroup.tick, agent.services.groups.group("bad")
    told = DEFECTS.counts.total()

    def tick(self: ClassicGroup, now: float) -> None:
        if self is bad:
            raise RuntimeError("odd")
        really(self, now)

    monkeypatch.setattr(ClassicGroup, "tick", tick)
    await late(agent, "bad", "good")
    await until(lambda: not members(agent, "good"))
    assert DEFECTS.counts.total() > told
    await until(lambda: agent.services.groups.group("bad") not in (None, bad))
    await late(agent, "bad")
    await until(lambda: not members(agent, "bad"))


async def test_the_sessions_of_a_group_that_another_coordinator_changed_are_kept(begin: StartGroups) -> None:
    """What it sent before it lost the group lands after this one loaded it; then everybody falls silent."""
    agent = await begin("a")
    await stable(agent, "g")
    replica = agent.services.replica
    newer = ClassicMember(
        member_id="newer", client_id="c", client_host="/h", session_timeout_ms=50, rebalance_timeout_ms=50,
        protocols=[ClassicMember.Protocol(name="range")],
    )  # fmt: skip
    await replica.propose(
        PutClassicGeneration(
            group="g", expected_revision=replica.state.groups["g"].revision, protocol_type="consumer",
            protocol="range", leader="newer", members=[newer],
        )
    )  # fmt: skip
    assert members(agent, "g") == ["newer"]
    await late(agent, "g")
    await until(lambda: not members(agent, "g"))
