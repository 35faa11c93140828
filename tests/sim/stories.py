"""Plans that are kept for the story that their names tell: `python -m tests.sim.stories` runs them all.

A plan's file says what must have happened in its run (`needs`: counts of the coverage, at least), so that one
which no longer comes to its story, because the code has changed its schedule, is noticed: then the next seeds
are tried, SEEDS_MAX of them, for a story must happen, and not in one schedule alone. With names of plans
only those are run. `plan:control:anomaly` instead: with that rule broken (controls.py), until a seed shows
the anomaly. Each of these, and each plan, has a process of its own, forked where everything is imported.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import structlog

from tests.sim import quick
from tests.sim.controls_table import EVERY
from tests.sim.plan import Plan
from tests.sim.world import World

SEEDS_MAX = 40
"""From a plan's own on. The rarest story takes one seed of some twenty."""
JOBS = 2
PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


def told(path: Path, seed: int | None = None) -> dict[str, Any]:
    """Run one plan: its name, whether it was clean, the report, and what should have happened and did not."""
    kept = json.loads(path.read_text())
    kept["seed"] = kept["seed"] if seed is None else seed
    outcome = World(Plan.load(json.dumps(kept))).run()
    needs: dict[str, int] = kept["needs"]
    missing = {
        each: outcome.coverage[each] for each, least in needs.items() if outcome.coverage[each] < least
    }
    judgement = outcome.judgement
    return {
        "name": path.stem,
        "seed": kept["seed"],
        "valid": judgement.valid,
        "report": judgement.report(),
        "missing": missing,
        "acknowledged": judgement.acknowledged,
    }


def _until(path: Path, enough: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The plan by its seed, or by the first of the next ones that is enough; else by the last of them."""
    first: int = json.loads(path.read_text())["seed"]
    for seed in range(first, first + SEEDS_MAX):
        run = told(path, seed)
        if enough(run):
            break
    return run


def _shown(wanted: str) -> dict[str, Any]:
    """One plan by its name, or a broken rule; its row is called so."""
    name, _, rule = wanted.partition(":")
    path = next(path for path in PLANS if path.stem == name)
    if not rule:  # what is not clean is never tried again
        return _until(path, lambda run: not run["valid"] or not run["missing"])
    control, _, anomaly = rule.partition(":")
    with next(each for each in EVERY if each.name == control).broken():
        return _until(path, lambda run: f"{anomaly} (fail)" in run["report"]) | {"name": wanted}


def _told(wanted: str) -> str:
    """As JSON; what the run itself broke by is told as its report, and the others go on."""
    try:
        return json.dumps(_shown(wanted))
    except Exception:
        row = {"name": wanted, "valid": False, "missing": {}, "acknowledged": 0}
        return json.dumps(row | {"report": traceback.format_exc()})


def _all(wanted: list[str]) -> Iterator[str]:
    with get_context("fork").Pool(JOBS, maxtasksperchild=1) as pool:
        yield from pool.imap(_told, wanted or [path.stem for path in PLANS], chunksize=1)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise SystemExit("set PYTHONHASHSEED=0: sets of strings must have one order in every process")
    gc.disable()  # collector.py says when
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    quick.without_pandas()
    for line in _all(sys.argv[1:]):
        sys.stdout.write(line + "\n")
