"""Agents that live and are slow: far from what they need, or without a processor for most of the time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

Span = tuple[float, float]
"""Seconds, at least and at most."""
FAR_STORE_S, FAR_LOG_S = (0.2, 0.8), (0.02, 0.3)
"""One way, ten times and more what the others have."""
STILL_S, AWAKE_S = (0.05, 0.4), (0.005, 0.05)
"""How long a starved one stands still at a time, and how long it runs."""


def _far(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        agent.ways.store_s, agent.ways.log_s = FAR_STORE_S, FAR_LOG_S


def _near(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        agent.ways.store_s, agent.ways.log_s = agent.near.store_s, agent.near.log_s


def starve(still_s: Span, awake_s: Span, world: World, targets: Sequence[AgentNode]) -> None:
    """Each stands still for so long at a time and runs for so long between, until it is fed."""
    for agent in targets:
        if not agent.starved:
            agent.starved = True
            _still(still_s, awake_s, world, agent)


def _still(still_s: Span, awake_s: Span, world: World, agent: AgentNode) -> None:
    if agent.starved:
        if agent.alive:
            world.loop.pause(agent.identity)
        world.loop.call_later(world.loop.random.uniform(*still_s), _awake, still_s, awake_s, world, agent)


def _awake(still_s: Span, awake_s: Span, world: World, agent: AgentNode) -> None:
    world.loop.resume(agent.identity)
    world.loop.call_later(world.loop.random.uniform(*awake_s), _still, still_s, awake_s, world, agent)


def feed(world: World, targets: Sequence[AgentNode]) -> None:
    """It has its processor again, from when it next runs."""
    del world
    for agent in targets:
        agent.starved = False


SLOWNESS = (
    Fault("far-away", _far, _near),
    Fault("starve", partial(starve, STILL_S, AWAKE_S), feed),
)
