"""Very many groups: the event loop has its turn in between, or a thread does it."""

from __future__ import annotations

import pytest

from agent.kafka.groups import steps
from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.listing import listed
from agent.kafka.handlers import k16_list_groups
from agent.kafka.handlers.lookup import GROUP_COST
from agent.net.wire import steps as wire_steps
from agent.net.wire.generated import consumer_group_describe as cg
from agent.net.wire.generated import describe_groups as dg
from agent.net.wire.generated import list_groups as lg
from coordination.kafka_codes import Code
from coordination.state import State
from coordination.state.consumer_types import ConsumerGroupData
from coordination.state.group_types import CONSUMER, ClassicGeneration, ClassicMember, Group
from tests.unit.agent.kafka.groups.conftest import StartGroups, join, sync
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until

MEMBER = ClassicMember("m", None, "c", "/h", 10_000, 10_000, (("range", b""),))


def generation(*members: ClassicMember, assigned: bool = True) -> ClassicGeneration:
    rows = {member.member_id: member for member in members}
    return ClassicGeneration(3, "consumer", "range" if rows else "", "m" if rows else "", assigned, rows)


def some_groups(state: State) -> None:
    """One of each kind, in each state in which the log may have it."""
    state.groups.update(
        {
            "positions": Group("positions"),
            "empty": Group("empty", classic=generation()),
            "stable": Group("stable", classic=generation(MEMBER)),
            "completing": Group("completing", classic=generation(MEMBER, assigned=False)),
            "modern": Group("modern", CONSUMER, consumer=ConsumerGroupData()),
        }
    )


async def rows(agent: Agent, version: int = 5) -> list[tuple[str, str, str, str]]:
    """ListGroups: group, type of protocol, state, kind; sorted."""
    answer: lg.ListGroupsResponse = await agent.call("ListGroups", lg.ListGroupsRequest(), version)
    assert answer.error_code == Code.NONE
    return sorted((g.group_id, g.protocol_type, g.group_state, g.group_type) for g in answer.groups)


async def test_a_group_that_does_not_run_is_listed_as_it_would_run(agent: Agent) -> None:
    """Read from the log's words at once, it is what its coordinator would make of them."""
    state = agent.services.replica.state
    some_groups(state)
    for name, known in state.groups.items():
        group = ClassicGroup(name)
        group.load(known, 0.0)
        said = listed(state, agent.services.groups, name)
        assert said is not None
        if known.kind != CONSUMER:
            own = (group.state.value, group.protocol_type or "", group.protocol or "")
            assert (said.state, said.protocol_type, said.protocol) == own


async def test_groups_that_run_and_groups_that_do_not_are_listed_once(begin: StartGroups) -> None:
    agent = await begin()
    joined = await join(agent, "runs")
    await sync(agent, "runs", joined, {joined.member_id: b"all"})
    some_groups(agent.services.replica.state)
    await until(lambda: agent.services.groups.group("runs"))
    assert await rows(agent) == [
        ("completing", "consumer", "CompletingRebalance", "classic"),
        ("empty", "consumer", "Empty", "classic"),
        ("modern", "consumer", "Empty", "consumer"),
        ("positions", "", "Empty", "classic"),
        ("runs", "consumer", "Stable", "classic"),
        ("stable", "consumer", "Stable", "classic"),
    ]


@pytest.mark.parametrize("version", range(6))
async def test_many_groups_are_encoded_beside_the_loop_to_the_same_bytes(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    some_groups(agent.services.replica.state)
    few = await rows(agent, version)
    monkeypatch.setattr(k16_list_groups, "OFFLOAD_FROM", 1)
    assert await rows(agent, version) == few


class Watched:
    """Counts how often one round of the event loop asks who coordinates a group."""

    def __init__(self, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most, self.asked, self._now = 0, 0, 0
        hints = agent.services.hints
        really, loop = hints.coordinator, agent.services.replica._loop

        def coordinator(key: str) -> int:
            if not self._now:
                loop.call_soon(self._next)
            self._now += 1
            self.asked += 1
            self.most = max(self.most, self._now)
            return really(key)

        monkeypatch.setattr(hints, "coordinator", coordinator)

    def _next(self) -> None:
        self._now = 0


@pytest.fixture
async def crowded(begin: StartGroups, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """An agent with forty groups, of which a step looks at two."""
    monkeypatch.setattr(steps, "GROUPS_PER_STEP", 2)
    agent = await begin()
    groups = agent.services.replica.state.groups
    groups.update({f"g{n}": Group(f"g{n}", classic=generation(MEMBER)) for n in range(40)})
    return agent


PER_ROUND_MAX = 8  # a step of each of the two coordinators, and no group asks more than twice


async def test_others_have_their_turn_while_very_many_groups_are_listed(
    crowded: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(crowded, monkeypatch)
    assert len(await rows(crowded)) == 40
    assert watched.most <= PER_ROUND_MAX


@pytest.mark.parametrize("name", ["DescribeGroups", "ConsumerGroupDescribe"])
async def test_others_have_their_turn_while_very_many_groups_are_described(
    crowded: Agent, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    names = [f"g{n}" for n in range(40)]
    monkeypatch.setattr(wire_steps, "ROWS_PER_STEP", 2 * GROUP_COST)
    watched = Watched(crowded, monkeypatch)
    request = dg.DescribeGroupsRequest(names) if name[0] == "D" else cg.ConsumerGroupDescribeRequest(names)
    assert [group.group_id for group in (await crowded.call(name, request, 1)).groups] == names
    assert watched.most <= PER_ROUND_MAX


async def test_others_have_their_turn_while_very_many_groups_move(
    crowded: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = crowded.services.groups
    groups._moved()
    await until(lambda: len(groups.running()) == 40)
    watched = Watched(crowded, monkeypatch)
    groups._moved()
    await until(lambda: watched.asked >= 40)
    assert len(groups.running()) == 40
    assert watched.most <= PER_ROUND_MAX
