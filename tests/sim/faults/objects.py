"""Objects are damaged for a while, beside whatever `scrubbing.py` does; agents scrub; a topic is away.

No seed draws them by itself: `pairs/` does, with plans whose damage is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from objectstore.naming import CHUNKS, LOG, MANIFESTS, SEGMENTS, SNAPSHOTS
from tests.sim.damage import Skipper
from tests.sim.faults.fault import Fault, nothing
from tests.sim.node import AgentNode
from tests.sim.scrubbing import scrubbed_beside

if TYPE_CHECKING:
    from tests.sim.world import World

KINDS = {
    "damage-chunk": (CHUNKS,),
    "damage-merged": (SEGMENTS, MANIFESTS),
    "damage-snapshot": (SNAPSHOTS,),
    "damage-archive": (LOG,),
}
"""By fault the names that the object's name may begin with."""


def _damage(name: str, world: World, targets: Sequence[AgentNode]) -> None:
    """One object, whoever the targets are; nothing where there is none, or where nobody judges it."""
    del targets
    if world.vandalism.on:
        world.loop.create_task(_damaged(name, world))


async def _damaged(name: str, world: World) -> None:
    done, random = world.vandalism, world.loop.random
    keys = sorted(key for key in done.objects._objects if key.startswith(KINDS[name]) and done.whole(key))
    if keys:
        key = random.choice(keys)
        done.by_fault.setdefault(name, []).append(key)
        await done.damage(key, random)


def _bring_back(name: str, world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    for key in world.vandalism.by_fault.pop(name, ()):
        world.loop.create_task(world.vandalism.bring_back(key))


def _damage_records(world: World, targets: Sequence[AgentNode]) -> None:
    """For good. Who reads them has its own time to decide to go on without them (damage.py)."""
    del targets
    skipper = world.living.get("skipper")
    if isinstance(skipper, Skipper):
        world.loop.create_task(skipper.damage_once())


def _scrub(world: World, targets: Sequence[AgentNode]) -> None:
    del world
    for agent in targets:
        scrubbed_beside(agent)


def _take_topic_away(world: World, targets: Sequence[AgentNode]) -> None:
    """The topic of `mortal.py` is deleted as soon as its client comes to it, and stays away until the end."""
    del targets
    world.witness.mortal.kept_away = True


def _let_topic_back(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.witness.mortal.kept_away = False


def _hold(world: World, targets: Sequence[AgentNode]) -> None:
    """One that holds records is kept for good, whoever deletes it."""
    del targets
    keys = sorted(key for key in world.objects._objects if key.startswith((CHUNKS, SEGMENTS)))
    if keys:
        world.held.add(world.loop.random.choice(keys))


OBJECTS = (
    *(Fault(name, partial(_damage, name), partial(_bring_back, name)) for name in KINDS),
    Fault("damage-records", _damage_records, nothing),
    Fault("hold-object", _hold, nothing),
    Fault("scrub", _scrub, nothing),
    Fault("topic-away", _take_topic_away, _let_topic_back),
)
