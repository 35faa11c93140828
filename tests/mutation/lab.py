"""Tries mutants in one process that has collected the tests: which of them run the changed function is known.

A mutant's code takes the place of the function's own in a fork of that process, and the tests that run this
function follow, the quickest first. So a change that is noticed costs milliseconds, and one that is not has
been looked at by every test that comes to it.
"""

from __future__ import annotations

import ast
import builtins
import gc
import hashlib
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any

import pytest

from tests.mutation.mutants import FUNCTIONS, Mutant, functions

SLACK_S, SLOWER = 60.0, 6.0
"""Whose tests take so long, and so many times what they take unchanged, never ends: it is noticed."""
SAYS = "_says_that_it_is_run"
Reached = tuple[str, str]
"""A file and the qualified name of an outermost function in it."""


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant."""

    noticed_by: str
    """The test that failed; empty when none did."""
    tests: int
    """How many run the changed function."""


@dataclass
class Lab:
    """A plugin of pytest that takes the place of its loop over the tests. `work` is given the lab."""

    files: frozenset[str]
    kept: Path
    """Where it is written down what the tests run: that holds until a file changes."""
    work: Callable[[Lab], None]
    _items: Sequence[Any] = ()
    _seconds: list[float] = field(default_factory=list)
    _reach: dict[Reached, list[int]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    """Tests that fail without a change. They count for nothing."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """See the class."""
        self._items = session.items
        self._learn()
        self.work(self)
        return True

    @property
    def tests(self) -> int:
        """How many there are."""
        return len(self._items)

    def try_out(self, path: Path, mutant: Mutant) -> Verdict:
        """Run the tests that come to the changed function, until one fails."""
        chosen = sorted(self._reach.get((str(path), mutant.function), ()), key=self._seconds.__getitem__)
        patience_s = SLACK_S + SLOWER * sum(self._seconds[number] for number in chosen)

        def run(out: IO[bytes]) -> None:
            signal.alarm(int(patience_s))
            swap(path, mutant)
            for number, following in zip(chosen, (*chosen[1:], None), strict=True):
                out.write(pickle.dumps(number))
                out.flush()
                if not self._passes(number, following):
                    os._exit(1)

        said, status = _forked(run)
        last = said[-1] if said else None
        name = self._items[last].nodeid if last is not None else "(the change itself)"
        return Verdict("" if status == 0 else name, len(chosen))

    def _learn(self) -> None:
        """Which functions each test runs, and how long it takes: all tests once, without a change."""
        digest = hashlib.sha256("".join(item.nodeid for item in self._items).encode())
        for path in sorted({*self.files, *(str(item.path) for item in self._items)}):
            digest.update(Path(path).read_bytes())
        if self.kept.exists():
            key, *known = pickle.loads(self.kept.read_bytes())
            if key == digest.hexdigest():
                self._seconds, self._reach, self.failing = known
                return
        self._run_all()
        self.kept.write_bytes(pickle.dumps((digest.hexdigest(), self._seconds, self._reach, self.failing)))

    def _run_all(self) -> None:

        def run(out: IO[bytes]) -> None:
            found: set[Reached] = set()
            watch(self.files, found)
            for number, following in pairwise((*range(len(self._items)), None)):
                began = time.process_time()
                found.clear()
                passed = self._passes(number, following)
                out.write(pickle.dumps((passed, time.process_time() - began, found)))

        said, _ = _forked(run)
        for number, (passed, seconds, found) in enumerate(said):
            self._seconds.append(seconds)
            if not passed:
                self.failing.append(self._items[number].nodeid)
                continue
            for each in sorted(found):
                self._reach.setdefault(each, []).append(number)

    def _passes(self, number: int, following: int | None) -> bool:
        """Run a test; what the `following` one needs as well stays set up."""
        item, seen = self._items[number], list[Any]()

        class Listener:
            def pytest_runtest_logreport(self, report: Any) -> None:
                seen.append(report)

        listener = Listener()
        item.config.pluginmanager.register(listener)
        item.config.hook.pytest_runtest_protocol(
            item=item, nextitem=None if following is None else self._items[following]
        )
        item.config.pluginmanager.unregister(listener)
        return all(each.passed for each in seen)


def watch(files: frozenset[str], found: set[Reached]) -> None:
    """From here on every function of these files says that it is run. In this process, for good."""
    setattr(builtins, SAYS, lambda file, name: found.add((file, name)))
    for file in sorted(files):
        tree = ast.parse(Path(file).read_text())
        names = {name for node, name in functions(tree) if isinstance(node, FUNCTIONS)}
        for node, name in functions(tree):
            if isinstance(node, FUNCTIONS) and name in names:
                names.remove(name)  # those within it are part of it
                node.body.insert(0, ast.parse(f"{SAYS}({file!r}, {name!r})").body[0])
        made = dict(_codes(compile(ast.fix_missing_locations(tree), file, "exec")))
        for each in _known(file):
            each.__code__ = made.get(each.__code__.co_qualname, each.__code__)


def swap(path: Path, mutant: Mutant) -> None:
    """Let every function of that name in that file run the mutant's code, wherever it is known."""
    made = dict(_codes(compile(mutant.tree, str(path), "exec")))[mutant.function]
    for each in _known(str(path)):
        if each.__code__.co_qualname == mutant.function:
            each.__code__ = made


def _known(file: str) -> list[FunctionType]:
    """All functions of a file that are somewhere in this process."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and each.__code__.co_filename == file
    ]


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if "<locals>" not in each.co_qualname:
                yield each.co_qualname, each
            yield from _codes(each)


def _forked(run: Callable[[IO[bytes]], None]) -> tuple[list[Any], int]:
    """What a fork of this process said, each pickled, and how it ended; its own words go nowhere."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        os.close(reading)
        status = 1
        try:
            with os.fdopen(writing, "wb") as out:
                run(out)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    said = []
    with os.fdopen(reading, "rb") as heard:
        while heard.peek(1):
            said.append(pickle.load(heard))
    _, status = os.waitpid(child, 0)
    return said, status
