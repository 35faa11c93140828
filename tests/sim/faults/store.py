"""The store fails, for some agents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from objectstore.faulty import FaultRates
from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode
from tests.sim.sick.store import Road

if TYPE_CHECKING:
    from tests.sim.world import World

RATES = FaultRates(
    refused=0.05,
    lost_request=0.03,
    lost_answer=0.05,
    truncated=0.02,
    corrupt=0.02,
    slow=0.2,
    slow_s_max=1.5,
    stale=0.1,
)
REFUSED = FaultRates(refused=1.0, stale_writes=0)
HEALTHY = FaultRates(stale_writes=0)


def _bad_store(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.store is not None:
            agent.store.rates = RATES


def _good_store(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.store is not None:
            agent.store.rates = HEALTHY


def _refuse_store(world: World, targets: Sequence[AgentNode]) -> None:
    """Every request is refused, as with a key that was taken back: nothing is written, and that is known."""
    del world
    for agent in targets:
        if agent.store is not None:
            agent.store.rates = REFUSED


def _hang(world: World, targets: Sequence[AgentNode]) -> None:
    """PUTs of chunks hang by chance: their hedges come first, and they land behind them."""
    del world
    for agent in targets:
        agent.hanging.on = True


def _flow(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        agent.hanging.on = False


def lose_store(world: World, targets: Sequence[AgentNode]) -> None:
    """Nothing is answered: what is on its way arrives when the way is whole again."""
    del world
    for road in filter(None, map(Road.of, targets)):
        road.cut(cut=True)


def fill_store(world: World, targets: Sequence[AgentNode]) -> None:
    """Nothing can be written."""
    del world
    for road in filter(None, map(Road.of, targets)):
        road.full = True


def whole_store(world: World, targets: Sequence[AgentNode]) -> None:
    """The end of both."""
    del world
    for road in filter(None, map(Road.of, targets)):
        road.cut(cut=False)
        road.full = False


LATE_PUTS = Fault("late-puts", _hang, _flow)
STORE = (
    Fault("bad-store", _bad_store, _good_store),
    Fault("refuse-store", _refuse_store, _good_store),
)
ROADS = (
    Fault("lose-store", lose_store, whole_store),
    Fault("fill-store", fill_store, whole_store),
)
"""As of a sick agent, beside anything else."""
