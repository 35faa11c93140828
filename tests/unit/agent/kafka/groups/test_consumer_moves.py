"""Groups of KIP-848 that move between agents: who does not coordinate a group must not keep its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from agent.cluster.hints import NO_BROKER
from agent.kafka.groups import coordinator
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from coordination.commands import ChangeConsumerGroup, Command, command
from coordination.kafka_codes import Code
from coordination.replica.errors import OutcomeUnknown
from coordination.replica.proposals import Results
from coordination.state.groups import is_empty
from coordination.state.types import Applied, Done
from tests.equipment.group_members import assignment, subscription
from tests.unit.agent.kafka.groups.conftest import StartGroups, join, quick_sessions, settings, sync
from tests.unit.agent.kafka.groups.kip848 import Member, data_of
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

SESSION_S = 0.3
QUIET_S = 3 * SESSION_S  # long enough for sessions to end that somebody keeps


class Elsewhere:
    """Makes an agent believe that another one coordinates, from the entry on that brings a change."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.agent, self.away = agent, False
        hints = agent.services.hints
        real = hints.coordinator

        def told(key: str) -> int:
            return NO_BROKER if self.away else real(key)

        monkeypatch.setattr(hints, "coordinator", told)

    def move(self, away: bool = True) -> None:
        """The brokers have changed."""
        self.away = away
        self.agent.services.groups._moved()

    def move_before(self, group: str) -> None:
        """Move as soon as something is applied to the group, before its author hears of it."""
        replica = self.agent.services.replica
        revision = replica.state.groups[group].revision

        def applied(_: Applied) -> None:
            if replica.state.groups[group].revision != revision and not self.away:
                self.move()

        replica.add_listener(applied)


@pytest.fixture
async def agent(begin: StartGroups) -> AsyncIterator[Agent]:
    one = await begin()
    await quick_sessions(one, round(SESSION_S * 1000), group_min_session_timeout_ms="10")
    one.services.consumer_groups.start()
    yield one
    await one.services.consumer_groups.stop()


