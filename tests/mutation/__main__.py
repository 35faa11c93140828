"""`make mutate`: changes the core a little, runs the quick tests of it, and tells which changes none noticed.

    python -m tests.mutation --seconds 900 --seed 1 --only coordination/state/groups.py

Mutants are drawn at random over all files. One in a function is tried by the tests that run this function
(lab.py); one in what runs as a module loads by LOADED, in a process of its own, in which the changed file
takes the place of the real one. Nothing is written into the tree but build/mutation.txt.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.util
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import google.protobuf.message  # noqa: F401 - loaded once for all mutants, as pytest
import pytest

from tests.mutation.by_hand import by_hand
from tests.mutation.lab import Lab
from tests.mutation.mutants import Mutant, Place, places

ROOT = Path(__file__).parents[2]
CHANGED = (
    "coordination/state/*.py",
    "coordination/chain.py",
    "coordination/jobs.py",
    "coordination/etcd/follower.py",
    *(f"coordination/replica/{part}.py" for part in ("author", "proposals", "clock_watch")),
    "agent/kafka/produce/*.py",
    *(f"agent/kafka/fetch/{part}.py" for part in ("planner", "driver", "pieces")),
    "agent/background/retention/planner.py",
    "agent/background/expiry/*.py",
    *(f"agent/background/rewriting/{part}.py" for part in ("merging/planner", "salvage")),
    "agent/cluster/peers/standing.py",
    "agent/health/standing.py",
    *(f"iceberg/{part}.py" for part in ("sealed", "obstacles")),
    "objectstore/collect*.py",
)
"""What is changed."""
TESTS = (
    "tests/unit/coordination",
    "tests/golden/test_stories.py",
    *(
        f"tests/property/test_{part}.py"
        for part in (
            "state_machine",
            "transactions",
            "consumer_groups",
            "administration",
            "malformed_commands",
        )
    ),
    "tests/property/test_produce_order.py",
    "tests/unit/agent/kafka",
    "tests/unit/agent/background",
    "tests/unit/agent/cluster",
    "tests/unit/agent/health",
    *(f"tests/unit/iceberg/test_tables_{part}.py" for part in ("sealed", "damage", "retention")),
    "tests/unit/objectstore/test_collect.py",
)
"""What should notice. Of these, whichever run the changed function."""
LOADED = (
    *(f"tests/unit/coordination/test_apply{part}.py" for part in ("", "_groups", "_topics", "_segments")),
    *(f"tests/unit/coordination/test_apply_{part}.py" for part in ("transactions", "pending_offsets")),
    *(f"tests/unit/coordination/test_{part}.py" for part in ("bounds", "every_field", "agreed_time")),
    *(f"tests/unit/coordination/test_{part}.py" for part in ("snapshots", "log_chain", "clock_watch")),
    "tests/golden/test_stories.py",
    *(f"tests/unit/agent/kafka/test_produce_{part}.py" for part in ("planner", "driver", "admission")),
    "tests/unit/agent/kafka/test_fetch_planner.py",
    *(f"tests/unit/agent/background/test_{part}.py" for part in ("retention_planner", "merging")),
    "tests/unit/objectstore/test_collect.py",
)
"""What should notice a change of what runs as a module loads, that is of constants and tables."""
OPTIONS = (
    *("-q", "-s", "-p", "no:cacheprovider", "-o", "timeout=0", "-m", "not services"),
    f"--basetemp={ROOT / 'build' / 'mutation-tmp'}",  # emptied by each mutant's first use of it
)
LONGEST_S = 600  # of one mutant in a process of its own
IN_FUNCTIONS = 0.99  # of the time


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed tree."""

    def __init__(self, name: str, path: Path, mutant: Mutant) -> None:
        self._name, self._path, self._mutant = name, path, mutant

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only this module is found here."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        exec(compile(self._mutant.tree, str(self._path), "exec"), vars(module))


def noticed(path: Path, mutant: Mutant | None) -> bool:
    """Whether a test of LOADED fails with this mutant."""
    child = os.fork()
    if not child:
        signal.alarm(LONGEST_S)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        if mutant is not None:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            sys.meta_path.insert(0, Instead(name.removesuffix(".__init__"), path, mutant))
        os._exit(int(pytest.main([*OPTIONS, "-x", *LOADED])))
    _, status = os.waitpid(child, 0)
    return status != 0


