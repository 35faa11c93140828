"""How long the explorer takes for all its scopes, and how many states that is (tests/explore)."""

from __future__ import annotations

from collections.abc import Iterable

from tests.bench.figure import Figure
from tests.explore.scopes import SCOPES
from tests.explore.search import explore

MINUTES_GOAL = 15


def figures() -> Iterable[Figure]:
    """CPU time of the one core that it uses. A finding, or a scope that ends early, is no figure."""
    states, depth, seconds = 0, 0, 0.0
    for scope in SCOPES:
        outcome = explore(scope.make())
        assert outcome.complete, f"{scope.name}: {outcome.found}"
        states, depth = states + outcome.states, max(depth, outcome.depth)
        seconds += outcome.seconds
    yield Figure("explorer, all scopes, complete", seconds / 60, "minutes", goal=MINUTES_GOAL, better="less")
    yield Figure("explorer, states", states, "states")
    yield Figure("explorer, depth", depth, "steps")
    yield Figure("explorer, speed", states / seconds, "states/s")
