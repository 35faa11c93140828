"""Where a restore's seconds go."""

from __future__ import annotations

from coordination.clock import Clock


class Stages:
    """Seconds by stage, in the order in which stages ended first; one that comes twice has the sum."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock.monotonic()
        self.seconds: dict[str, float] = {}

    def over(self, stage: str) -> None:
        """What was done since the stage before ended was this one."""
        now = self._clock.monotonic()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._since
        self._since = now
