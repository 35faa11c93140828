"""When a request of the store is late, and whether another one like it may be sent beside it.

Late is what takes longer than most of its kind took lately: the store itself says what is usual, so the same
rule holds with medians of 5 and of 50 ms, and a store that becomes slow for everybody is not asked twice. A
tail that one request in ten is in has little to do with the request: a second one is not in it nine times
in ten. Hedges are earned by requests, so however late all are, they stay a small share of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

SAMPLES_MAX = 128  # newest requests whose durations decide when one is late
SAMPLES_MIN = 16  # before that the longest delay holds
EARNED_MAX = 8.0  # hedges that may be sent one right after the other


@dataclass(frozen=True, slots=True)
class HedgePolicy:
    """A request is late after `factor` times this quantile of what the newest took, within the bounds."""

    factor: float = 1.0
    delay_s_min: float = 0.05
    delay_s_max: float = 2.0
    share_max: float = 0.15  # of all requests; more would feed the overload that made them late
    quantile: float = 0.9


class Lateness:
    """Of one kind of request; times in seconds."""

    def __init__(self, policy: HedgePolicy) -> None:
        self._policy = policy
        self._durations: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._earned = 1.0

    @property
    def delay_s(self) -> float:
        """How long a request may take before it is late."""
        policy = self._policy
        if len(self._durations) < SAMPLES_MIN:
            return policy.delay_s_max
        usual = sorted(self._durations)[int(len(self._durations) * policy.quantile)]
        return min(policy.delay_s_max, max(policy.delay_s_min, policy.factor * usual))

    def began(self) -> None:
        """A request was sent: part of a hedge is earned."""
        self._earned = min(EARNED_MAX, self._earned + self._policy.share_max)

    def took(self, seconds: float) -> None:
        """A request, with its hedge if it had one, was answered.

        One that was hedged counts as late all the same: it took longer than the delay, so the quantile below
        it stays what it is.
        """
        self._durations.append(seconds)

    @property
    def affordable(self) -> bool:
        """Whether a hedge is earned."""
        return self._earned >= 1.0

    def hedged(self) -> None:
        """One was sent."""
        self._earned -= 1.0
