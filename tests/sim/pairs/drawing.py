"""Which pair a seed gets, and where in its plan: the least covered ones first, all from the seed's dice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random

from tests.sim.pairs.kinds import POSSIBLE, WINDOW_S, Kind, kinds_of, pair_of
from tests.sim.pairs.overlaps import SEEN
from tests.sim.plan import Plan

TRIES_AS_ONE = 4
"""A pair that was drawn so often and was not seen waits until all others were seen once: then once more."""
BEGINS_OF = (0.2, 0.45)
"""When the first of the two begins, of the time that there are faults at all."""
APART_S, APART_OF = 0.1, 0.6
"""How long after it the other begins: at least, and at most, of its time."""
AT_ONCE_OF = 0.7
"""Likewise where the first is over at once: of WINDOW_S."""
SAME_AGENTS_OF = 0.4
Fault = tuple[float, float, str, tuple[int, ...]]


@dataclass(slots=True)
class Table:
    """By pair in how many runs it was seen, and how often it was drawn. Only possible ones are drawn."""

    seen: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)
    possible: tuple[str, ...] = POSSIBLE

    def note(self, counts: Mapping[str, int]) -> None:
        """What runs came to, by the counts of their coverage."""
        for name, number in counts.items():
            if name.startswith(SEEN):
                self.seen[name.removeprefix(SEEN)] += number

    def draw(self, seed: int) -> str:
        """A pair for the seed, one of those least covered; it counts as drawn."""
        least = min(map(self._covered, self.possible))
        tied = [pair for pair in self.possible if self._covered(pair) == least]
        pair = Random(f"pair of {seed}").choice(tied)
        self.drawn[pair] += 1
        return pair

    def _covered(self, pair: str) -> tuple[int, int]:
        """Runs that came to it, as far as one knows; of as many, those that were drawn less come first."""
        drawn = self.drawn[pair]
        return self.seen[pair] + drawn // TRIES_AS_ONE, drawn

    def never(self) -> list[str]:
        """The possible ones that no run came to."""
        return [pair for pair in self.possible if not self.seen[pair]]


def drawn(plans: Iterable[Plan], table: Table) -> Iterator[Plan]:
    """The plans, each with the pair that is drawn for it."""
    for plan in plans:
        yield with_pair(plan, table.draw(plan.seed))


def with_pair(plan: Plan, pair: str) -> Plan:
    """The plan with two faults more that overlap, and with what these need. Raises KeyError."""
    kinds = kinds_of(pair)
    for kind in kinds:
        plan = kind.prepared(plan)
    random = Random(f"{plan.seed} {pair_of(*pair.split('+'))}")
    first, second = _ordered(random, *sorted(kinds, key=lambda kind: kind.name))
    planned = first.planned and second.planned  # who is not brings the other along
    events = list(_events(random, plan, first, second)) if planned else []
    faults = tuple(sorted((*plan.faults, *events)))
    return replace(plan, pair=pair_of(first.name, second.name), faults=faults)


def _ordered(random: Random, one: Kind, other: Kind) -> tuple[Kind, Kind]:
    """By chance; but what is over at once comes second, and who waits for a step first."""
    two = (one, other) if random.random() < 0.5 else (other, one)
    first, second = sorted(two, key=lambda kind: (kind.at_once, not kind.armed))
    return first, second


def _events(random: Random, plan: Plan, first: Kind, second: Kind) -> Iterator[Fault]:
    at = plan.seconds * random.uniform(*BEGINS_OF)
    some, others = _targets(random, plan.agents, first, second)
    for_s = random.uniform(*first.seconds)
    apart_s = WINDOW_S * AT_ONCE_OF if first.at_once else for_s * APART_OF
    yield at, for_s, first.name, some
    yield at + random.uniform(APART_S, apart_s), random.uniform(*second.seconds), second.name, others


def _targets(
    random: Random, agents: int, first: Kind, second: Kind
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The same agents or others. Who turns the same knob, or is down before the other begins, has its own."""
    numbers = random.sample(range(agents), agents)
    apart = (first.knob and first.knob == second.knob) or first.knob == "process" or second.armed
    if not apart and random.random() < SAME_AGENTS_OF:
        same = tuple(sorted(numbers[: random.choice((1, 1, 2, agents))]))
        return same, same
    size = random.randint(1, agents - 1)
    return tuple(sorted(numbers[:size])), tuple(sorted(numbers[size:]))
