"""Groups as administrators see them: from the table that runs here, else from the state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.kafka.groups.classic import ClassicGroup
from agent.kafka.groups.members import Member
from coordination.state import State
from coordination.state.consumer_protocol import PROTOCOL_TYPE
from coordination.state.consumer_types import MemberState
from coordination.state.group_types import CLASSIC, CONSUMER, Group

if TYPE_CHECKING:
    from agent.kafka.groups.coordinator import GroupCoordinator


@dataclass(frozen=True, slots=True)
class Listed:
    """One group. `state` and `kind` as Kafka spells them; `members` only of classic groups."""

    group_id: str
    kind: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[Member, ...]


def listed(state: State, coordinator: GroupCoordinator, group_id: str) -> Listed | None:
    """The group; None when it does not exist."""
    known = state.groups.get(group_id)
    if known is not None and known.kind == CONSUMER:
        return Listed(group_id, CONSUMER, consumer_state(known), PROTOCOL_TYPE, "", ())
    running = coordinator.group(group_id)
    if running is None:
        if known is None:
            return None
        running = ClassicGroup(group_id)
        running.load(known, 0.0)
    return Listed(
        group_id,
        CLASSIC,
        running.state.value,
        running.protocol_type or "",
        running.protocol or "",
        tuple(running.members.values()),
    )


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


def all_listed(state: State, coordinator: GroupCoordinator) -> Iterator[Listed]:
    """Every group that this agent coordinates."""
    names = dict.fromkeys([*state.groups, *coordinator.running()])
    for group_id in names:
        if coordinator.is_coordinator(group_id):
            group = listed(state, coordinator, group_id)
            if group is not None:
                yield group
