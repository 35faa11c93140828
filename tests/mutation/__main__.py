"""`make mutate`: changes the core a little, runs the quick tests of it, and tells which changes none noticed.

    python -m tests.mutation --seconds 900 --seed 1 --only coordination/state/groups.py

Mutants are drawn at random over all files. Each runs in a process of its own, in which the changed file takes the place
of the real one; nothing is written into the tree but build/mutation.txt.
"""  # noqa: E501 - a command

from __future__ import annotations

import argparse
import ast
import importlib.abc
import importlib.util
import os
import random
import signal
import sys
import time
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import google.protobuf.message  # noqa: F401 - loaded once for all mutants, as pytest
import pytest

from tests.mutation.mutants import Mutant, mutants

ROOT = Path(__file__).parents[2]
STATE = (
    *("tests/unit/coordination/test_apply.py", "tests/unit/coordination/test_idempotence.py"),
    *(f"tests/unit/coordination/test_apply_{part}.py" for part in ("groups", "topics", "segments")),
    *(f"tests/unit/coordination/test_apply_{part}.py" for part in ("transactions", "pending_offsets")),
    *(f"tests/unit/coordination/test_{part}.py" for part in ("consumer_changes", "features", "fence")),
    *(f"tests/unit/coordination/test_{part}.py" for part in ("topic_names", "large_changes", "bounds")),
    *(f"tests/unit/coordination/test_{part}.py" for part in ("every_field", "agreed_time")),
    "tests/golden/test_stories.py",
)
TARGETS: dict[str, tuple[str, ...]] = {
    "coordination/state/*.py": STATE,
    "coordination/chain.py": (
        "tests/unit/coordination/test_log_chain.py",
        "tests/unit/coordination/test_replica.py",
    ),
    "coordination/replica/author.py": ("tests/unit/coordination/test_replica.py",),
    "agent/kafka/produce/planner.py": (
        *("tests/unit/agent/kafka/test_produce_planner.py", "tests/unit/agent/kafka/test_produce_driver.py"),
    ),
    "agent/kafka/fetch/planner.py": (
        *("tests/unit/agent/kafka/test_fetch_planner.py", "tests/golden/test_stories.py"),
        "tests/unit/agent/kafka/test_handlers_transactions.py",
    ),
    "agent/background/retention/planner.py": (
        *("tests/unit/agent/background/test_retention_planner.py",),
        "tests/unit/agent/background/test_retention_job.py",
    ),
    "agent/background/rewriting/merging/planner.py": ("tests/unit/agent/background/test_merging.py",),
}
"""What is changed, and which quick tests should notice."""
LONGEST_S = 120  # of one mutant: one that goes on for ever is noticed


class Instead(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed tree."""

    def __init__(self, name: str, path: Path, mutant: Mutant) -> None:
        self._name, self._path, self._mutant = name, path, mutant

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Only this module is found here."""
        if name != self._name:
            return None
        return importlib.util.spec_from_file_location(name, self._path, loader=self)  # type: ignore[arg-type]  # it can all that is asked

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed code."""
        exec(compile(self._mutant.tree, str(self._path), "exec"), vars(module))


def noticed(path: Path, mutant: Mutant, tests: tuple[str, ...]) -> bool:
    """Whether a test fails with this mutant."""
    child = os.fork()
    if not child:
        signal.alarm(LONGEST_S)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        sys.meta_path.insert(0, Instead(name.removesuffix(".__init__"), path, mutant))
        present = [each for each in tests if (ROOT / each).exists()]
        os._exit(int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *present])))
    _, status = os.waitpid(child, 0)
    return status != 0


def check_unchanged() -> None:
    """Without a change no test may fail, or every mutant would seem to be noticed."""
    for pattern, tests in TARGETS.items():
        path = min(each for each in ROOT.glob(pattern) if each.name != "__init__.py")
        if noticed(path, Mutant(0, "nothing", ast.parse(path.read_text())), tests):
            raise SystemExit(f"the tests of {pattern} fail without a change: {' '.join(tests)}")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="changes that no quick test notices")
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    drawn = [
        (path, tests, mutant)
        for pattern, tests in TARGETS.items()
        for path in sorted(ROOT.glob(pattern))
        if arguments.only in str(path) and path.name != "__init__.py"
        for mutant in mutants(path.read_text())
    ]
    total = len(drawn)
    check_unchanged()
    random.Random(arguments.seed).shuffle(drawn)
    began, tried, survivors = time.monotonic(), 0, 0
    out = ROOT / "build" / "mutation.txt"
    out.parent.mkdir(exist_ok=True)
    with out.open("w") as report:
        for path, tests, mutant in drawn:
            if time.monotonic() - began > arguments.seconds:
                break
            tried += 1
            if not noticed(path, mutant, tests):
                survivors += 1
                line = f"{path.relative_to(ROOT)}:{mutant.line}: {mutant.what}"
                print(line, flush=True)
                print(line, file=report, flush=True)
        said = f"{tried} of {total} mutants, {survivors} not noticed, in {time.monotonic() - began:.0f} s"
        print(said)
        print(said, file=report)


if __name__ == "__main__":
    main()
