"""Plans that are kept for the story that their names tell: `python -m tests.sim.stories` runs them all.

A plan's file says what must have happened in its run (`needs`: counts of the coverage, at least), so that one
which no longer comes to its story, because the code has changed its schedule, is noticed. With the name of a
plan only that one is run, and with that of a control too (controls.py), with the rule broken.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog

from tests.sim.controls_table import EVERY
from tests.sim.plan import Plan
from tests.sim.world import World

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))


def told(path: Path) -> dict[str, Any]:
    """Run one plan: its name, whether it was clean, the report, and what should have happened and did not."""
    text = path.read_text()
    outcome = World(Plan.load(text)).run()
    needs: dict[str, int] = json.loads(text)["needs"]
    missing = {
        each: outcome.coverage[each] for each, least in needs.items() if outcome.coverage[each] < least
    }
    judgement = outcome.judgement
    return {
        "name": path.stem,
        "valid": judgement.valid,
        "report": judgement.report(),
        "missing": missing,
        "acknowledged": judgement.acknowledged,
    }


def _clean(*names: str) -> Iterator[str]:
    for path in PLANS if not names else [each for each in PLANS if each.stem in names]:
        yield json.dumps(told(path))


def _broken(name: str, control: str) -> Iterator[str]:
    with next(each for each in EVERY if each.name == control).broken():
        yield json.dumps(told(next(path for path in PLANS if path.stem == name)))


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        raise SystemExit("set PYTHONHASHSEED=0: sets of strings must have one order in every process")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    for line in _broken(*sys.argv[1:]) if len(sys.argv) > 2 else _clean(*sys.argv[1:]):
        sys.stdout.write(line + "\n")
