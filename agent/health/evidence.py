"""What attempts at one thing say of it: does it work now, how fast, and since when not. Times in seconds.

Bad is what has failed, or has not been answered, and has not succeeded since. So one slow attempt among good
ones says nothing, and an attempt that hangs says something before it ends.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable
from itertools import islice

KEPT_MAX = 512  # durations of successes that are kept
RECENT_MAX = 8  # newest attempts whose durations say whether it is slow: more would notice it late
RECENT_MIN = 4  # fewer say nothing
MANY = 100  # fewer do not say what the slowest of a hundred take
RECENT_S = 30.0  # and older ones neither
GIVEN_UP_S = 0.5  # an attempt that was cancelled sooner says nothing


class Evidence:
    """Attempts under way and how the last ones ended. `now` gives the event loop's time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._under_way: dict[int, float] = {}  # by number, the oldest first: when it began
        self._untimed: set[int] = set()  # of these, the ones whose duration says nothing
        self._next = 0
        self._failed_since: float | None = None
        self._succeeded = -1e9
        self._durations: deque[tuple[float, float]] = deque()  # (began, how long), the oldest first
        self._sorted: list[float] = []  # how long these took: every look asks for the slowest of them
        self._newest_s = 0.0  # how long the newest success took, however long ago
        self.begun = -1e9
        """When the newest attempt began."""
        self.error = ""
        """Why the last attempt failed; kept until one succeeds."""
        self.everywhere = False
        """Whether no other agent does better."""

    def begin(self, *, timed: bool = True) -> int:
        """An attempt begins; its number. `timed`: how long it takes says how fast the thing is."""
        self._next += 1
        self.begun = self._under_way[self._next] = self.now()
        if not timed:
            self._untimed.add(self._next)
        return self._next

    def succeeded(self, attempt: int) -> None:
        """It worked: whatever failed before is over."""
        began, timed = self._ended(attempt)
        self._succeeded = self.now()
        if timed:
            self._keep(began, self._succeeded - began)
        self._failed_since, self.error, self.everywhere = None, "", False

    def failed(self, attempt: int, error: str, *, everywhere: bool = False) -> None:
        """It did not work; with `everywhere` it works for no other agent either."""
        began, _ = self._ended(attempt)
        self.error, self.everywhere = error, everywhere
        if self._failed_since is None:
            self._failed_since = max(began, self._succeeded)

    def given_up(self, attempt: int) -> None:
        """It was cancelled. That is a failure when it had had time and nothing else succeeded meanwhile."""
        began = self._under_way[attempt]
        if self.now() - began >= GIVEN_UP_S and self._succeeded < began:
            self.failed(attempt, f"no answer within {self.now() - began:.1f} s")
        else:
            self._ended(attempt)

    def unanswered(self, began: float) -> None:
        """Note that a probe, begun at that loop time, got no answer in time."""
        if self._succeeded < began:
            self.error = self.error or f"no answer within {self.now() - began:.1f} s"
            if self._failed_since is None:
                self._failed_since = began

    def bad_s(self) -> float:
        """For how long it has not worked, as far as attempts tell; 0.0 when all is well."""
        since = self.now() if self._failed_since is None else self._failed_since
        if self._under_way:
            since = min(since, max(next(iter(self._under_way.values())), self._succeeded))
        return max(0.0, self.now() - since)

    def reason(self, unanswered_s: float) -> str:
        """What is wrong; empty when nothing failed and nothing is unanswered for that long."""
        bad_s = self.bad_s()
        if self.error:
            return f"{self.error} (for {bad_s:.1f} s)"
        return f"no answer for {bad_s:.1f} s" if bad_s >= unanswered_s else ""

    def latency_ms(self) -> float:
        """How long the newest success took, milliseconds."""
        return round(self._newest_s * 1000, 3)

    def slow(self, limit_s: float) -> tuple[float, float] | None:
        """How long half of the newest attempts took at least, and when the first slow one of them began.

        None when they took no longer than `limit_s`, or are too few to tell. What is under way and has
        lasted for longer is one of them.
        """
        known = self._recent(RECENT_MAX)
        known += [each for each in self._timed_under_way() if each[1] > limit_s]
        newest = sorted(known)[-RECENT_MAX:]
        slow = [each for each in newest if each[1] > limit_s]
        if len(newest) < RECENT_MIN or 2 * len(slow) < len(newest):
            return None
        return sorted(took for _, took in newest)[len(newest) // 2], slow[0][0]

    def typical_s(self) -> float:
        """The middle one of the newest durations; 0.0 when there are too few to tell."""
        recent = sorted(took for _, took in self._recent(RECENT_MAX))
        return recent[len(recent) // 2] if len(recent) >= RECENT_MIN else 0.0

    def newest_s(self) -> float:
        """How long the newest success took, or what is under way already; 0.0 when it is long ago."""
        return max((took for _, took in self._recent(1) + self._timed_under_way()), default=0.0)

    def late_s(self) -> float:
        """What 99 of a hundred recent attempts take at most; 0.0 when there are too few to tell."""
        self._forget_old()
        recent = self._sorted
        return recent[-1 - len(recent) // 100] if len(recent) >= MANY else 0.0

    def _recent(self, most: int) -> list[tuple[float, float]]:
        """When the newest successes began and how long they took, but not those that are old."""
        self._forget_old()
        return list(islice(reversed(self._durations), most))

    def _keep(self, began: float, took: float) -> None:
        self._newest_s = took
        self._durations.append((began, took))
        insort(self._sorted, took)
        if len(self._durations) > KEPT_MAX:
            self._forget_oldest()

    def _forget_old(self) -> None:
        now, durations = self.now(), self._durations
        while durations and now - durations[0][0] - durations[0][1] > RECENT_S:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, took = self._durations.popleft()
        del self._sorted[bisect_left(self._sorted, took)]

    def _timed_under_way(self) -> list[tuple[float, float]]:
        now = self.now()
        return [
            (began, now - began) for attempt, began in self._under_way.items() if attempt not in self._untimed
        ]

    def _ended(self, attempt: int) -> tuple[float, bool]:
        """When it began, and whether it was timed."""
        timed = attempt not in self._untimed
        self._untimed.discard(attempt)
        return self._under_way.pop(attempt), timed
