"""Where the tests' CPU goes: `--cpu-report=FILE` writes the seconds of each test, shared fixture and file.

Counted is user and system time of this process, of its living descendants and of all that they have waited
for (/proc). A process that outlives the one that started it counts to the end of that one. What runs beside a
test, as a server that the session shares, counts with the test.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

TICKS = os.sysconf("SC_CLK_TCK")  # a second has
ROWS_MAX = 200  # of tests and of fixtures; files are all told
AFTER_NAME = 2  # /proc/N/stat's fields are numbered from 1; the name is the second and may hold blanks
PPID, UTIME, CSTIME = 4 - AFTER_NAME - 1, 14 - AFTER_NAME - 1, 17 - AFTER_NAME - 1


def tree_s(root: int) -> float:
    """Seconds of CPU that process `root`, its descendants and what they have waited for have had."""
    children: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended since
                continue
            children[int(fields[PPID])].append(int(name))
            ticks[int(name)] = sum(int(each) for each in fields[UTIME : CSTIME + 1])
    found, left = 0, [root]
    while left:
        each = left.pop()
        found += ticks.get(each, 0)
        left += children[each]
    return found / TICKS


class CpuReport:
    """The plugin. Fixtures of a module or session are taken off the test that happens to set them up."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: dict[str, float] = defaultdict(float)
        self._fixtures: dict[str, float] = defaultdict(float)
        self._inside = [0.0]  # seconds of shared fixtures, by depth of their nesting
        self._collected_s = 0.0

    def pytest_collection_finish(self) -> None:
        """Imports and collection are over."""
        self._collected_s = tree_s(os.getpid())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """One test with its own fixtures."""
        self._inside = [0.0]
        before = tree_s(os.getpid())
        try:
            return (yield)
        finally:
            self._tests[item.nodeid] += tree_s(os.getpid()) - before - self._inside[0]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """A fixture that several tests share, without those that it asks for itself."""
        if fixturedef.scope == "function":
            return (yield)
        self._inside.append(0.0)
        before = tree_s(os.getpid())
        try:
            return (yield)
        finally:
            spent, nested = tree_s(os.getpid()) - before, self._inside.pop()
            self._inside[-1] += spent
            self._fixtures[f"{fixturedef.baseid}::{fixturedef.argname}"] += spent - nested

    def pytest_unconfigure(self) -> None:
        """Everything has ended: the report."""
        files: dict[str, float] = defaultdict(float)
        for name, spent in [*self._tests.items(), *self._fixtures.items()]:
            files[name.partition("::")[0]] += spent
        whole_s = tree_s(os.getpid())
        lines = [f"{whole_s:8.1f} s in all", f"{self._collected_s:8.1f} s until all were collected"]
        lines += ["files:", *_rows(files, len(files))]
        lines += ["shared fixtures:", *_rows(self._fixtures, ROWS_MAX)]
        lines += ["tests:", *_rows(self._tests, ROWS_MAX)]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text("\n".join(lines) + "\n")


def _rows(spent: Mapping[str, float], most: int) -> list[str]:
    first = sorted(spent.items(), key=lambda one: -one[1])[:most]
    return [f"{seconds:8.1f} {name}" for name, seconds in first]
