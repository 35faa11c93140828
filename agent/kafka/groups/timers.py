"""One structure for the timers of all groups: a heap of (when, key), the earliest per key counts."""

from __future__ import annotations

import heapq

SPARE = 1024  # stale entries that may stand in the heap beside as many as there are keys
STALE_PER_DISARM = 2  # that are taken off the heap's top


class Timers:
    """When each key is due. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def arm(self, key: str, at: float) -> None:
        """The key is due at `at`, unless it is due earlier already."""
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._heap, (at, key))
            if len(self._heap) > 2 * len(self._due) + SPARE:
                self._heap = [(when, name) for name, when in self._due.items()]
                heapq.heapify(self._heap)

    def disarm(self, key: str) -> None:
        """The key is not due any more."""
        self._due.pop(key, None)
        self._drop_stale(STALE_PER_DISARM)  # or `next` finds those of all keys at once

    def next(self) -> float | None:
        """When something is due next; None: nothing is."""
        self._drop_stale(len(self._heap))
        return self._heap[0][0] if self._heap else None

    def _drop_stale(self, most: int) -> None:
        while most and self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
            most -= 1

    def take(self, now: float, most: int) -> list[str]:
        """Up to `most` keys that are due, which are armed no more."""
        taken: list[str] = []
        while len(taken) < most and (at := self.next()) is not None and at <= now:
            _, key = heapq.heappop(self._heap)
            del self._due[key]
            taken.append(key)
        return taken
