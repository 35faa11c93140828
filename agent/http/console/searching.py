"""One look through a topic's records: bounded in records, bytes and time, off the event loop.

It looks at what its reader gets, so what is kept from him is no more found than it is shown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.http.answers import Problem
from agent.http.console.decoding import Decode, Text
from agent.telemetry.trail import http_actor
from objectstore.batch import CorruptBatch, peek, records
from objectstore.opening import opened

if TYPE_CHECKING:
    from agent.http.parts import KafkaShown, Parts
    from agent.telemetry.shown import RecordsRead

READ_BYTES: Final = 1 << 20
"""Asked for at once, while there is room."""


class Found(NamedTuple):
    """A record that is shown."""

    partition: int
    offset: int
    timestamp: int
    text: Text


class Filter(NamedTuple):
    """Which records are shown: those whose key is this text, and that have this text; empty: any."""

    key: str = ""
    contains: str = ""

    def takes(self, text: Text) -> bool:
        """Whether a record is one of them; upper and lower case are the same in `contains`."""
        if self.key and text.key != self.key:
            return False
        if not self.contains:
            return True
        wanted = self.contains.lower()
        return any(wanted in (each or "").lower() for each in (text.value, text.key, text.headers))


class Budget(NamedTuple):
    """What is left of a look."""

    rows: int
    records: int
    size: int


@dataclass(slots=True)
class Look:
    """What was found in one partition. `following`: the offset to go on at; `end`: of what there is."""

    partition: int
    following: int
    end: int = 0
    rows: list[Found] = field(default_factory=list)
    looked_at: int = 0
    read_bytes: int = 0
    problems: list[str] = field(default_factory=list)


class _Opened(NamedTuple):
    rows: list[Found]
    looked_at: int
    following: int


class Places:
    """How many looks go on at once on this agent."""

    def __init__(self, most: int) -> None:
        self._most, self._taken = most, 0

    def __enter__(self) -> None:
        """Raises Problem 503 where all are taken."""
        if self._taken >= self._most:
            raise Problem(
                503,
                f"{self._most} looks at records go on at once",
                "try again, ask another agent, or raise console.searches_in_flight_max",
            )
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        self._taken -= 1


class Search:
    """One look, over one partition after the other."""

    def __init__(
        self, parts: Parts, kafka: KafkaShown, topic: str, decode: Decode, wanted: Filter, ms_max: int
    ) -> None:
        """`ms_max`: how long it goes on, milliseconds."""
        self._kafka, self._topic, self._decode, self._wanted = kafka, topic, decode, wanted
        self._now = parts.clock.monotonic
        self._until = self._now() + ms_max / 1000

    @property
    def left_s(self) -> float:
        """Of its time."""
        return max(self._until - self._now(), 0.0)

    async def partition(self, index: int, begin: int, budget: Budget) -> Look:
        """Records from offset `begin` on."""
        look = Look(index, begin)
        try:
            async with asyncio.timeout(self.left_s):
                await self._partition(look, budget)
        except TimeoutError:
            look.problems.append("stopped: its time is over")
        return look

    async def _partition(self, look: Look, budget: Budget) -> None:
        while (
            len(look.rows) < budget.rows and look.looked_at < budget.records and look.read_bytes < budget.size
        ):
            size = min(READ_BYTES, budget.size - look.read_bytes)
            read = await self._kafka.read(http_actor.get(), self._topic, look.partition, look.following, size)
            if read is None:
                look.problems.append("there is no such partition")
                return
            look.end = read.last_stable
            if read.problem:
                look.problems.append(f"offset {look.following}: {read.problem}")
                return
            if not await self._take(look, read, budget) or look.following >= read.last_stable:
                return

    async def _take(self, look: Look, read: RecordsRead, budget: Budget) -> bool:
        """What of these batches is wanted; whether all were gone through and there may be more."""
        before = look.following
        for batch in read.batches:
            left = budget.rows - len(look.rows), budget.records - look.looked_at
            if min(left) <= 0:
                return False
            look.read_bytes += len(batch)
            header = peek(batch)
            if header.control:
                continue
            # The decoder asks the loop for schemas, so it must not be on it.
            work = partial(self._open, look.partition, look.following, left)
            try:
                found = await opened(work, batch, 0)
            except CorruptBatch as error:
                look.problems.append(f"offsets {header.base_offset} to {header.last_offset}: {error}")
                continue
            look.rows += found.rows
            look.looked_at += found.looked_at
            look.following = found.following
        if min(budget.rows - len(look.rows), budget.records - look.looked_at) > 0:
            look.following = max(look.following, read.following)
        return look.following > before

    def _open(
        self, index: int, start: int, left: tuple[int, int], batch: memoryview, decoded_bytes_max: int
    ) -> _Opened:
        """In a thread."""
        rows_left, records_left = left
        rows: list[Found] = []
        looked_at = 0
        following = peek(batch).last_offset + 1
        for record in records(batch, decoded_bytes_max):
            if record.offset < start:
                continue
            if looked_at >= records_left or len(rows) >= rows_left or self._now() >= self._until:
                following = record.offset
                break
            looked_at += 1
            text = self._decode(record)
            if self._wanted.takes(text):
                rows.append(Found(index, record.offset, record.timestamp, text))
        return _Opened(rows, looked_at, following)
