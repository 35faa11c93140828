"""`python -m tests.sim`: many seeds, one seed with its trace, or the table of controls."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
import time
from collections.abc import Container, Iterable
from functools import partial
from pathlib import Path

import structlog

from tests.sim import progress, quick
from tests.sim.controls_table import catch
from tests.sim.many import report, run
from tests.sim.outcome import Outcome
from tests.sim.pairs import rounds
from tests.sim.pairs.drawing import Table, with_pair
from tests.sim.pairs.kinds import POSSIBLE, kinds_of
from tests.sim.plan import Plan, plan_of
from tests.sim.shrink import shrunk
from tests.sim.sick.spells import with_sick
from tests.sim.timeline import page
from tests.sim.world import World


def main() -> int:
    """The exit status: 0 when every seed is clean, or every control was caught."""
    given = _arguments()
    gc.disable()  # collector.py says when
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of strings must have one order in every process
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], environment)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    quick.without_pandas()
    if given.controls is not None:
        return _controls(given.controls, given.seconds)
    plan_for = _sick_plan if given.sick else plan_of
    if given.seed is not None:
        plan = plan_for(given.seed, given.seconds)
        plan = with_pair(plan, given.pair) if given.pair else plan
        return _one(plan, plan.name, given)
    if given.plan is not None:
        return _one(Plan.load(given.plan.read_text()), given.plan.stem, given)
    try:
        before = None if given.progress is None else progress.load(given.progress, given.first, given.seconds)
    except progress.OtherCode as other:
        print(other, file=sys.stderr)
        return 2
    first, end = given.first + (before.done if before else 0), given.first + given.seeds
    plans = (plan_for(seed, given.seconds) for seed in range(first, end))
    plans = (plan for plan in plans if plan.agents in (given.agents or (plan.agents,)))
    return _paired(plans, given) if given.pairs else _many(plans, given, before)


def _sick_plan(seed: int, seconds: float) -> Plan:
    return with_sick(plan_of(seed, seconds))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the seeds")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="simulated seconds under faults, per seed"
    )
    parser.add_argument("--agents", type=int, nargs=1, help="only seeds with so many agents")
    parser.add_argument("--seed", type=int, help="one seed, its plan, its trace and its timeline")
    parser.add_argument("--sick", action="store_true", help="one agent is sick, and nothing else is wrong")
    parser.add_argument(
        "--pairs", action="store_true", help="two faults at once more, the least covered pairs"
    )
    parser.add_argument("--pair", default="", help="with --seed: these two, as one+other")
    parser.add_argument("--known", type=Path, help="with --pairs: the pairs.json of runs before")
    parser.add_argument("--plan", type=Path, help="the same of a plan that was kept")
    parser.add_argument("--shrink", action="store_true", help="make a failing one small and keep its plan")
    parser.add_argument("--out", type=Path, default=Path("build/simulate"), help="where traces go")
    parser.add_argument(
        "--keep", type=int, nargs="*", metavar="SEED", help="the traces of clean seeds too, or of these"
    )
    parser.add_argument(
        "--progress", type=Path, metavar="FILE", help="where it says how far it is, and goes on from"
    )
    parser.add_argument("--controls", nargs="*", help="break each rule (or these) until it is caught")
    given = parser.parse_args()
    if given.pair and (given.seed is None or given.sick):
        parser.error("--pair says which two faults are added to the plan of one --seed that is not --sick")
    if given.progress is not None and (given.pairs or given.sick or given.agents):
        parser.error("--progress is of consecutive seeds; leave out --pairs, --sick and --agents")
    if given.pairs and given.sick:
        parser.error("--pairs: a sick agent is judged while nothing else is wrong; leave out --sick")
    try:
        kinds_of(given.pair or POSSIBLE[0])
    except KeyError as unknown:
        parser.error(unknown.args[0])
    return given


def _many(plans: Iterable[Plan], given: argparse.Namespace, before: progress.Progress | None) -> int:
    kept, told = partial(_keep, out=given.out), partial(print, flush=True)
    whole = run(plans, given.jobs, kept, told, also=_also(given), before=before)
    return 1 if whole.bad else 0


def _paired(plans: Iterable[Plan], given: argparse.Namespace) -> int:
    kept, told, begun = partial(_keep, out=given.out), partial(print, flush=True), time.perf_counter()
    table = Table() if given.known is None else rounds.load(given.known)
    whole = rounds.run(plans, given.jobs, kept, told, table, also=_also(given))
    report(whole, told, time.perf_counter() - begun)
    told(f"{rounds.summary(table)}\n  all of it: {rounds.write(table, given.out)}")
    return 1 if whole.bad else 0


def _one(plan: Plan, name: str, given: argparse.Namespace) -> int:
    outcome = World(plan).run()
    if given.shrink and not outcome.judgement.valid:
        outcome = shrunk(outcome, lambda text: print(text, flush=True))
        name += "-small"
    path = _keep(outcome, name, given.out)
    print(f"{outcome.plan}\n{outcome.judgement.report()}")
    print(f"trace {path} · {len(outcome.trace)} lines · {outcome.digest}")
    print(f"timeline {path.with_suffix('.html')} · plan {path.with_suffix('.json')}")
    return 0 if outcome.judgement.valid else 1


def _also(given: argparse.Namespace) -> Container[int]:
    """The seeds that are kept though they are clean."""
    return range(sys.maxsize) if given.keep == [] else given.keep or ()


def _keep(outcome: Outcome, name: str, out: Path) -> Path:
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.trace"
    path.write_text("\n".join([repr(outcome.plan), *outcome.trace]) + "\n")
    path.with_suffix(".json").write_text(outcome.plan.dump() + "\n")
    path.with_suffix(".html").write_text(page(outcome))
    return path


def _controls(names: list[str], seconds: float) -> int:
    missed = 0
    print(f"{'control':28} {'anomaly':24} {'seeds':>5} {'runs':>5}", flush=True)
    for each in catch(names, seconds):
        missed += not each.anomaly
        anomaly = each.anomaly or "NOT FOUND"
        print(f"{each.control.name:28} {anomaly:24} {each.seeds:5} {each.runs:5}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
