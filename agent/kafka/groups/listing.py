"""Groups as administrators see them: from the table that runs here, else from the state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import GroupState, Member
from agent.kafka.groups.steps import steps
from coordination.state import State
from coordination.state.consumer_protocol import PROTOCOL_TYPE
from coordination.state.consumer_types import MemberState
from coordination.state.group_types import CLASSIC, CONSUMER, ClassicGeneration, Group

if TYPE_CHECKING:
    from agent.kafka.groups.coordinator import GroupCoordinator


@dataclass(frozen=True, slots=True)
class Listed:
    """One group. `state` and `kind` as Kafka spells them."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    protocol: str


def listed(state: State, coordinator: GroupCoordinator, group_id: str) -> Listed | None:
    """The group; None when it does not exist."""
    known = state.groups.get(group_id)
    if known is not None and known.kind == CONSUMER:
        return Listed(group_id, CONSUMER, consumer_state(known), PROTOCOL_TYPE, "")
    running = coordinator.group(group_id)
    if running is not None:
        of_type, protocol = running.protocol_type or "", running.protocol or ""
        return Listed(group_id, CLASSIC, running.state.value, of_type, protocol)
    if known is None:
        return None
    generation = known.classic
    if generation is None:
        return Listed(group_id, CLASSIC, GroupState.EMPTY.value, "", "")
    of_type, protocol = generation.protocol_type, generation.protocol
    return Listed(group_id, CLASSIC, loaded_state(generation).value, of_type, protocol)


def members_of(state: State, coordinator: GroupCoordinator, group_id: str) -> tuple[Member, ...]:
    """The members of a classic group."""
    running = coordinator.group(group_id)
    if running is None:
        running = ClassicGroup(group_id)
        known = state.groups.get(group_id)
        if known is not None:
            running.load(known, 0.0)
    return tuple(running.members.values())


def loaded_state(generation: ClassicGeneration) -> GroupState:
    """The state in which a classic group is taken over."""
    if not generation.members:
        return GroupState.EMPTY
    return GroupState.STABLE if generation.assigned else GroupState.COMPLETING


def consumer_state(group: Group) -> str:
    """The state of a group of KIP-848, as Kafka derives it from the epochs."""
    data = group.consumer
    if data is None or not data.members:
        return "Empty"
    if data.group_epoch > data.assignment_epoch:
        return "Assigning"
    settled = (
        member.epoch == data.assignment_epoch and member.state is MemberState.STABLE
        for member in data.members.values()
    )
    return "Stable" if all(settled) else "Reconciling"


async def all_listed(state: Callable[[], State], coordinator: GroupCoordinator) -> AsyncIterator[Listed]:
    """Every group that this agent coordinates, step by step: `state` is asked for what it is by then."""
    seen: set[str] = set()
    for names in (state().groups, coordinator.running()):
        async for group_id in steps(names):
            if group_id in seen or not coordinator.is_coordinator(group_id):
                continue
            seen.add(group_id)
            group = listed(state(), coordinator, group_id)
            if group is not None:
                yield group
