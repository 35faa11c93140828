"""Plans that are kept for the story that their names tell: `python -m tests.sim.stories` runs them all.

A plan's file says what must have happened in its run (`needs`: counts of the coverage, at least), so that one
which no longer comes to its story, because the code has changed its schedule, is noticed: then the next seeds
are tried, SEEDS_MAX of them, for a story must happen, and not in one schedule alone. With the name of a plan
only that one is run; with that of a control too (controls.py), and the anomaly that is its, with the rule
broken, until a seed shows it.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog

from tests.sim.controls_table import EVERY
from tests.sim.plan import Plan
from tests.sim.world import World

SEEDS_MAX = 40
"""From a plan's own on. The rarest story takes one seed of some twenty."""
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


def _clean(*names: str) -> Iterator[str]:
    """What is not clean is never tried again."""
    for path in PLANS if not names else [each for each in PLANS if each.stem in names]:
        yield json.dumps(_until(path, lambda run: not run["valid"] or not run["missing"]))


def _broken(name: str, control: str, anomaly: str) -> Iterator[str]:
    with next(each for each in EVERY if each.name == control).broken():
        path = next(path for path in PLANS if path.stem == name)
        yield json.dumps(_until(path, lambda run: f"{anomaly} (fail)" in run["report"]))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise SystemExit("set PYTHONHASHSEED=0: sets of strings must have one order in every process")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    for line in _broken(*sys.argv[1:]) if len(sys.argv) > 2 else _clean(*sys.argv[1:]):
        sys.stdout.write(line + "\n")
