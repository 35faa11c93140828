"""The faults of a plan, each at its time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults import Fault, fault_of
from tests.sim.pairs.overlaps import Overlaps
from tests.sim.plan import Plan

if TYPE_CHECKING:
    from tests.sim.world import World

Event = tuple[float, int, bool, Fault, tuple[int, ...]]
"""When, the fault's number in the plan, whether it begins there, and the agents' numbers."""


async def play(world: World) -> None:
    """Let every fault begin and end; over when the plan's time is."""
    overlaps, begun, seen = Overlaps(world), world.loop.time(), world.seen
    for at, number, begins, fault, numbers in sorted(_events(world.plan), key=lambda event: event[:3]):
        await asyncio.sleep(max(0.0, begun + at - world.loop.time()))
        agents = [world.agents[each] for each in numbers]
        world.trace(f"{'begin' if begins else 'end'} {fault.name} {[each.name for each in agents]}")
        seen.counts[f"fault {fault.name}"] += begins
        seen.faults[fault.name] += 1 if begins else -1
        seen.faults += Counter()  # those that are over go
        if begins:
            overlaps.begins(number, fault.name, agents, partial(fault.begin, world, agents))
        else:
            overlaps.ends(number, partial(fault.end, world, agents))
    overlaps.counted()
    await asyncio.sleep(max(0.0, begun + world.plan.seconds - world.loop.time()))


def _events(plan: Plan) -> Iterator[Event]:
    for number, (at, seconds, kind, targets) in enumerate(plan.faults):
        fault = fault_of(kind)
        yield at, number, True, fault, targets
        yield min(at + seconds, plan.seconds), number, False, fault, targets
