"""A rolling upgrade: agents begin at a level that is not the newest, and are replaced one after the other.

Who finalizes the newest level does so when everything is healed (world.py), as an administrator would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

EACH_S = 1.5


def _upgrade(world: World, targets: Sequence[AgentNode]) -> None:
    """Every agent, whoever the targets are."""
    del targets
    for number, agent in enumerate(world.agents):
        world.loop.call_later(EACH_S * number, _replaced, agent)


def _replaced(agent: AgentNode) -> None:
    if agent.feature_max < FEATURE_LEVEL_MAX:
        agent.feature_max = FEATURE_LEVEL_MAX
        agent.crash()
        agent.start()


def _all_replaced(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    for agent in world.agents:
        _replaced(agent)


UPGRADE = Fault("upgrade", _upgrade, _all_replaced)
