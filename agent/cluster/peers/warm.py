"""Reads the tails of partitions ahead when they move to this agent, so that its first readers do not wait.

Only partitions that were written of late, newest first, within a bound of bytes and of time. What cannot be
read is left: a cold cache costs time, never a record.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from agent.cluster.hints import LeaderHints
from agent.telemetry.logs import logger
from coordination.state.state import State
from coordination.state.types import Applied, Broker
from objectstore import tasks
from objectstore.naming import SliceRef
from objectstore.store import StoreError

_log = logger("warm")

TOUCHED_MAX = 10_000  # partitions remembered as written of late
PARTITION_BYTES_MAX = 256 * 1024  # read ahead of one partition, bytes
SLICES_PER_READ = 256
HANDLES_PER_STEP = 200  # partitions looked at before others get a turn


class Reader(Protocol):
    """The part of the chunk reader that is needed here."""

    async def read_many(self, slices: Sequence[SliceRef]) -> list[memoryview]:
        """The slices' batches, kept in memory on the way."""
        ...


class Warmer:
    """Reads the newest records of a partition into memory when this agent begins to lead it.

    `state` gives the state of now, `own` this agent's node id; `bytes_max` bounds one warming.
    """

    def __init__(
        self, state: Callable[[], State], own: Callable[[], int], reader: Reader, bytes_max: int
    ) -> None:
        self._state = state
        self._own = own
        self._reader = reader
        self._bytes_max = bytes_max
        self._touched: OrderedDict[int, None] = OrderedDict()
        self._brokers: list[Broker] = []
        self._hints = LeaderHints(dict)
        self._followed = self._hints  # what moved up to these has been read ahead, or is just being
        self._task: asyncio.Task[None] | None = None
        self.warmed_bytes = 0

    def applied(self, applied: Applied) -> None:
        """Listener of the replica: note what is written, and warm what moved here."""
        touched = self._touched
        for handle in applied.touched:
            touched[handle] = None
            touched.move_to_end(handle)
        while len(touched) > TOUCHED_MAX:
            touched.popitem(last=False)
        brokers = list(self._state().brokers.values())
        if brokers != self._brokers:
            self._members_changed(brokers)

    async def warm_up(self, seconds: float) -> None:
        """Read ahead what this agent will lead once it is named, for so long at most."""
        own, brokers = self._own(), self._state().brokers
        if own not in brokers:
            return
        named = {node: replace(each, named=True) if node == own else each for node, each in brokers.items()}
        try:
            async with asyncio.timeout(seconds):
                await self._warm(partial(_leads, LeaderHints(lambda: named), named[own]))
        except TimeoutError:
            _log.info("not everything was read ahead in time", seconds=seconds)

    async def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _members_changed(self, brokers: list[Broker]) -> None:
        known = {broker.node_id: broker for broker in brokers}
        own = known.get(self._own())
        entered = any(each.node_id == self._own() and not each.named for each in self._brokers)
        self._brokers, self._hints = brokers, LeaderHints(lambda: known)
        if own is None or not own.named or entered:  # who enters has read ahead: `warm_up`
            self._followed = self._hints
            return
        if self._task is None or self._task.done():
            self._task = tasks.start(self._follow(), "reading ahead")

    async def _follow(self) -> None:
        """Read ahead what moved here, and what moves while that is read."""
        while self._followed is not self._hints:
            before, self._followed = self._followed, self._hints
            own = next((each for each in self._brokers if each.node_id == self._own()), None)
            if own is not None:
                await self._warm(partial(_moved, before, self._followed, own))

    async def _warm(self, wanted: Callable[[int], bool]) -> None:
        """Read ahead the partitions that are `wanted`, the last written first."""
        left, slices = self._bytes_max, list[SliceRef]()
        for number, handle in enumerate(list(reversed(self._touched))):
            if left <= 0:
                break
            if number % HANDLES_PER_STEP == 0:
                await asyncio.sleep(0)
            partition = self._state().partitions[handle]
            if partition is None or not wanted(handle):
                continue
            newest = partition.slices.newest(min(left, PARTITION_BYTES_MAX))
            left -= sum(each.length for each in newest)
            slices += newest
            if len(slices) >= SLICES_PER_READ:
                await self._read(slices)
                slices = []
        await self._read(slices)

    async def _read(self, slices: Sequence[SliceRef]) -> None:
        try:
            read = await self._reader.read_many(slices)
        except (StoreError, TimeoutError) as error:
            _log.info("a tail cannot be read ahead", error=repr(error))
            return
        self.warmed_bytes += sum(map(len, read))


def _leads(hints: LeaderHints, own: Broker, handle: int) -> bool:
    zone = own.zone
    return own.node_id in (hints.leader(handle, zone), hints.reader(handle, zone))


def _moved(before: LeaderHints, after: LeaderHints, own: Broker, handle: int) -> bool:
    return _leads(after, own, handle) and not _leads(before, own, handle)
