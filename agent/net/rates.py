"""How fast somebody takes something, and how long they have to wait: Kafka's windows and its token bucket.

Figures are those of Kafka's own classes (SampledStat, Rate, TokenBucket, QuotaUtils), so a quota means here
what it means there. Times are the caller's, whole milliseconds that only go on. Nothing here waits.
"""

from __future__ import annotations

from collections import deque
from math import floor

_START, _LAST, _VALUE = range(3)


class Rate:
    """What was taken in the last `samples` windows of `window_ms`. It keeps one sample more at most."""

    __slots__ = ("_samples", "_samples_max", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples_max, self._window_ms = samples, window_ms
        self._samples: deque[list[float]] = deque(maxlen=samples + 1)

    def record(self, value: float, now_ms: int) -> None:
        """So much was taken; a negative value gives back."""
        samples = self._samples
        if not samples or now_ms - samples[-1][_START] >= self._window_ms:
            samples.append([now_ms, now_ms, 0.0])
        samples[-1][_LAST] = now_ms
        samples[-1][_VALUE] += value

    def throttle_ms(self, bound: float, now_ms: int, more: float = 0.0) -> int:
        """How long until the rate is `bound` (per second) again if nothing else is taken; 0: it is not above.

        `more`: as if so much were taken now.
        """
        window_ms = self._elapsed_ms(now_ms)
        rate = (sum(sample[_VALUE] for sample in self._samples) + more) / (window_ms / 1000)
        return floor((rate - bound) / bound * window_ms + 0.5) if rate > bound else 0

    def _forget(self, now_ms: int) -> None:
        """Samples that end before the windows are gone; what they overlap counts whole."""
        samples = self._samples
        while samples and now_ms - samples[0][_LAST] >= self._samples_max * self._window_ms:
            samples.popleft()

    def _elapsed_ms(self, now_ms: int) -> int:
        """The time over which the samples were taken, as long as all full windows at least."""
        self._forget(now_ms)
        elapsed = now_ms - int(self._samples[0][_START]) if self._samples else 0
        missing = self._samples_max - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)


class Paced(Rate):
    """A rate whose taker, once above it, takes no more bursts until it was below for all windows.

    Kafka's windows let somebody who always wants more take ten seconds' worth at once about every eleven, so
    a single minute is off by a tenth. This one waits longer at times, never shorter, and keeps each minute.
    """

    __slots__ = ("_at_ms", "_level", "_new", "_until_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        super().__init__(samples, window_ms)
        self._new = self._level = 0.0  # taken since it was looked at; what the pace is behind by
        self._at_ms = self._until_ms = 0

    def record(self, value: float, now_ms: int) -> None:
        """See Rate."""
        super().record(value, now_ms)
        self._new += value

    def paced(self, now_ms: int) -> bool:
        """Whether there are no bursts now."""
        return now_ms < self._until_ms

    def throttle_ms(self, bound: float, now_ms: int, more: float = 0.0) -> int:
        """See Rate. A debt is forgotten down to what all windows hold, as theirs is."""
        wait_ms = super().throttle_ms(bound, now_ms, more)
        new, self._new = self._new, 0.0
        all_ms = self._samples_max * self._window_ms
        if self.paced(now_ms):
            drained = bound * (now_ms - self._at_ms) / 1000
            level = max(self._level - drained, -bound * self._window_ms / 1000) + new
            self._level = min(level, bound * all_ms / 1000)
            wait_ms = max(wait_ms, floor((self._level + more) / bound * 1000 + 0.5))
        else:
            self._level = 0.0
        self._at_ms = now_ms
        if wait_ms > 0:
            self._until_ms = now_ms + wait_ms + all_ms
        return wait_ms


class TokenBucket:
    """Tokens that come at a rate, `burst_s` seconds of them at most; more may be owed (KIP-599)."""

    __slots__ = ("_burst_s", "_last_ms", "_tokens")

    def __init__(self, burst_s: float, bound: float, now_ms: int) -> None:
        self._burst_s = burst_s
        self._tokens = burst_s * bound
        self._last_ms = now_ms

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long until nothing is owed; 0: nothing is."""
        self._refill(bound, now_ms)
        return floor(-self._tokens / bound * 1000 + 0.5) if self._tokens < 0 else 0

    def take(self, value: float, bound: float, now_ms: int) -> None:
        """Take tokens, whether they are there or not."""
        self._refill(bound, now_ms)
        self._tokens = min(self._burst_s * bound, self._tokens - value)

    def _refill(self, bound: float, now_ms: int) -> None:
        passed_s = (now_ms - self._last_ms) / 1000
        self._tokens = min(self._burst_s * bound, self._tokens + bound * passed_s)
        self._last_ms = now_ms
