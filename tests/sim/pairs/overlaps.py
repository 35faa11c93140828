"""Which kinds of faults were on together in a run. It only looks: a run is the same with it and without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from tests.sim.node import AgentNode
from tests.sim.pairs.kinds import BY_NAME, RESTORED_BESIDE, WINDOW_S, Kind, pair_of

if TYPE_CHECKING:
    from tests.sim.world import World

SEEN = "pair "
"""Before a pair's name among the counts of a run."""


@dataclass(slots=True)
class _On:
    """A fault that has begun. `since_s`: when it was seen to be on; None while it waits for its step."""

    kind: Kind
    targets: tuple[AgentNode, ...]
    since_s: float | None = None


class Overlaps:
    """One run's."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._on: dict[int, _On] = {}
        """By the fault's number in the plan."""
        self.pairs: set[str] = set()

    def begins(self, number: int, name: str, targets: Sequence[AgentNode], begin: Callable[[], None]) -> None:
        """Let a fault begin; what was on before and what is on after is on together with it."""
        before = self._kinds()
        begin()
        if (kind := BY_NAME.get(name)) is None:
            return
        one = self._on[number] = _On(kind, tuple(targets))
        if kind.armed:
            self._wait(one)
        else:
            self._see(one, before)

    def ends(self, number: int, end: Callable[[], None]) -> None:
        """Let a fault end: what has come on in its course was on together with it."""
        self._look()
        end()
        one = self._on.get(number)
        if one is not None and not one.kind.at_once:
            del self._on[number]

    def counted(self) -> None:
        """Note it among the counts of the run."""
        self._world.seen.counts.update({SEEN + pair: 1 for pair in sorted(self.pairs)})

    def _wait(self, one: _On) -> None:
        """Until an agent comes to its step."""
        armed = self._world.seen.armed
        for agent in one.targets:
            if agent.name in armed:
                step, happens = armed[agent.name]
                armed[agent.name] = step, partial(self._happens, one, agent, happens)

    def _happens(self, one: _On, agent: AgentNode, happens: Callable[[], None]) -> None:
        before = self._kinds()
        happens()
        one.targets = (agent,)
        self._see(one, before)

    def _see(self, one: _On, before: Sequence[str]) -> None:
        """It is on now, if one feels it."""
        if one.kind.felt(self._world, one.targets):
            one.since_s = self._world.loop.time()
            self._note([one.kind.name], before)
        self._look()

    def _look(self) -> None:
        """Whatever is on now is on together."""
        names = sorted(set(self._kinds()))
        self.pairs.update(pair_of(*two) for two in combinations(names, 2))

    def _note(self, names: Sequence[str], others: Sequence[str]) -> None:
        self.pairs.update(pair_of(one, other) for one in names for other in others if one != other)

    def _kinds(self) -> list[str]:
        """The kinds that are on, or were a moment ago."""
        world, now_s, found = self._world, self._world.loop.time(), []
        for number, one in list(self._on.items()):
            fresh = one.since_s is not None and now_s - one.since_s <= WINDOW_S
            if one.kind.at_once:
                if not fresh:
                    del self._on[number]
                    continue
            elif not fresh and not (self._begun(one) and one.kind.felt(world, one.targets)):
                continue
            found.append(one.kind.name)
        return found

    def _begun(self, one: _On) -> bool:
        return one.since_s is not None or not one.kind.armed


def restored(world: World) -> None:
    """The log went back: agents were dead and stood still meanwhile."""
    world.seen.counts.update({SEEN + pair_of("restore", each): 1 for each in RESTORED_BESIDE})
