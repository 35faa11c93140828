"""Outcomes of stored requests are told by turns: so many in one round of the event loop.

A flush may hold thousands of small requests, which would all wake up in one round. What failed is told at
once: the order of what its client sends again depends on that (firsts.py).
"""

from __future__ import annotations

from typing import Final

from agent.kafka.produce.buffer import Request
from objectstore.rounds import Rounds

TOLD_MAX: Final = 128
"""Requests that are told in one round of the event loop. Each takes 0.05 to 0.15 ms of it."""


class Telling:
    """Of one driver, in its event loop."""

    def __init__(self) -> None:
        self._stored = Rounds(_told, TOLD_MAX)

    def tell(self, request: Request) -> None:
        """All of its outcomes are known."""
        if any(each.code for each in request.outcomes):
            _told(request)
        else:
            self._stored.come(request)

    def all(self) -> None:
        """Tell those that wait now."""
        self._stored.all()


def _told(request: Request) -> None:
    if not request.done.done():  # else nobody waits any more
        request.done.set_result(request.outcomes)
