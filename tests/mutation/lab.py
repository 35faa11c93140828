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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import IO, Any

import pytest

from tests.mutation.mutants import FUNCTIONS, Mutant, functions

SLACK_S, SLOWER = 10.0, 6.0
"""A test that takes so long, and so many times what it takes unchanged, never ends: it notices the change."""
EXAMPLES_MAX = 30
"""Of a property test, the same each time: what fails once fails again, and nothing is shrunk."""
KEPT_SETTINGS = "_hypothesis_internal_use_settings"
SAYS = "_says_that_it_is_run"
Reached = tuple[str, str]
"""A file and the qualified name of an outermost function in it."""

Learnt = tuple[bool, float, set[Reached]]
"""Whether a test passes without a change, its seconds, and what it runs."""


@dataclass(frozen=True)
class Verdict:
    """What came of a mutant."""

    noticed_by: str
    """The test that failed; empty when none did."""
    tests: int
    """How many looked at it."""
    reach_it: int
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
    _functions: dict[str, list[FunctionType]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    """Tests that fail without a change. They count for nothing."""

    def pytest_collection_modifyitems(self, items: Sequence[Any]) -> None:
        """Property tests are to be quick, and the same each time."""
        from hypothesis import settings  # by now pytest has loaded it, as its plugin

        for item in items:
            if item.cls is not None and isinstance(getattr(item.cls, "settings", None), settings):
                item.cls.settings = _few(item.cls.settings)
            elif hasattr(item.obj, KEPT_SETTINGS):
                tested = getattr(item.obj, "__func__", item.obj)
                setattr(tested, KEPT_SETTINGS, _few(getattr(tested, KEPT_SETTINGS)))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """See the class."""
        self._items = session.items
        self._learn()
        self._functions = _by_file(self.files)
        gc.collect()
        gc.freeze()  # what is here stays: a fork's collections need not look at it, and copy it
        self.work(self)
        return True

    @property
    def tests(self) -> int:
        """How many there are."""
        return len(self._items)

    @property
    def seconds(self) -> float:
        """How long all of them take."""
        return sum(self._seconds)

    def try_out(self, path: Path, mutant: Mutant, most_s: float) -> Verdict:
        """Run the tests that come to the changed function, the quickest first, until one fails.

        Of these, as many as take `most_s` together without a change.
        """
        reach = sorted(self._reach.get((str(path), mutant.function), ()), key=self._seconds.__getitem__)
        until = accumulate(self._seconds[number] for number in reach)
        chosen = [number for number, so_far_s in zip(reach, until, strict=True) if so_far_s <= most_s]

        def run(out: IO[bytes]) -> None:
            swap(path, mutant, self._functions.get(str(path), ()))
            for number, following in zip(chosen, (*chosen[1:], None), strict=True):
                signal.alarm(int(SLACK_S + SLOWER * self._seconds[number]))
                out.write(pickle.dumps(number))
                out.flush()
                if not self._passes(number, following):
                    os._exit(1)

        said, status = _forked(run)
        last = said[-1] if said else None
        name = self._items[last].nodeid if last is not None else "(the change itself)"
        return Verdict("" if status == 0 else name, len(chosen), len(reach))

    def _learn(self) -> None:
        """Which functions each test runs, and how long it takes, without a change: what is not known yet."""
        digest = hashlib.sha256(b"".join(Path(path).read_bytes() for path in sorted(self.files)))
        known: dict[tuple[str, str], Learnt] = {}
        if self.kept.exists():
            known = pickle.loads(self.kept.read_bytes())
        keys = [(item.nodeid, _digest(digest.digest(), item.path)) for item in self._items]
        new = [number for number, key in enumerate(keys) if key not in known]
        learnt = self._run_all(new) if new else []
        known |= {keys[number]: what for number, what in zip(new, learnt, strict=True)}
        known = {key: known[key] for key in keys}
        self.kept.write_bytes(pickle.dumps(known))
        for number, (passed, seconds, found) in enumerate(known.values()):
            self._seconds.append(seconds)
            if not passed:
                self.failing.append(self._items[number].nodeid)
                continue
            for each in sorted(found):
                self._reach.setdefault(each, []).append(number)

    def _run_all(self, numbers: Sequence[int]) -> list[Learnt]:

        def run(out: IO[bytes]) -> None:
            found: set[Reached] = set()
            watch(self.files, found)
            for number, following in pairwise((*numbers, None)):
                assert number is not None
                began = time.monotonic()
                found.clear()
                passed = self._passes(number, following)
                out.write(pickle.dumps((passed, time.monotonic() - began, found)))
                out.flush()

        said, _ = _forked(run)
        return said

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


def swap(path: Path, mutant: Mutant, functions: Iterable[FunctionType] = ()) -> None:
    """Let every function of that name in that file run the mutant's code, wherever it is known.

    `functions`: those of that file that the collector of garbage does not see any more.
    """
    made = dict(_codes(compile(mutant.tree, str(path), "exec")))[mutant.function]
    for each in (*functions, *_known(str(path))):
        if each.__code__.co_qualname == mutant.function:
            each.__code__ = made


def _known(file: str) -> list[FunctionType]:
    """All functions of a file that are somewhere in this process."""
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType) and each.__code__.co_filename == file
    ]


def _by_file(files: frozenset[str]) -> dict[str, list[FunctionType]]:
    found: dict[str, list[FunctionType]] = {}
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename in files:
            found.setdefault(each.__code__.co_filename, []).append(each)
    return found


@cache
def _digest(given: bytes, path: Path) -> str:
    return hashlib.sha256(given + path.read_bytes()).hexdigest()


def _few(known: Any) -> Any:
    from hypothesis import Phase, settings

    phases = [phase for phase in known.phases if phase in (Phase.explicit, Phase.generate)]
    examples = min(known.max_examples, EXAMPLES_MAX)
    return settings(
        known, max_examples=examples, derandomize=True, database=None, phases=phases, deadline=None
    )


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
        os.setpgid(0, 0)
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
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # what its tests had started
    return said, status
