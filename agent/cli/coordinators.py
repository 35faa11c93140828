"""Whose a group is: sessions with the agents that coordinate groups, found from one with any agent.

A group is served by one agent, which FindCoordinator names; every other one says NOT_COORDINATOR, and nothing
has happened then. The agent of `--bootstrap` is asked first: where it is the only one, or the right one, no
address that it advertises has to be reached from here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from agent.cli.failures import Failure, Status, unreachable
from agent.cli.session import (
    CLIENT_ID,
    NoConnection,
    Refusal,
    Session,
    address_of,
    check_code,
    session,
    session_at,
)
from agent.net.wire.generated.describe_groups import DescribeGroupsRequest
from agent.net.wire.generated.find_coordinator import FindCoordinatorRequest
from agent.net.wire.generated.list_groups import ListedGroup, ListGroupsRequest
from agent.net.wire.generated.metadata import MetadataRequest
from coordination.kafka_codes import Code

if TYPE_CHECKING:
    from agent.net.wire.generated.find_coordinator import Coordinator
    from agent.net.wire.generated.metadata import MetadataResponseBroker

GROUP_KEY = 0
PATIENCE_S = 5.0
"""How long a group's agent is looked for while agents come, go or begin."""
PAUSE_S = 0.2
PROBES = 16
"""Names of groups, for each agent, by which it is found who coordinates any: one that does has some of them,
but for one case in millions."""
MOVING = (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS)
REMEDY = (
    "run floe where the addresses that agents advertise are reached, or give agents a listener for clients "
    "outside (docs/zones.md)"
)

T = TypeVar("T")


class Coordinators:
    """Sessions with the agents of groups. They end with `coordinators`."""

    def __init__(self, anyone: Session, stack: AsyncExitStack) -> None:
        self.anyone = anyone
        """The agent of the bootstrap address: for whatever any agent serves."""
        self._stack = stack
        self._opened: dict[str, Session] = {}

    async def ask(self, group: str, work: Callable[[Session], Awaitable[T]]) -> T:
        """What `work` gives with the session of the group's agent. Raises Failure.

        It is done again, for PATIENCE_S, where the group is on its way to another agent.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while True:
            try:
                return await self._once(group, work)
            except (Refusal, _NotReached) as failure:
                passes = isinstance(failure, _NotReached) or failure.code in MOVING
                if not passes or loop.time() >= until:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _once(self, group: str, work: Callable[[Session], Awaitable[T]]) -> T:
        """At the agent of the bootstrap address, else at the one that it names."""
        try:
            return await work(self.anyone)
        except Refusal as refusal:
            if refusal.code not in MOVING:
                raise
        (found,) = await _found(self.anyone, [group])
        check_code(found.error_code, found.error_message, f"the agent of group {group!r} is not known")
        address = address_of(found.host, found.port)
        if address not in self._opened:
            try:
                opening = session_at(found.host, found.port)
                self._opened[address] = await self._stack.enter_async_context(opening)
            except NoConnection as error:
                what = f"group {group!r} belongs to the agent at {address}, which is not reached ({error})"
                raise _NotReached(Status.UNREACHABLE, f"{what}; {REMEDY}") from None
        return await work(self._opened[address])


class _NotReached(Failure):
    """The agent of a group is not reached at the address that it advertises."""


@asynccontextmanager
async def coordinators(bootstrap: str) -> AsyncIterator[Coordinators]:
    """Sessions with the agents of groups. Raises Failure."""
    async with AsyncExitStack() as stack:
        yield Coordinators(await stack.enter_async_context(session(bootstrap)), stack)


async def listed(anyone: Session) -> tuple[list[ListedGroup], Failure | None]:
    """The groups of all agents, by name; and when some agent does not tell its own, who and why."""
    brokers = (await anyone.call("Metadata", MetadataRequest(topics=[]))).brokers
    answers = await asyncio.gather(*[_groups_of(broker) for broker in brokers])
    silent = {
        broker.node_id: answer
        for broker, answer in zip(brokers, answers, strict=True)
        if isinstance(answer, str)
    }
    groups = {group.group_id: group for answer in answers if isinstance(answer, list) for group in answer}
    problem = None
    if silent:  # the address that is not reached may be that of the agent at the other end
        groups |= {group.group_id: group for group in await _own(anyone)}
        missing = await _missing(anyone, silent, len(brokers))
        if missing:
            problem = unreachable(f"the groups of {'; '.join(missing)} are missing; {REMEDY}")
    return [groups[name] for name in sorted(groups)], problem


async def _groups_of(broker: MetadataResponseBroker) -> list[ListedGroup] | str:
    """The groups that one agent coordinates; or who it is and why it does not say."""
    address = address_of(broker.host, broker.port)
    try:
        async with session_at(broker.host, broker.port) as there:
            return await _own(there)
    except (NoConnection, Failure) as error:
        return f"agent {broker.node_id} at {address} ({error})"


async def _own(one: Session) -> list[ListedGroup]:
    """The groups that the agent coordinates."""
    answer = await one.call("ListGroups", ListGroupsRequest())
    check_code(answer.error_code, None, "the groups are not listed")
    found: list[ListedGroup] = answer.groups
    return found


async def _missing(anyone: Session, silent: Mapping[int, str], agents: int) -> list[str]:
    """Why the groups of agents are missing that did not tell them.

    An agent that has gone is in Metadata a moment longer, and coordinates nothing. Which agent is at the
    other end no answer of Kafka's tells; but it answers for the groups that are its own, and no others.
    """
    found = await _found(anyone, [f"{CLIENT_ID}-{number}" for number in range(PROBES * agents)])
    if any(each.error_code for each in found):
        return list(silent.values())
    nodes = {each.key: each.node_id for each in found}
    answer = await anyone.call("DescribeGroups", DescribeGroupsRequest(groups=list(nodes)))
    here = {nodes[each.group_id] for each in answer.groups if each.error_code not in MOVING}
    return [why for node, why in silent.items() if node in nodes.values() and node not in here]


async def _found(one: Session, groups: Sequence[str]) -> list[Coordinator]:
    request = FindCoordinatorRequest(key_type=GROUP_KEY, coordinator_keys=list(groups))
    found: list[Coordinator] = (await one.call("FindCoordinator", request)).coordinators
    return found
