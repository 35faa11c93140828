"""`floe group …` in a cluster of two agents: a group is served by one of them, whichever is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest

from agent.app import App
from agent.cli import coordinators as finding
from agent.cli import group_requests
from agent.cli.coordinators import MOVING, coordinators, listed
from agent.cli.failures import Failure, Status
from agent.cli.session import Refusal, Session, session
from agent.kafka.context import Services
from coordination.kafka_codes import Code
from tests.unit.agent.cli.conftest import Ran, floe
from tests.unit.agent.test_app import World, topic, until

TOPIC = "t"
EACH = 2
"""Groups of each agent."""
NOWHERE = 1
"""A port where nobody listens."""


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for app in made.apps:
        await app.stop()


def services(app: App) -> Services:
    assert app._services is not None
    return app._services


def bootstrap(app: App) -> str:
    return f"127.0.0.1:{app.kafka_port}"


async def run(app: App, *arguments: str) -> Ran:
    """The command, as a process of its own, with this agent as --bootstrap."""
    return await asyncio.to_thread(partial(floe, FLOE_BOOTSTRAP=bootstrap(app)), *arguments)


async def table(app: App, *arguments: str) -> Any:
    ran = await run(app, *arguments, "--output", "json")
    assert ran.status == 0, ran
    return json.loads(ran.out)


def knows_both(app: App) -> bool:
    return len(services(app).hints.view().nodes) == 2


async def pair(world: World, **second: Any) -> tuple[App, App]:
    """Two agents that know each other, and a topic; `second`: settings of the second one's listener."""
    a = await world.start("a")
    b = await world.start("b", listeners=[{"host": "127.0.0.1", "port": 0, **second}])
    async with asyncio.timeout(20):
        for app in (a, b):
            await until(partial(knows_both, app))
    await topic(a, TOPIC)
    return a, b


async def groups_of(app: App) -> list[str]:
    """Makes groups of this agent, each with a position, and names them."""
    hints, node = services(app).hints, services(app).replica.node_id
    names: list[str] = []
    while len(names) < EACH:
        name = f"{app.config.agent.name}-{len(names)}"
        while hints.coordinator(name) != node:
            name += "x"
        names.append(name)
        async with session(bootstrap(app)) as own:
            await group_requests.commit(own, name, {(TOPIC, 0): 0})
    return names


async def test_any_agent_may_be_asked_for_any_group(world: World) -> None:
    """Each lists its own groups only, and refuses the others'."""
    a, b = await pair(world)
    names = sorted([*await groups_of(a), *await groups_of(b)])
    for app in (a, b):
        assert [row["group"] for row in await table(app, "group", "list")] == names
    for name in names:
        for app in (a, b):
            found = await table(app, "group", "describe", name)
            assert (found["group"], found["state"], len(found["partitions"])) == (name, "Empty", 1)
        (row,) = await table(a, "group", "reset", name, "--to", "latest")
        assert (row["topic"], row["before"], row["position"]) == (TOPIC, 0, 0)
    assert await table(b, "group", "delete", *names) == {"deleted": names}
    assert await table(a, "group", "list") == []


async def test_of_several_groups_all_are_deleted_that_can_be(world: World) -> None:
    a, b = await pair(world)
    names = [*await groups_of(a), *await groups_of(b)]
    ran = await run(a, "group", "delete", names[0], "nobody", names[-1])
    assert (ran.status, ran.out) == (Status.REFUSED, f"deleted {names[0]}, {names[-1]}\n")
    assert ran.err == "floe: group 'nobody' is not deleted: GROUP_ID_NOT_FOUND\n"
    assert [row["group"] for row in await table(b, "group", "list")] == sorted(names[1:-1])


