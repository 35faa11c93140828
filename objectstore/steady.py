"""A pace in bytes per second that is kept over time, whatever single reads take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

BEHIND_S_MAX = 5.0  # of a pace that was not reached: what is caught up with at most


class Steady:
    """Lets `bytes_per_s` through. `now`: seconds that only go on; `sleep` waits for so many.

    Time that reads took is made up for, up to BEHIND_S_MAX; what the store did not give within it is not
    asked for faster later.
    """

    def __init__(
        self, bytes_per_s: float, now: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._now = now
        self._sleep = sleep
        self._due_s: float | None = None

    async def take(self, count: int) -> None:
        """Wait until `count` bytes more may be read."""
        now = self._now()
        due = now if self._due_s is None else max(self._due_s, now - BEHIND_S_MAX)
        self._due_s = due + count / self.bytes_per_s
        await self._sleep(max(0.0, due - now))