@pytest.fixture
def elsewhere(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    return Elsewhere(agent, monkeypatch)


async def rounds() -> None:
    """Time enough to let go of a group, and for no session to end."""
    for _ in range(10):
        await asyncio.sleep(0)


def running(agent: Agent) -> int:
    return agent.services.consumer_groups.running()


async def test_a_change_that_lands_after_its_group_moved_away_begins_no_sessions(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    """They would all end one session timeout later, whatever the members do at their coordinator."""
    one, other = Member("g", "a" * 22, ("t",)), Member("g", "b" * 22, ("t",))
    await one.beat(agent)
    elsewhere.move_before("g")
    assert await other.beat(agent) is Code.NONE
    assert elsewhere.away
    await rounds()
    assert not running(agent)
    await asyncio.sleep(QUIET_S)
    assert set(data_of(agent, "g").members) == {one.member_id, other.member_id}
    assert not running(agent)


async def test_a_classic_members_join_that_lands_after_its_group_moved_away_begins_no_sessions(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    joined = await join(agent, "g")
    await sync(agent, "g", joined, {joined.member_id: assignment([("t", 0), ("t", 1), ("t", 2)])})
    assert await Member("g", "a" * 22, ("t",)).beat(agent) is Code.NONE
    elsewhere.move_before("g")
    await join(agent, "g", joined.member_id)
    assert elsewhere.away
    await rounds()
    assert not running(agent)
    await asyncio.sleep(QUIET_S)
    assert len(data_of(agent, "g").members) == 2
    assert not running(agent)


async def test_a_group_that_runs_where_it_is_not_coordinated_is_let_go_of_when_its_time_comes(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    """Whatever left it there: the second fence."""
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    elsewhere.away = True
    await until(lambda: not running(agent))
    assert one.member_id in data_of(agent, "g").members


async def test_a_group_that_moves_away_while_the_agent_verifies_itself_is_let_go_of(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    agent.services.replica._verified = False
    elsewhere.move()
    await until(lambda: not running(agent))


@pytest.mark.parametrize("kind", ["classic", "consumer"])
async def test_a_group_that_comes_while_the_agent_verifies_itself_is_taken_over(
    agent: Agent, elsewhere: Elsewhere, kind: str
) -> None:
    """Its members are all gone: nobody else would ever end their sessions."""
    if kind == "consumer":
        await Member("g", "a" * 22, ("t",)).beat(agent)
    else:
        joined = await join(agent, "g")
        await sync(agent, "g", joined, {joined.member_id: b"all"})
    groups = agent.services.groups

    def count() -> int:
        return len(groups.running()) + running(agent)

    elsewhere.move()
    await until(lambda: not count())
    agent.services.replica._verified = False
    elsewhere.move(away=False)
    await until(count)
    agent.services.replica._verified = True


async def test_a_plan_that_is_made_anew_after_its_group_moved_away_fences_nobody(
    agent: Agent, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member was late here; its next coordinator has heard it meanwhile, and has changed the group."""
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    runner = agent.services.consumer_groups.runner("g")
    replica, data = agent.services.replica, data_of(agent, "g")
    submit, under_way = replica.submit, asyncio.Event()
    change = ChangeConsumerGroup(
        group="g", expected_revision=replica.state.groups["g"].revision,
        group_epoch=data.group_epoch + 1, assignment_epoch=data.assignment_epoch,
    )  # fmt: skip

    def behind_another(commands: Sequence[Command]) -> Results:
        monkeypatch.setattr(replica, "submit", submit)
        submit([command(change)])
        elsewhere.move()
        under_way.set()
        return submit(commands)

    monkeypatch.setattr(replica, "submit", behind_another)
    await under_way.wait()
    await until(lambda: not runner.busy)
    assert one.member_id in data_of(agent, "g").members


async def test_requests_are_refused_before_the_groups_turn_to_be_let_go_of_has_come(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    joined = await join(agent, "classic")
    await sync(agent, "classic", joined, {joined.member_id: b"all"})
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    elsewhere.move()
    assert running(agent)
    beat = hb.HeartbeatRequest("classic", joined.generation_id, joined.member_id)
    assert (await agent.call("Heartbeat", beat, 4)).error_code == Code.NOT_COORDINATOR
    assert await one.beat(agent) is Code.NOT_COORDINATOR
    await until(lambda: not running(agent) + len(agent.services.groups.running()))


async def test_sessions_begin_anew_where_a_group_went_away_and_came_back_before_it_was_looked_at(
    agent: Agent, elsewhere: Elsewhere
) -> None:
    """Another agent may have coordinated it for long: this one reads in one go what came in between."""
    await settings(agent, group_consumer_session_timeout_ms="45000")
    joined = await join(agent, "classic")
    await sync(agent, "classic", joined, {joined.member_id: b"all"})
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    sessions = agent.services.consumer_groups.runner("g").sessions
    (member,) = agent.services.groups.group("classic").members.values()
    ends, deadline = sessions.ends(one.member_id), member.deadline
    elsewhere.move()
    elsewhere.move(away=False)
    await until(lambda: sessions.ends(one.member_id) > ends and member.deadline > deadline)


class Late:
    """The log says of a change of a group's members that its outcome is not known, and takes it later."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
        replica = agent.services.replica
        self._submit = replica.submit
        self._held: list[Sequence[Command]] = []

        def submit(commands: Sequence[Command]) -> Results:
            if commands[0].WhichOneof("kind") != kind:
                return self._submit(commands)
            monkeypatch.setattr(replica, "submit", self._submit)
            self._held.append(commands)
            unknown: Results = asyncio.get_running_loop().create_future()
            unknown.set_exception(OutcomeUnknown("nobody knows"))
            return unknown

        monkeypatch.setattr(replica, "submit", submit)

    async def land(self) -> None:
        """It has an effect after all."""
        (commands,) = self._held
        (result,) = await self._submit(commands)
        assert isinstance(result, Done), result


@pytest.mark.parametrize("moves", [False, True])
async def test_a_member_whose_join_lands_late_is_watched(
    agent: Agent, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch, moves: bool
) -> None:
    """The coordinator before may have planned it, and its client be gone: nobody would get its partitions."""
    one, other = Member("g", "a" * 22, ("t",)), Member("g", "b" * 22, ("t",))
    await one.beat(agent)
    late = Late(agent, monkeypatch, "change_consumer_group")
    assert await other.beat(agent) is Code.COORDINATOR_NOT_AVAILABLE
    if moves:
        elsewhere.move()
        await until(lambda: not running(agent))
        elsewhere.move(away=False)
        await until(lambda: running(agent) == 1)
    await late.land()
    assert set(data_of(agent, "g").members) == {one.member_id, other.member_id}
    while other.member_id in data_of(agent, "g").members:
        assert await one.beat(agent) is Code.NONE
        await asyncio.sleep(0.02)
    assert one.member_id in data_of(agent, "g").members


async def test_a_groups_first_member_whose_join_lands_late_is_watched(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = Late(agent, monkeypatch, "change_consumer_group")
    assert await Member("g", "a" * 22, ("t",)).beat(agent) is Code.COORDINATOR_NOT_AVAILABLE
    await until(lambda: not running(agent))
    await late.land()
    assert data_of(agent, "g").members
    await until(lambda: not data_of(agent, "g").members)


async def test_members_of_a_snapshot_that_replaces_the_state_are_watched(agent: Agent) -> None:
    """What lay between was not seen entry by entry."""
    one = Member("g", "a" * 22, ("t",))
    await one.beat(agent)
    sessions = agent.services.consumer_groups.runner("g").sessions
    sessions.forget(one.member_id)
    agent.services.groups._moved()
    await until(lambda: sessions.ends(one.member_id) > 0)


async def test_a_classic_generation_that_lands_late_is_watched(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its only member is gone: nobody would end its session, and the group could not be deleted."""
    monkeypatch.setattr(coordinator, "AGAIN_S", 0.05)
    state, groups = agent.services.replica.state, agent.services.groups
    late = Late(agent, monkeypatch, "put_classic_generation")
    mine = [jg.JoinGroupRequestProtocol("range", subscription(["t"]))]
    request = jg.JoinGroupRequest("g", round(SESSION_S * 1000), 100, "", "static", "consumer", mine)
    assert (await agent.call("JoinGroup", request, 9)).error_code != Code.NONE
    assert not groups.running()
    await asyncio.sleep(0.3)  # it was looked for again, and not there
    await late.land()
    assert not is_empty(state.groups["g"])
    await until(lambda: is_empty(state.groups["g"]))


async def test_a_classic_group_that_the_log_did_not_answer_for_is_loaded_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its members may be gone by then, and none will ask for it."""
    monkeypatch.setattr(coordinator, "AGAIN_S", 0.1)
    state, groups = agent.services.replica.state, agent.services.groups
    mine = [jg.JoinGroupRequestProtocol("range", subscription(["t"]))]

    async def come(instance: str) -> Code:
        request = jg.JoinGroupRequest("g", round(SESSION_S * 1000), 100, "", instance, "consumer", mine)
        answer = await agent.call("JoinGroup", request, 9)
        return Code(answer.error_code)

    assert await come("one") is Code.NONE
    Late(agent, monkeypatch, "put_classic_generation")
    assert await come("two") is not Code.NONE
    assert not groups.running()
    assert not is_empty(state.groups["g"])
    await until(lambda: is_empty(state.groups["g"]))