class Run:
    """Mutants tried so far, of one process. Fork it and count in both."""

    def __init__(self, report: TextIO) -> None:
        self._report = report
        self._counts: Counter[tuple[str, str]] = Counter()

    def note(self, path: Path, mutant: Mutant, noticed_by: str, tests: str) -> None:
        """Count one, and tell of it: survivors to whoever looks, all to the file."""
        self._counts[mutant.kind, "noticed" if noticed_by else "not noticed"] += 1
        line = f"{path.relative_to(ROOT)}:{mutant.line}: {mutant.what}"
        if not noticed_by:
            print(f"{line}  ({tests})", flush=True)
        told = f"noticed by {noticed_by}" if noticed_by else "NOT NOTICED"
        print(f"{line}  [{told}; {tests}]", file=self._report, flush=True)

    def sum_up(self, title: str, seconds: float) -> None:
        """Counts by kind."""
        lines = [f"{title}, {seconds:.0f} s:"]
        for kind in sorted({kind for kind, _ in self._counts}):
            seen, survived = (self._counts[kind, how] for how in ("noticed", "not noticed"))
            lines.append(f"  {kind}: {seen + survived} drawn, {survived} not noticed")
        for line in (*lines, f"  in all {self._counts.total()}"):
            print(line, flush=True)
            print(line, file=self._report, flush=True)


def in_functions(
    drawn: Sequence[tuple[Path, Callable[[], Mutant]]], report: TextIO, seconds: float, most_s: float
) -> None:
    """Try these in a process that knows which tests run what, each by tests of at most `most_s`."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return

    def work(lab: Lab) -> None:
        failing = ", ".join(lab.failing) or "none"
        told = f"{lab.tests} tests of {lab.seconds:.0f} s; without a change these fail: {failing}"
        for out in (sys.stdout, report):
            print(told, file=out, flush=True)
        run, began = Run(report), time.monotonic()
        for path, make in drawn:
            if time.monotonic() - began > seconds:
                break
            mutant = make()
            verdict = lab.try_out(path, mutant, most_s)
            tests = f"{verdict.tests} of {verdict.reach_it} tests that run it"
            run.note(path, mutant, verdict.noticed_by, tests)
        run.sum_up("in functions", time.monotonic() - began)

    files = frozenset(str(path) for path, _ in everywhere(""))
    lab = Lab(files, ROOT / "build" / "mutation-reach.pickle", work)
    pytest.main([*OPTIONS, *TESTS], plugins=[lab])
    os._exit(0)


def everywhere(only: str) -> Iterator[tuple[Path, Place]]:
    """Where something can be changed."""
    for pattern in CHANGED:
        for path in sorted(ROOT.glob(pattern)):
            if only in str(path) and path.name != "__init__.py":
                yield from ((path, place) for place in places(path.read_text()))


def _given(mutant: Mutant) -> Mutant:
    return mutant


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="changes that no quick test notices")
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="files whose path has this in it")
    parser.add_argument("--after", type=int, default=0, help="go on behind so many of this seed's drawing")
    parser.add_argument("--most", type=float, default=60, help="seconds of tests that one change is worth")
    parser.add_argument("--hand", action="store_true", help="the wrong lines of by_hand.py, all of them")
    arguments = parser.parse_args()
    out = ROOT / "build" / "mutation.txt"
    out.parent.mkdir(exist_ok=True)
    if arguments.hand:
        with out.open("w") as report:
            wrong = [(path, partial(_given, mutant)) for path, mutant in by_hand(ROOT, arguments.only)]
            in_functions(wrong[arguments.after :], report, math.inf, arguments.most)
        return
    drawn = list(everywhere(arguments.only))
    random.Random(arguments.seed).shuffle(drawn)
    inside = [(path, place) for path, place in drawn if place.function][arguments.after :]
    outside = [(path, place) for path, place in drawn if not place.function]
    print(f"{len(inside)} mutants of functions, {len(outside)} of what runs as modules load", flush=True)
    with out.open("w") as report:
        in_functions(
            [(path, place.mutant) for path, place in inside],
            report,
            arguments.seconds * IN_FUNCTIONS,
            arguments.most,
        )
        if outside and noticed(ROOT, None):
            raise SystemExit(f"tests fail without a change: {' '.join(LOADED)}")
        run, began = Run(report), time.monotonic()
        for path, place in outside:
            if time.monotonic() - began > arguments.seconds * (1 - IN_FUNCTIONS):
                break
            mutant = place.mutant()
            run.note(path, mutant, "a test" if noticed(path, mutant) else "", "all of LOADED")
        run.sum_up("as modules load", time.monotonic() - began)


if __name__ == "__main__":
    main()
