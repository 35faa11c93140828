"""How far groups were behind over the last while: samples that one agent keeps in memory, bounded.

All series are sampled at the same moments and share their times; a slot of the ring holds one sample of each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import nlargest
from typing import Final, NamedTuple

from agent.config.console import ConsoleConfig

NOTHING: Final = -1
"""In place of records where a series has no sample."""

Name = tuple[str, str]
"""A group, and a topic that it has positions in."""


class Sample(NamedTuple):
    """Records that a group was behind in a topic at a time, Unix ms; None: nobody knows."""

    at_ms: int
    records: int | None


class LagHistory:
    """One agent's. `note` after each look at all groups."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._most, self._length = config.lag_series_max, config.lag_samples_max
        self._every_s = config.lag_every_ms / 1000
        self._series: dict[Name, array[int]] = {}
        self._times: array[int] = array("q", [NOTHING]) * self._length
        self._next = 0
        self._noted_s: float | None = None

    def note(self, found: Iterable[tuple[int, str, str]], now_s: float, now_ms: int) -> None:
        """`found`: records, group and topic of each. Looks that come sooner than a sample is due are passed
        over. Where there are more than may be kept, those that are furthest behind are.
        """
        early = self._noted_s is not None and now_s - self._noted_s < self._every_s
        if early or not self._most:
            return
        self._noted_s, slot = now_s, self._next % self._length
        self._next += 1
        self._times[slot] = now_ms
        for series in self._series.values():
            series[slot] = NOTHING
        most = nlargest(self._most, found)
        for records, *name in most:
            self._of((name[0], name[1]))[slot] = records
        if len(self._series) > self._most:
            kept = {(group, topic) for _, group, topic in most}
            self._series = {name: series for name, series in self._series.items() if name in kept}

    def of(self, group: str) -> dict[str, list[Sample]]:
        """A group's samples by topic, the oldest first; nothing of before the first that is known."""
        order = [slot % self._length for slot in range(max(self._next - self._length, 0), self._next)]
        found: dict[str, list[Sample]] = {}
        for (name, topic), series in self._series.items():
            if name == group:
                told = [(self._times[slot], series[slot]) for slot in order]
                begun = next((n for n, each in enumerate(told) if each[1] != NOTHING), len(told))
                found[topic] = [Sample(at, None if each == NOTHING else each) for at, each in told[begun:]]
        return {topic: samples for topic, samples in found.items() if samples}

    def _of(self, name: Name) -> array[int]:
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = array("q", [NOTHING]) * self._length
        return series
