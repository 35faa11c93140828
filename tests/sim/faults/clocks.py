"""The wall clock of one agent jumps or runs at another speed: both ways, by minutes, hours, years.

Of one at a time: what most agents say is right (rule 15). Its monotonic clock goes on as it should.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

MINUTE_MS, DAY_MS = 60_000, 86_400_000
JUMPS_MS = (2 * MINUTE_MS, 60 * MINUTE_MS, 8 * DAY_MS, 365 * DAY_MS, 20_000 * DAY_MS)
RATES = (0.0, 0.5, 3.0, 100.0, 100_000.0)
"""Of seconds that it shows per second."""


def _alone(world: World, targets: Sequence[AgentNode]) -> AgentNode | None:
    """The one of them whose clock goes wrong; None while another's is."""
    if any(each.clock is not None and each.clock.wrong for each in world.agents):
        return None
    return next((each for each in targets if each.clock is not None), None)


def _jump(world: World, targets: Sequence[AgentNode]) -> None:
    agent = _alone(world, targets)
    if agent is not None and agent.clock is not None:
        far = world.loop.random.choice(JUMPS_MS) * world.loop.random.choice((1, 1, -1))
        world.trace(f"{agent.identity} jumps by {far} ms")
        agent.clock.jump(far)


def _drift(world: World, targets: Sequence[AgentNode]) -> None:
    agent = _alone(world, targets)
    if agent is not None and agent.clock is not None:
        agent.clock.drift(world.loop.random.choice(RATES))


def _right(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        if agent.clock is not None:
            agent.clock.set_right()


CLOCKS = (Fault("clock-jumps", _jump, _right), Fault("clock-drifts", _drift, _right))
