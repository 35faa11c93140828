"""Whose turn it is at the workers: topics in rotation, none of them at all workers at once.

So a topic whose rules take for ever holds up itself; the others go on with the workers that are left.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from typing import Generic, TypeVar

_W = TypeVar("_W")


class Turns(Generic[_W]):
    """Gives workers out. A topic has at most all but one; where there is one only, topics take it in turn."""

    def __init__(self, workers: Sequence[_W]) -> None:
        self._free = list(reversed(workers))  # the last one that was used is the first to be used again
        self.topic_max = max(1, len(workers) - 1)
        """Workers that a topic has at once."""
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[_W]]] = OrderedDict()

    @property
    def waiting(self) -> int:
        """Pieces of work that wait for a worker."""
        return sum(map(len, self._waiting.values()))

    def idle(self, topic: str) -> int:
        """Workers that the topic could have at once without waiting; 0: others wait, or it has all it may."""
        return 0 if self._waiting else max(0, min(len(self._free), self.topic_max - self._held[topic]))

    def take_now(self, topic: str) -> _W | None:
        """A worker, to be given back; None where somebody waits or the topic has all it may."""
        if not self.idle(topic):
            return None
        self._held[topic] += 1
        return self._free.pop()

    async def take(self, topic: str) -> _W:
        """A worker, when it is the topic's turn. To be given back."""
        turn: asyncio.Future[_W] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(topic, deque()).append(turn)
        self._serve()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(topic, turn.result())
            else:
                self._forget(topic, turn)
            raise

    def give(self, topic: str, worker: _W) -> None:
        """Give it back."""
        self._free.append(worker)
        self._held[topic] -= 1
        if not self._held[topic]:
            del self._held[topic]
        self._serve()

    def _forget(self, topic: str, turn: asyncio.Future[_W]) -> None:
        line = self._waiting.get(topic)
        if line is not None and turn in line:
            line.remove(turn)
            if not line:
                del self._waiting[topic]

    def _serve(self) -> None:
        while self._free and (topic := self._next()) is not None:
            line = self._waiting[topic]
            turn = line.popleft()
            self._waiting.move_to_end(topic)
            if not line:
                del self._waiting[topic]
            if not turn.done():
                self._held[topic] += 1
                turn.set_result(self._free.pop())

    def _next(self) -> str | None:
        return next((each for each in self._waiting if self._held[each] < self.topic_max), None)
