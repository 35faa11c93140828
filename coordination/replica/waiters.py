"""Who waits for the state to move: long polls for partitions, callers for a revision."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable
from types import TracebackType


class PartitionWatch:
    """Woken when the bounds of any of its partitions move. Close it, or use it as a context manager."""

    def __init__(self, owner: PartitionWatches, handles: tuple[int, ...]) -> None:
        self._owner = owner
        self._handles = handles
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Return once something moved since creation or the last clear()."""
        await self._event.wait()

    def is_set(self) -> bool:
        """Whether something moved since creation or the last clear()."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake the waiter."""
        self._event.set()

    def clear(self) -> None:
        """Forget what moved; call before looking at the state."""
        self._event.clear()

    def close(self) -> None:
        """Watch no more. Idempotent."""
        self._owner.remove(self, self._handles)

    def __enter__(self) -> PartitionWatch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class PartitionWatches:
    """All watches, by partition handle."""

    def __init__(self) -> None:
        self._by_handle: dict[int, dict[int, PartitionWatch]] = {}

    def watch(self, handles: Iterable[int]) -> PartitionWatch:
        """A watch on all of these partitions."""
        named = tuple(dict.fromkeys(handles))
        watch = PartitionWatch(self, named)
        for handle in named:
            self._by_handle.setdefault(handle, {})[id(watch)] = watch
        return watch

    def remove(self, watch: PartitionWatch, handles: Iterable[int]) -> None:
        """Take a watch out."""
        for handle in handles:
            watches = self._by_handle.get(handle)
            if watches is not None:
                watches.pop(id(watch), None)
                if not watches:
                    del self._by_handle[handle]

    def wake(self, handles: Iterable[int]) -> None:
        """Wake whoever watches one of these."""
        by_handle = self._by_handle
        if not by_handle:
            return
        for handle in handles:
            watches = by_handle.get(handle)
            if watches is not None:
                for watch in watches.values():
                    watch.set()

    def wake_all(self) -> None:
        """Wake everybody: the state was replaced."""
        self.wake(list(self._by_handle))


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