async def test_an_agent_that_is_not_reached_is_told_with_its_address(world: World) -> None:
    """As behind a port-forward: one agent is reached by another address than the one that it advertises."""
    a, b = await pair(world, advertised_port=NOWHERE)
    names, others = await groups_of(a), await groups_of(b)
    ran = await run(a, "group", "list", "--output", "json")
    assert ([row["group"] for row in json.loads(ran.out)], ran.status) == (names, Status.UNREACHABLE)
    (line,) = ran.err.splitlines()
    node = services(b).replica.node_id
    assert f"the groups of agent {node} at 127.0.0.1:{NOWHERE} (Connection refused) are missing" in line
    assert "docs/zones.md" in line
    for command in (("describe", others[0]), ("delete", others[0]), ("reset", others[0], "--to", "latest")):
        ran = await run(a, "group", *command)
        assert (ran.status, ran.out) == (Status.UNREACHABLE, "")
        (line,) = ran.err.splitlines()
        belongs = f"group {others[0]!r} belongs to the agent at 127.0.0.1:{NOWHERE}, which is not reached"
        assert (belongs in line, "docs/zones.md" in line) == (True, True), line


async def test_the_agent_at_hand_needs_no_address_that_is_reached(world: World) -> None:
    """The one behind the port-forward itself: it serves its own groups, and its list is not missing."""
    a, b = await pair(world, advertised_port=NOWHERE)
    names = sorted([*await groups_of(a), *(others := await groups_of(b))])
    assert [row["group"] for row in await table(b, "group", "list")] == names
    assert (await table(b, "group", "describe", others[0]))["state"] == "Empty"
    assert await table(b, "group", "delete", *names) == {"deleted": names}


async def test_an_agent_that_has_left_is_not_missed(world: World) -> None:
    """Metadata lists it a moment longer; its groups are with the others."""
    a, b = await pair(world)
    names = sorted([*await groups_of(a), *await groups_of(b)])
    async with session(bootstrap(a)) as anyone:
        assert [group.group_id for group in (await listed(anyone))[0]] == names
        node = services(b).replica.node_id
        await b.stop()
        async with asyncio.timeout(20):
            await until(lambda: services(a).hints.view().nodes == [services(a).replica.node_id])
        known = services(a).lingering.listed(services(a).standing.brokers().values())
        assert node in [broker.node_id for broker in known]
        found, problem = await listed(anyone)
    assert ([group.group_id for group in found], problem) == (names, None)


Refuse = Callable[[App, int, Code], list[str]]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """`refuse(agent, times, code)`: it says so for groups so many times. Gives who was refused."""

    def begin(app: App, times: int, code: Code) -> list[str]:
        told: list[str] = []
        coordinator = services(app).groups
        usual = coordinator.refusal

        def refusal(group_id: str) -> Code | None:
            if len(told) >= times:
                return usual(group_id)
            told.append(group_id)
            return code

        monkeypatch.setattr(coordinator, "refusal", refusal)
        return told

    return begin


@pytest.mark.parametrize("code", MOVING)
async def test_a_group_on_its_way_is_asked_for_again(
    world: World, refuse: Refuse, monkeypatch: pytest.MonkeyPatch, code: Code
) -> None:
    monkeypatch.setattr(finding, "PATIENCE_S", 60.0)
    monkeypatch.setattr(finding, "PAUSE_S", 0.01)
    a, b = await pair(world)
    name = (await groups_of(b))[0]
    told = refuse(b, 3, code)
    async with coordinators(bootstrap(a)) as agents:
        await agents.ask(name, partial(group_requests.delete, name=name))
    assert told == [name] * 3


async def test_what_stays_refused_is_told_and_what_is_refused_for_good_at_once(
    world: World, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await pair(world)
    name = (await groups_of(b))[0]
    tries: list[Session] = []

    async def described(one: Session) -> group_requests.Group:
        tries.append(one)
        return await group_requests.described(one, name)

    async with coordinators(bootstrap(a)) as agents:
        told = refuse(b, 1, Code.GROUP_AUTHORIZATION_FAILED)
        with pytest.raises(Refusal, match="GROUP_AUTHORIZATION_FAILED"):
            await agents.ask(name, described)
        assert (len(tries), told) == (2, [name])
        monkeypatch.setattr(finding, "PATIENCE_S", 0.0)
        refuse(b, 1_000, Code.NOT_COORDINATOR)
        with pytest.raises(Failure, match="NOT_COORDINATOR") as ended:
            await agents.ask(name, described)
        assert ended.value.status is Status.REFUSED
