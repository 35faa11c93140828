"""How long something is kept after it was let go of: by its stamp, or by this process's own watch.

A stamp is the log's time, which never goes back. Where all clocks were wrong and were set right, stamps of
then are ahead of time by as much, years even. What is stamped so is kept for the grace since this process
first saw it: it must not stay until the years of a wrong clock are over.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

AHEAD_MS = 60_000  # a stamp further ahead than this is a wrong clock's, and no disagreement of right ones
WATCHED_MAX = 100_000  # things whose stamps are ahead; the ones seen first are forgotten first, and seen anew


class Grace:
    """`now_ms`: Unix ms, no later than most agents say it is. `monotonic`: this process's watch, seconds."""

    def __init__(self, grace_ms: int, now_ms: Callable[[], int], monotonic: Callable[[], float]) -> None:
        self.ms = grace_ms
        self.now_ms = now_ms
        self._monotonic = monotonic
        self._seen_s: OrderedDict[Hashable, float] = OrderedDict()

    def is_over(self, name: Hashable, since_ms: int) -> bool:
        """Whether what was let go of at `since_ms` may go. `name` is this thing's and no other's."""
        ago_ms = self.now_ms() - since_ms
        if ago_ms >= -AHEAD_MS:
            return ago_ms >= self.ms
        now_s = self._monotonic()
        seen_s = self._seen_s.setdefault(name, now_s)
        while len(self._seen_s) > WATCHED_MAX:
            self._seen_s.popitem(last=False)
        return (now_s - seen_s) * 1000 >= self.ms
