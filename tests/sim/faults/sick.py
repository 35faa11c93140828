"""One agent is sick while the others are well. What must follow is judged (tests/sim/sick)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults.fault import Fault
from tests.sim.faults.log import LOG
from tests.sim.faults.slowness import SLOWNESS, feed, starve
from tests.sim.faults.store import STORE, fill_store, lose_store, whole_store
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

CRAWL_STORE_S, CRAWL_LOG_S = (0.6, 1.0), (0.1, 0.4)
"""One way: each PUT takes longer than `health.slow_ms_max`, ten to fifty times what the others have."""
STILL_S, AWAKE_S = (0.7, 1.3), (0.01, 0.05)
"""How long one without a processor stands still at a time, and how long it runs."""
BAD_S, GOOD_S = (3.0, 4.0), (2.5, 3.5)
"""What comes and goes: long enough to be noticed, and to look well again."""
Act = Callable[["World", Sequence[AgentNode]], None]


def _crawl(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        agent.ways.store_s, agent.ways.log_s = CRAWL_STORE_S, CRAWL_LOG_S


def _stand(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.loop.pause(agent.identity)


def _wake(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.loop.resume(agent.identity)


def _like(name: str) -> Fault:
    """What others call by that name."""
    return next(each for each in (*LOG, *STORE, *SLOWNESS) if each.name == name)


REFUSED, FAR = _like("refuse-store"), _like("far-away")


def _come(world: World, targets: Sequence[AgentNode]) -> None:
    """Refused by the store for a few seconds, again and again."""
    for agent in targets:
        agent.starved = True  # until it is fed
        _bad(world, agent)


def _bad(world: World, agent: AgentNode) -> None:
    if agent.starved:
        REFUSED.begin(world, [agent])
        world.loop.call_later(world.loop.random.uniform(*BAD_S), _good, world, agent)


def _good(world: World, agent: AgentNode) -> None:
    REFUSED.end(world, [agent])
    world.loop.call_later(world.loop.random.uniform(*GOOD_S), _bad, world, agent)


def _go(world: World, targets: Sequence[AgentNode]) -> None:
    feed(world, targets)
    REFUSED.end(world, targets)


def _begin(name: str, act: Act, world: World, targets: Sequence[AgentNode]) -> None:
    world.sickbed.begin(name, targets)
    act(world, targets)


def _end(act: Act, world: World, targets: Sequence[AgentNode]) -> None:
    act(world, targets)
    world.sickbed.end(targets)


def _sickness(name: str, begin: Act, end: Act) -> Fault:
    return Fault(name, partial(_begin, name, begin), partial(_end, end))


SICK = (
    _sickness("sick-lose-store", lose_store, whole_store),
    _sickness("sick-refuse-store", REFUSED.begin, REFUSED.end),
    _sickness("sick-full-store", fill_store, whole_store),
    _sickness("sick-cut-log", _like("cut-log").begin, _like("cut-log").end),
    _sickness("sick-refuse-log", _like("refuse-log").begin, _like("refuse-log").end),
    _sickness("sick-deaf-log", _like("deafen-log").begin, _like("deafen-log").end),
    _sickness("sick-slow", _crawl, FAR.end),
    _sickness("sick-far", FAR.begin, FAR.end),
    _sickness("sick-still", _stand, _wake),
    _sickness("sick-starved", partial(starve, STILL_S, AWAKE_S), feed),
    _sickness("sick-come-and-go", _come, _go),
    _sickness("sick-all-full", fill_store, whole_store),
    _sickness("sick-all-cut", _like("cut-log").begin, _like("cut-log").end),
)
"""Those of seeds with a sick agent (plan.py)."""
