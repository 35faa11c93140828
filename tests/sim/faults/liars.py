"""The agent that its zone follows is not honest, or not quick (agent/cluster/relay). Any agent may be it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from agent.cluster.relay.ring import Ring
from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

LIE_OF = 0.3
LATE_S = (0.8, 2.0)
Add = Callable[["World", Ring, int, bytes], None]
"""What becomes of an entry of this revision that the ring is to keep."""


def _rings(targets: Sequence[AgentNode]) -> list[Ring]:
    apps = [agent.app for agent in targets if agent.app is not None]
    return [app.relayed.ring for app in apps if app.relayed is not None]


def _keeps(add: Add) -> Callable[[World, Sequence[AgentNode]], None]:
    def begin(world: World, targets: Sequence[AgentNode]) -> None:
        for ring in _rings(targets):
            vars(ring)["add"] = partial(add, world, ring)

    return begin


def _mute(world: World, targets: Sequence[AgentNode]) -> None:
    """Its connections stay, and nothing comes by them."""
    del world
    for ring in _rings(targets):
        vars(ring)["wake"] = lambda: None


def _honest(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for ring in _rings(targets):
        for name in ("add", "wake"):
            vars(ring).pop(name, None)


def _damage(world: World, ring: Ring, revision: int, item: bytes) -> None:
    chance = world.loop.random
    if chance.random() < LIE_OF:
        changed = bytearray(item)
        changed[chance.randrange(len(item))] ^= 1 << chance.randrange(8)
        item = bytes(changed)
    Ring.add(ring, revision, item)


def _hide(world: World, ring: Ring, revision: int, item: bytes) -> None:
    if world.loop.random.random() < LIE_OF:
        ring.reach(revision)
    else:
        Ring.add(ring, revision, item)


def _hide_all(world: World, ring: Ring, revision: int, item: bytes) -> None:
    """There is nothing new, it says."""
    del world, item
    ring.reach(revision)


def _late(world: World, ring: Ring, revision: int, item: bytes) -> None:
    """In order, as long as it lies; it may die meanwhile, or be honest again."""
    due = max(getattr(ring, "late", 0.0), world.loop.time() + world.loop.random.uniform(*LATE_S))
    vars(ring)["late"] = due
    world.loop.call_at(due, _if_open, ring, ring._life, revision, item)


def _if_open(ring: Ring, life: int, revision: int, item: bytes) -> None:
    if ring.open and ring._life == life and revision > ring.through:
        Ring.add(ring, revision, item)


LIARS = (
    Fault("relay-damages", _keeps(_damage), _honest),
    Fault("relay-hides", _keeps(_hide), _honest),
    Fault("relay-hides-all", _keeps(_hide_all), _honest),
    Fault("relay-is-late", _keeps(_late), _honest),
    Fault("relay-is-mute", _mute, _honest),
)
