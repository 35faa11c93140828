"""Long polls: who waits for which partitions, woken when a log entry touches one of them.

A partition may have thousands of readers, who wake up by turns: so many in one round of the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from objectstore.rounds import Rounds

WOKEN_MAX: Final = 128
"""Polls that are woken in one round of the event loop. Each takes 0.1 to 0.3 ms of it."""


class Woken(Protocol):
    """Who waits: an event, or a poll without a task (agent/kafka/repeats.py)."""

    def set(self) -> None:
        """There may be something. Does nothing else at once: others are told in the same go."""
        ...


class Waiters:
    """Waiting polls by partition handle."""

    def __init__(self) -> None:
        self._by_handle: dict[int, dict[Woken, None]] = {}
        self._standing: dict[int, dict[Standing, None]] = {}
        self._parked: dict[Standing, None] = {}
        self._rounds = Rounds[Woken | Standing](_wake, WOKEN_MAX)
        self.count = 0

    @contextmanager
    def watch(self, handles: Iterable[int]) -> Iterator[asyncio.Event]:
        """An event that is set when one of the partitions is touched; watched until the block ends."""
        event = asyncio.Event()
        watched = list(dict.fromkeys(handles))
        self.enter(event, watched)
        try:
            yield event
        finally:
            self.leave(event, watched)

    def enter(self, one: Woken, handles: Iterable[int]) -> None:
        """It is told when one of the partitions is touched, until it leaves."""
        by_handle = self._by_handle
        for handle in handles:
            waiting = by_handle.get(handle)
            if waiting is None:
                by_handle[handle] = {one: None}
            else:
                waiting[one] = None
        self.count += 1

    def leave(self, one: Woken, handles: Iterable[int]) -> None:
        """It waits no more for these, for which it entered."""
        by_handle = self._by_handle
        self.count -= 1
        self._rounds.leave(one)
        for handle in handles:
            waiting = by_handle[handle]
            del waiting[one]
            if not waiting:
                del by_handle[handle]

    @contextmanager
    def park(self, standing: Standing) -> Iterator[asyncio.Event]:
        """The same for what is watched anyway: the event is set already if a touch was not taken yet."""
        self._parked[standing] = None
        self.count += 1
        if standing.touched:
            standing.event.set()
        try:
            yield standing.event
        finally:
            self.count -= 1
            self._rounds.leave(standing)
            self._parked.pop(standing, None)

    def enter_by(self, standing: Standing, one: Woken) -> None:
        """It is told of what the watch is told of, until it leaves. Of what was touched already it knows."""
        standing.other = one
        self._parked[standing] = None
        self.count += 1

    def leave_by(self, standing: Standing, one: Woken) -> None:
        """It is told no more."""
        self.count -= 1
        if standing.other is one:
            standing.other = None
            self._parked.pop(standing, None)

    def note(self, handles: Iterable[int]) -> None:
        """Remember what was touched for those who watch all the time; nobody is woken yet."""
        standing = self._standing
        if standing:
            for handle in handles:
                for each in standing.get(handle, ()):
                    each.touched.add(handle)

    def touched(self, handles: Iterable[int]) -> None:
        """Wake whoever waits for one of these partitions."""
        by_handle, standing = self._by_handle, self._standing
        for handle in handles:
            for one in (*by_handle.get(handle, ()), *standing.get(handle, ())):
                self._rounds.come(one)

    def wake_all(self) -> None:
        """Wake everyone: the state was replaced, or the agent is leaving."""
        for waiting in self._by_handle.values():
            for one in waiting:
                self._rounds.come(one)
        for each in self._parked:
            self._rounds.come(each)

    def add(self, standing: Standing, handle: int) -> None:
        """It watches the partition from now on."""
        self._standing.setdefault(handle, {})[standing] = None

    def remove(self, standing: Standing, handle: int) -> None:
        """It watches the partition no more."""
        watching = self._standing[handle]
        del watching[standing]
        if not watching:
            del self._standing[handle]


class Standing:
    """A watch that stays between polls: `touched` are the handles that the log touched since `take`."""

    __slots__ = ("_waiters", "event", "other", "touched")

    def __init__(self, waiters: Waiters) -> None:
        self._waiters = waiters
        self.event = asyncio.Event()
        self.other: Woken | None = None
        """Who waits beside those that wait for the event."""
        self.touched: set[int] = set()

    def tell(self) -> None:
        """Wake whoever waits by it."""
        self.event.set()
        if self.other is not None:
            self.other.set()

    def add(self, handle: int) -> None:
        """Watch the partition."""
        self._waiters.add(self, handle)

    def remove(self, handle: int) -> None:
        """Watch it no more."""
        self._waiters.remove(self, handle)
        self.touched.discard(handle)

    def take(self) -> set[int]:
        """What was touched; from here on `event` tells of what comes."""
        self.event.clear()
        touched, self.touched = self.touched, set()
        return touched


def _wake(one: Woken | Standing) -> None:
    if isinstance(one, Standing):
        one.tell()
    else:
        one.set()
