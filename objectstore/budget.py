"""The PUT budget: a token bucket, since stores are billed by the request and slow down when hurried."""

from __future__ import annotations

from objectstore.pace import LoopPace, Pace


class PutBudget:
    """At most `per_second` PUTs in the long run and `burst` at once. First come, first served."""

    def __init__(self, per_second: float, burst: int, pace: Pace | None = None) -> None:
        if per_second <= 0 or burst < 1:
            raise ValueError(f"a PUT budget of {per_second}/s, {burst} at once: both must be above zero")
        self._gap = 1.0 / per_second
        self._slack = (burst - 1) * self._gap
        self._pace = pace or LoopPace()
        self._next = float("-inf")  # when the PUT after the last one is due at an even rate

    def wait(self) -> float:
        """Seconds until a PUT may begin; 0 when one may begin now. Takes nothing."""
        return max(0.0, self._next - self._slack - self._pace.monotonic())

    async def take(self) -> None:
        """Wait for a PUT's turn. Turns are given out in the order of the calls; one given is used up."""
        wait = self.wait()
        self._next = max(self._next, self._pace.monotonic()) + self._gap
        if wait:
            await self._pace.sleep(wait)
