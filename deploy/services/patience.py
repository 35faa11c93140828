"""How long to wait for somebody who gets on, however slowly: a busy machine is no failure."""

from __future__ import annotations

import time
from collections.abc import Callable


class Patience:
    """It is over when nothing new was seen for `seconds`, however long it takes in all."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._now = now
        self._seen: object = None
        self._until = now() + seconds

    def over(self, seen: object) -> bool:
        """Whether to give up, when `seen` is how far it has come: anything that changes as it gets on."""
        now = self._now()
        if seen != self._seen:
            self._seen, self._until = seen, now + self.seconds
        return now > self._until
