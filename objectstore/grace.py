"""How long something is kept after it was let go of: by its stamp, or by this process's own watch.

A stamp is the log's time, which never goes back. Where all clocks were wrong and were set right, stamps of
then are ahead of time by as much, years even. What is stamped so is kept for the grace since this process
first saw it: it must not stay until the years of a wrong clock are over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

AHEAD_MS = 60_000  # a stamp further ahead than this is a wrong clock's, and no disagreement of right ones
WATCHED_MAX = 100_000  # things whose stamps are ahead; the others are seen once there is room


class Grace:
    """`now_ms`: Unix ms, no later than most agents say it is. `monotonic`: this process's watch, seconds."""

    def __init__(self, grace_ms: int, now_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self.ms = grace_ms
        self.now_ms = now_ms
        self._monotonic = monotonic
        self._seen_s: dict[Hashable, float] = {}  # the ones seen first stand first

    def is_over(self, name: Hashable, since_ms: int, now_ms: int) -> bool:
        """Whether what was let go of at `since_ms` may go. `name` is this thing's and no other's.

        `now_ms`: `self.now_ms()`, which asks what all agents say: once for all that is looked at together.
        """
        ago_ms = now_ms - since_ms
        if ago_ms >= -AHEAD_MS:
            return ago_ms >= self.ms
        now_s = self._monotonic()
        if name not in self._seen_s and not self._has_room(now_s):
            return False
        return self._has_passed(self._seen_s.setdefault(name, now_s), now_s)

    def _has_room(self, now_s: float) -> bool:
        """One that was seen first makes room when it may have gone, not before: all must get their turn."""
        if len(self._seen_s) < WATCHED_MAX:
            return True
        name, seen_s = next(iter(self._seen_s.items()))
        if not self._has_passed(seen_s, now_s):
            return False
        del self._seen_s[name]
        return True

    def _has_passed(self, seen_s: float, now_s: float) -> bool:
        return (now_s - seen_s) * 1000 >= self.ms
