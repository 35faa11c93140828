"""What fails again and again: which job, since when, how often, and why the last time. Bounded.

It is told of too: a line when a job begins to fail, one each minute, and one when it works again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import chain

from objectstore.episodes import Episodes, through

NAMES_MAX = 1_000  # names that fail at once; the one that failed the longest ago is forgotten
FORGOTTEN_MS = 2 * 3_600_000  # what has not failed again for so long has nothing to do any more
ERROR_LENGTH_MAX = 500  # characters of an error that are kept


@dataclass(frozen=True, slots=True)
class Trouble:
    """A job that fails. `since_ms`, `last_ms`: its first failure without a success since, and its last."""

    name: str
    since_ms: int
    last_ms: int
    failures: int
    error: str


class Troubles:
    """The jobs of one agent that fail now. `now_ms` gives the wall clock, Unix milliseconds."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.more: list[Callable[[], Iterable[Trouble]]] = []
        """Who else knows of something that fails."""
        self._told = Episodes(
            through(logging.getLogger("floe.jobs")),
            lambda: now_ms() / 1000,
            begins="a job fails",
            ends="a job works again",
        )
        self._by_name: OrderedDict[str, Trouble] = OrderedDict()

    def failed(self, name: str, error: BaseException | str) -> None:
        """The job failed once more."""
        told = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        now_ms, told = self._now_ms(), told[:ERROR_LENGTH_MAX]
        known = self._by_name.pop(name, None)
        if known is None:
            found = Trouble(name, now_ms, now_ms, 1, told)
        else:
            found = replace(known, last_ms=now_ms, failures=known.failures + 1, error=told)
        self._by_name[name] = found
        self._told.met(name, job=name, error=told)
        while len(self._by_name) > NAMES_MAX:
            self._by_name.popitem(last=False)

    def worked(self, name: str) -> None:
        """The job did what it is for."""
        self._by_name.pop(name, None)
        self._told.over(name, job=name)

    def passed_on(self, name: str) -> None:
        """The job is another agent's, or nobody's any more."""
        self._by_name.pop(name, None)
        self._told.over(name, job=name, event="a job that failed is not this agent's any more")

    def now(self) -> list[Trouble]:
        """What fails, the longest first."""
        since_ms = self._now_ms() - FORGOTTEN_MS
        for name in [each.name for each in self._by_name.values() if each.last_ms < since_ms]:
            self.passed_on(name)
        known = [
            each
            for each in chain(self._by_name.values(), *(ask() for ask in self.more))
            if each.last_ms >= since_ms
        ]
        return sorted(known, key=lambda each: each.since_ms)[:NAMES_MAX]
