"""A connection that is not read for a while, because its client took more than it may (KIP-219)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Muting:
    """Of one connection. `changed` is called when it should be read again, or no longer."""

    __slots__ = ("_changed", "_loop", "_timer", "_until")

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        self._loop, self._changed = loop, changed
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def on(self) -> bool:
        """Whether nothing is read."""
        return self._timer is not None

    def mute(self, seconds: float) -> None:
        """Read nothing for so long, at least until what has come has begun; of several the longest counts."""
        until = self._loop.time() + seconds
        if until <= self._until:
            return
        self.end()
        self._until = until
        self._timer = self._loop.call_at(until, self._over)
        self._changed()

    def end(self) -> None:
        """The connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        self._timer = None
        self._changed()
