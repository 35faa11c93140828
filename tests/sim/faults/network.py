"""Connections between clients and agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agent.net.wire.api import BY_NAME
from tests.sim.faults.fault import Fault, nothing
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

HELD_KINDS = (0, 8, 11, 14, 22, 24, 25, 26, 28)
"""Produce, OffsetCommit, JoinGroup, SyncGroup, and those of transactions: InitProducerId, AddPartitionsToTxn,
AddOffsetsToTxn, EndTxn, TxnOffsetCommit."""
LOSSES = (0.02, 0.2, 0.5)
"""Shares of segments that are lost."""


def _cut_clients(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            if world.loop.random.random() < 0.5:
                world.network.cut(client.name, agent.name)
            if world.loop.random.random() < 0.5:
                world.network.cut(agent.name, client.name)


def _heal_clients(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            world.network.heal(client.name, agent.name)
            world.network.heal(agent.name, client.name)


def _cut_agents(world: World, targets: Sequence[AgentNode]) -> None:
    """From each other, one way or both: chunks are read from the store then."""
    for agent in targets:
        for other in world.agents:
            if other is not agent and world.loop.random.random() < 0.7:
                world.network.cut(other.name, agent.name)
            if other is not agent and world.loop.random.random() < 0.7:
                world.network.cut(agent.name, other.name)


def _heal_agents(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for other in world.agents:
            world.network.heal(other.name, agent.name)
            world.network.heal(agent.name, other.name)


def _lose_segments(world: World, targets: Sequence[AgentNode]) -> None:
    share = world.loop.random.choice(LOSSES)
    for agent in targets:
        for client in world.clients:
            world.network.lose(client.name, agent.name, share)
            world.network.lose(agent.name, client.name, share)


def _lose_no_segments(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            world.network.lose(client.name, agent.name, 0.0)
            world.network.lose(agent.name, client.name, 0.0)


def _reset(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.network.reset(agent.name)


def _half_open(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.network.half_open(agent.name)


def _hold(world: World, targets: Sequence[AgentNode], name: str = "") -> None:
    """Requests of the named kind, or of some."""
    del targets
    kinds = [kind for kind in HELD_KINDS if world.loop.random.random() < 0.6]
    world.network.held_kinds = frozenset([BY_NAME[name].key] if name else kinds)


def _release(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.held_kinds = frozenset()


def _end_late(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = True


def _end_in_time(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = False


def _positions_late(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = world.network.late_ends.positions = True


def _positions_in_time(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = world.network.late_ends.positions = False


NETWORK = (
    Fault("cut-clients", _cut_clients, _heal_clients),
    Fault("cut-agents", _cut_agents, _heal_agents),
    Fault("lose-segments", _lose_segments, _lose_no_segments),
    Fault("reset", _reset, nothing),
    Fault("half-open", _half_open, nothing),
    Fault("hold-requests", _hold, _release, _hold),
)
LATE_ENDS = Fault("late-ends", _end_late, _end_in_time)
LATE_POSITIONS = Fault("late-positions", _positions_late, _positions_in_time)
