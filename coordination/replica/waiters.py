"""Who waits for the state to reach a revision."""

from __future__ import annotations

import asyncio
import heapq


class RevisionWaiters:
    """Futures that wait until a revision has been reached."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    @property
    def wanted(self) -> int:
        """The lowest revision that somebody still waits for; 0 when nobody does."""
        while self._heap and self._heap[0][2].done():
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else 0

    def wait(self, revision: int) -> asyncio.Future[None]:
        """A future that is done once `revision` is reached later on; see Follower.wait for now or later."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._count += 1
        heapq.heappush(self._heap, (revision, self._count, future))
        return future

    def reached(self, revision: int) -> None:
        """Wake whoever waits for this revision or a lower one."""
        while self._heap and self._heap[0][0] <= revision:
            _, _, future = heapq.heappop(self._heap)
            if not future.done():
                future.set_result(None)
