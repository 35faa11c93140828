"""Visits every world that a model can reach, once. Breadth first: a finding comes with a shortest story.

A world's key is exact (small numbers, one per part that was seen before), not a hash of it: two worlds are
taken for one only when they are.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordination.state import StateError

Said = tuple[object, ...]  # a format string and what goes into it: told only when somebody listens
Step = tuple[Said, Any]
STATES_BETWEEN_REPORTS = 50_000


class Model(Protocol):
    """A small system: worlds are values, steps make new ones."""

    stories: Counter[str]  # how often each named turn of events was taken

    def start(self) -> Any:
        """The first world."""
        ...

    def steps(self, world: Any) -> Iterator[Step]:
        """What may happen next, in an order that is always the same."""
        ...

    def key(self, world: Any) -> Hashable:
        """What tells worlds apart that differ in what may still happen, or in what is found."""
        ...

    def findings(self, world: Any) -> list[str]:
        """What is wrong in it, each with its anomaly's name first."""
        ...


@dataclass
class Outcome:
    """What was seen, and what was found.

    `states` visited, `steps` taken between them, `depth` of the longest shortest story, `ends` with nothing
    left to happen, `seconds` of one core; `found` with the `story` that leads to it.
    """

    states: int = 0
    steps: int = 0
    depth: int = 0
    ends: int = 0
    seconds: float = 0.0
    complete: bool = False
    found: list[str] = field(default_factory=list)
    story: list[str] = field(default_factory=list)
    stories: Counter[str] = field(default_factory=Counter)


@dataclass
class _Trail:
    """How each state was reached first: from which one, by which of its steps."""

    parents: array[int] = field(default_factory=lambda: array("L", [0]))
    choices: array[int] = field(default_factory=lambda: array("H", [0]))

    def note(self, parent: int, choice: int) -> int:
        """The number of the state reached so."""
        self.parents.append(parent)
        self.choices.append(choice)
        return len(self.parents) - 1

    def tell(self, model: Model, number: int, last: Said) -> list[str]:
        """Take the way to the state again and write down what is said."""
        choices = []
        while number:
            choices.append(self.choices[number])
            number = self.parents[number]
        world, lines = model.start(), []
        for choice in reversed(choices):
            steps = model.steps(world)
            for _ in range(choice + 1):
                said, world = next(steps)
            lines.append(_told(said))
        return [*lines, _told(last)]


def explore(
    model: Model,
    states_max: int = 1 << 62,
    tell: Callable[[Outcome], None] = lambda outcome: None,
    at_end: Callable[[Any], None] = lambda world: None,
) -> Outcome:
    """Look at everything, to the first finding. `at_end` gets worlds in which nothing more can happen."""
    collects = gc.isenabled()
    gc.disable()  # worlds hold no cycles: looking for them among millions takes a quarter of the time
    try:
        return _explored(model, states_max, tell, at_end)
    finally:
        if collects:
            gc.enable()


def _explored(
    model: Model, states_max: int, tell: Callable[[Outcome], None], at_end: Callable[[Any], None]
) -> Outcome:
    began = time.process_time()
    outcome = Outcome(stories=model.stories)
    world = model.start()
    seen = {model.key(world)}
    trail = _Trail()
    level: list[tuple[Any, int]] = [(world, 0)]
    while level and not outcome.found and outcome.states < states_max:
        following: list[tuple[Any, int]] = []
        for world, number in level:
            outcome.states += 1
            _look(model, outcome, trail, (world, number), seen, following, at_end)
            if outcome.states % STATES_BETWEEN_REPORTS == 0:
                outcome.seconds = time.process_time() - began
                tell(outcome)
            if outcome.found or outcome.states >= states_max:
                break
        else:
            outcome.complete = not following
        level = following
        outcome.depth += bool(following)
    outcome.seconds = time.process_time() - began
    return outcome


def _look(
    model: Model,
    outcome: Outcome,
    trail: _Trail,
    here: tuple[Any, int],
    seen: set[Hashable],
    following: list[tuple[Any, int]],
    at_end: Callable[[Any], None],
) -> None:
    """Take every step from one world; those to worlds not seen before are followed."""
    world, number = here
    steps = model.steps(world)
    choice = 0
    said: Said = ("the next step",)
    try:
        for choice, (said, after) in enumerate(steps):
            outcome.steps += 1
            key = model.key(after)
            if key in seen:
                continue
            seen.add(key)
            following.append((after, trail.note(number, choice)))
            found = model.findings(after)
            if found:
                outcome.found, outcome.story = found, trail.tell(model, number, said)
                return
    except (StateError, AssertionError) as error:
        outcome.found, outcome.story = [f"stopped: {error}"], trail.tell(model, number, ("and then",))
        return
    if not choice and said == ("the next step",):
        outcome.ends += 1
        at_end(world)


def _told(said: Said) -> str:
    return str(said[0]).format(*said[1:])
