"""A failing run made small: fewer faults, fewer clients, less time, as long as the same anomaly is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.outcome import Outcome
from tests.sim.plan import QUIET_S, Plan
from tests.sim.world import World

RUNS_MAX = 200
LEAST: tuple[tuple[str, Any], ...] = (
    ("writers", 0), ("readers", 0), ("relay", ""), ("keepers", False), ("members", 0), ("changes", False),
    ("partitions", 1), ("live_keys", 0), ("key_writes", 0), ("seeks_back", True), ("entry_bytes", 1 << 20),
    ("pipeliners", 0), ("solo", False), ("operator", False), ("mortal", False),
    ("modern", 0), ("upsert", False), ("flat", False), ("near", False), ("queues", False),
    ("level", FEATURE_LEVEL_MAX), ("static", False), ("store_s", (0.0, 0.0)), ("log_s", (0.0, 0.0)),
)  # fmt: skip
"""Fields of a plan, and what makes them least."""


def shrunk(
    outcome: Outcome,
    told: Callable[[str], None],
    run: Callable[[Plan], Outcome] = lambda plan: World(plan).run(),
) -> Outcome:
    """The smallest run found that fails in the same way. `told` hears of each step."""
    wanted = anomalies(outcome)
    runs = 0
    smaller = True
    while smaller and runs < RUNS_MAX:
        smaller = False
        for plan in candidates(outcome.plan):
            runs += 1
            again = run(plan)
            if anomalies(again) & wanted:
                outcome, smaller = again, True
                told(f"{len(plan.faults)} faults, {plan.seconds:.1f} s, {runs} runs: {sorted(wanted)}")
                break
            if runs >= RUNS_MAX:
                break
    return outcome


def anomalies(outcome: Outcome) -> frozenset[str]:
    """What makes it bad."""
    return frozenset(each.anomaly for each in outcome.judgement.findings if each.weight == "fail")


def candidates(plan: Plan) -> Iterator[Plan]:
    """Plans a little smaller, the largest steps first."""
    faults = plan.faults
    size = len(faults) // 2
    while size:
        for at in range(0, len(faults), size):
            yield replace(plan, faults=faults[:at] + faults[at + size :])
        size //= 2
    if plan.seconds > QUIET_S * 2:
        half = plan.seconds / 2
        yield replace(plan, seconds=half, faults=tuple(each for each in faults if each[0] < half))
    for name, least in LEAST:
        if getattr(plan, name) != least:
            yield replace(plan, **{name: least})
    for at in range(len(plan.transactors)):
        yield replace(plan, transactors=plan.transactors[:at] + plan.transactors[at + 1 :])
    for at, each in enumerate(faults):
        if each[1] > 1:
            shorter = (each[0], each[1] / 2, *each[2:])
            yield replace(plan, faults=(*faults[:at], shorter, *faults[at + 1 :]))
    if any(plan.skews_ms):
        yield replace(plan, skews_ms=tuple(0 for _ in plan.skews_ms))
