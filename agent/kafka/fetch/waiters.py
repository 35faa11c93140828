"""Long polls: who waits for which partitions, woken when a log entry touches one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Waiters:
    """Waiting polls by partition handle."""

    def __init__(self) -> None:
        self._by_handle: dict[int, dict[asyncio.Event, None]] = {}
        self.count = 0

    @contextmanager
    def watch(self, handles: Iterable[int]) -> Iterator[asyncio.Event]:
        """An event that is set when one of the partitions is touched; watched until the block ends."""
        event = asyncio.Event()
        watched = list(dict.fromkeys(handles))
        for handle in watched:
            self._by_handle.setdefault(handle, {})[event] = None
        self.count += 1
        try:
            yield event
        finally:
            self.count -= 1
            for handle in watched:
                waiting = self._by_handle[handle]
                del waiting[event]
                if not waiting:
                    del self._by_handle[handle]

    def touched(self, handles: Iterable[int]) -> None:
        """Wake whoever waits for one of these partitions."""
        by_handle = self._by_handle
        for handle in handles:
            for event in by_handle.get(handle, ()):
                event.set()

    def wake_all(self) -> None:
        """Wake everyone: the state was replaced, or the agent is leaving."""
        for waiting in self._by_handle.values():
            for event in waiting:
                event.set()
