"""Clients die and stand still."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.faults.fault import Fault, nothing
from tests.sim.loop import NODE
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World


def _crash_client(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.crash_client(world.loop.random.choice(world.clients))


def _pause_member(world: World, targets: Sequence[AgentNode]) -> None:
    """A member of the group stands still: the others go on without it, and it knows nothing of that."""
    del targets
    members = [client for client in world.clients if client.name.startswith("m")]
    for client in members[:1]:
        world.trace(f"pause {client.identity}")
        world.loop.pause(client.identity)


def _pause_member_before_end(world: World, targets: Sequence[AgentNode]) -> None:
    """Whoever comes to the end of its transaction next, with its positions sent."""
    del targets
    if world.around is not None:
        world.around.before_end = lambda: world.loop.pause(NODE.get())


def _resume_members(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    if world.around is not None:
        world.around.before_end = None
    for client in world.clients:
        world.loop.resume(client.identity)


CLIENTS = (Fault("crash-client", _crash_client, nothing),)
MEMBERS = (
    Fault("pause-member", _pause_member, _resume_members),
    Fault("pause-member-before-end", _pause_member_before_end, _resume_members),
)
