"""The checks: what each asks, and what an agent of which it is true should do. No I/O. Times in seconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from agent.health.evidence import Evidence
from coordination.replica import Replica

SAMPLES_MAX = 256  # revisions that are known to be in the log and not applied
BEHIND_S = 1.0  # unapplied for less is the way of the log
SLOW_S = 3.0  # who is slow for less, and one attempt, does not know yet whether the others are slow as well
DELAYS = 8  # newest turns of the event loop that are looked at
DELAY_S_MAX = 0.5  # the middle one of them may be late by this


@dataclass(frozen=True, slots=True)
class Bad:
    """What is wrong, and for how long."""

    reason: str
    for_s: float


@dataclass(frozen=True, slots=True)
class Slow:
    """Why it is slow, how long half of the attempts take at least, and when the first slow one began."""

    reason: str
    took_s: float
    since: float


class Check(Protocol):
    """One question. `leaves`: whether clients are better served elsewhere while its answer is bad."""

    name: str

    @property
    def leaves(self) -> bool: ...

    def look(self) -> Bad | None:
        """What is wrong now; None: nothing."""
        ...

    def latency_ms(self) -> float:
        """How long the newest good answer took; 0.0 for what is not asked."""
        ...


class Tried:
    """A check of something this agent uses anyway (log, store), judged by how its calls end."""

    def __init__(
        self,
        name: str,
        evidence: Evidence,
        unanswered_s: float,
        slow: Callable[[], Slow | None] | None = None,
    ) -> None:
        self.name = name
        self.evidence = evidence
        self._unanswered_s = unanswered_s
        self._ask_slow = slow
        self._slow_since = self._judged_at = 0.0  # when the first slow attempt began, when that was known
        self.slow = False
        """Whether it looks slow now, be it in doubt."""

    @property
    def leaves(self) -> bool:
        """See Check."""
        return not self.evidence.everywhere

    def look(self) -> Bad | None:
        """See Check."""
        reason = self.evidence.reason(self._unanswered_s)
        if reason:
            return Bad(reason, self.evidence.bad_s())
        return None if self._ask_slow is None else self._look_slow(self._ask_slow())

    def _look_slow(self, slow: Slow | None) -> Bad | None:
        """Counts from the first slow attempt, once the others had the time to find the same of themselves."""
        now = self.evidence.now()
        if slow is None:
            self.slow = False
            return None
        if not self.slow:
            self.slow, self._slow_since, self._judged_at = True, slow.since, now
        self._slow_since = min(self._slow_since, slow.since)
        if now - self._judged_at < SLOW_S + slow.took_s:
            return None
        return Bad(slow.reason, now - self._slow_since)

    def latency_ms(self) -> float:
        """See Check."""
        return self.evidence.latency_ms()


class Asked:
    """A check by a function that says what is wrong; an empty answer: nothing."""

    def __init__(self, name: str, ask: Callable[[], str], now: Callable[[], float], leaves: bool) -> None:
        self.name = name
        self.leaves = leaves
        self._ask = ask
        self._since = _Since(now)

    def look(self) -> Bad | None:
        """See Check."""
        return self._since.look(self._ask())

    def latency_ms(self) -> float:
        """See Check."""
        return 0.0


class Applying:
    """For how long this agent has known of entries in the log that it has not applied."""

    name = "applying"
    leaves = True

    def __init__(self, replica: Replica, now: Callable[[], float]) -> None:
        self._replica = replica
        self._now = now
        self._waiting: deque[tuple[float, int]] = deque()

    def look(self) -> Bad | None:
        """See Check."""
        replica, waiting = self._replica, self._waiting
        while waiting and waiting[0][1] <= replica.revision:
            waiting.popleft()
        known = replica.revision + replica.lag
        if replica.lag and len(waiting) < SAMPLES_MAX and (not waiting or known > waiting[-1][1]):
            waiting.append((self._now(), known))
        behind_s = self._now() - waiting[0][0] if waiting else 0.0
        if behind_s < BEHIND_S:
            return None
        return Bad(f"{replica.lag} revisions behind the log for {behind_s:.1f} s", behind_s)

    def latency_ms(self) -> float:
        """See Check."""
        return 0.0


class LoopDelay:
    """How late the event loop is. `turn` is told how late each turn was."""

    name = "event loop"
    leaves = True

    def __init__(self, now: Callable[[], float]) -> None:
        self._delays: deque[float] = deque(maxlen=DELAYS)
        self._since = _Since(now)

    def turn(self, late_s: float) -> None:
        """Note that one turn of the loop came so many seconds late."""
        self._delays.append(max(0.0, late_s))

    @property
    def worst_s(self) -> float:
        """The latest of the newest turns."""
        return max(self._delays, default=0.0)

    def look(self) -> Bad | None:
        """See Check."""
        middle = sorted(self._delays)[len(self._delays) // 2] if len(self._delays) == DELAYS else 0.0
        return self._since.look(f"late by {middle:.1f} s again and again" if middle > DELAY_S_MAX else "")

    def latency_ms(self) -> float:
        """See Check."""
        return round(self.worst_s * 1000, 3)


class _Since:
    """Remembers since when something has been wrong."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began: float | None = None

    def look(self, reason: str) -> Bad | None:
        if not reason:
            self._began = None
            return None
        if self._began is None:
            self._began = self._now()
        return Bad(reason, self._now() - self._began)
