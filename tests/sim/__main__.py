"""`python -m tests.sim`: seeds one after the other, one seed with its trace, or the table of controls."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from pathlib import Path

import structlog

from tests.sim.controls import CONTROLS
from tests.sim.world import Outcome, simulate

_wall = time.perf_counter  # taken before any run replaces it
SEEDS_PER_CONTROL_MAX = 200


def main() -> int:
    """The exit status: 0 when every seed is clean, or every control was caught."""
    parser = argparse.ArgumentParser(prog="tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="simulated seconds under faults, per seed"
    )
    parser.add_argument("--seed", type=int, help="one seed, its plan and its trace")
    parser.add_argument("--out", type=Path, default=Path("build/simulate"), help="where traces go")
    parser.add_argument("--controls", action="store_true", help="break each rule until it is caught")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings must have one order in every process
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], environment)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    if given.controls:
        return _controls(given.seconds)
    if given.seed is not None:
        return _one(given.seed, given.seconds, given.out)
    return _many(range(given.first, given.first + given.seeds), given.seconds, given.out)


def _many(seeds: range, seconds: float, out: Path) -> int:
    begun, virtual, bad = _wall(), 0.0, []
    counts: Counter[str] = Counter()
    coverage: Counter[str] = Counter()
    for seed in seeds:
        outcome = simulate(seed, seconds)
        virtual += outcome.virtual_s
        counts.update(acknowledged=outcome.judgement.acknowledged, read=outcome.judgement.read)
        coverage.update(outcome.coverage)
        if not outcome.judgement.valid:
            bad.append(seed)
            print(f"seed {seed}: {outcome.judgement.report()}\n{outcome.plan}", flush=True)
            _keep(outcome, out)
    real = _wall() - begun
    print("faults: " + ", ".join(f"{name} {coverage[name]}" for name in sorted(coverage)))
    print(
        f"{len(seeds)} seeds · {virtual:,.0f} simulated s in {real:,.0f} s ({virtual / real:.0f} per s) · "
        f"acknowledged {counts['acknowledged']:,} · read {counts['read']:,} · bad {len(bad)} {bad[:20]}"
    )
    return 1 if bad else 0


def _one(seed: int, seconds: float, out: Path) -> int:
    outcome = simulate(seed, seconds)
    path = _keep(outcome, out)
    print(f"{outcome.plan}\n{outcome.judgement.report()}")
    print(f"trace {path} · {len(outcome.trace)} lines · {outcome.digest}")
    return 0 if outcome.judgement.valid else 1


def _keep(outcome: Outcome, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{outcome.plan.seed}.trace"
    path.write_text("\n".join([repr(outcome.plan), *outcome.trace]) + "\n")
    return path


def _controls(seconds: float) -> int:
    missed = 0
    print(f"{'control':28} {'anomaly':24} {'seeds':>5}")
    for control in CONTROLS:
        found, seeds = "", 0
        while not found and seeds < SEEDS_PER_CONTROL_MAX:
            seeds += 1
            with control.broken():
                findings = simulate(seeds, seconds).judgement.findings
            found = next((each.anomaly for each in findings if each.anomaly in control.anomalies), "")
        missed += not found
        print(f"{control.name:28} {found or 'NOT FOUND':24} {seeds:5}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
