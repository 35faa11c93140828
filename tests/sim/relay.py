"""Read, process, write: one client copies the judged topic to another one, exactly once.

What it read and what it wrote of it are one transaction. So when all is over the copies are exactly of those
records that lie below the group's positions, whatever was killed, held or sent twice meanwhile. A record's
copy is its place, `partition.offset`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiokafka import TopicPartition

from tests.checker.findings import Finding
from tests.sim.clients import POLL_MS, RETRY_S, Surroundings, stopped
from tests.sim.producers import ERRORS, VERSIONS, Producing
from tests.sim.transactors import ABORTED_OF, OPERATION_S_MAX, committed_reader

GROUP = COPIES = "copies"
COPIES_PARTITIONS = 2
BATCH_MAX = 8
PAUSE_S = 0.15


class Relay:
    """One client at a time; the next one fences the one before by its transactional id."""

    def __init__(self, around: Surroundings, version: str, timeout_ms: int) -> None:
        self._around = around
        self._version = version
        self._timeout_ms = timeout_ms

    async def live(self) -> None:
        """Until told to stop: one producer after the other."""
        while not self._around.stopping.is_set():
            producer = VERSIONS[self._version](self._around, GROUP, self._timeout_ms)
            consumer = committed_reader(self._around, GROUP)
            try:
                async with asyncio.timeout(OPERATION_S_MAX):
                    await producer.start()
                    await consumer.start()  # behind it: what the one before committed is known now
                consumer.assign(self._around.keys)
                while not self._around.stopping.is_set():
                    await asyncio.sleep(self._around.loop.random.expovariate(1 / PAUSE_S))
                    await self._copy(producer, consumer)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await producer.stop()
                await stopped(consumer)

    async def _copy(self, producer: Producing, consumer: Any) -> None:
        async with asyncio.timeout(OPERATION_S_MAX):
            records = await consumer.getmany(timeout_ms=POLL_MS, max_records=BATCH_MAX)
        if not records:
            return
        commit = self._around.loop.random.random() > ABORTED_OF
        async with asyncio.timeout(OPERATION_S_MAX):
            await producer.begin()
            places = [(each.partition, each.offset) for key in sorted(records) for each in records[key]]
            for index in range(COPIES_PARTITIONS):
                copies = [f"{p}.{offset}" for p, offset in places if offset % COPIES_PARTITIONS == index]
                if copies:
                    await producer.send(TopicPartition(COPIES, index), *copies)
            following = {key: records[key][-1].offset + 1 for key in sorted(records)}
            await producer.positions(following, GROUP)
            await producer.end(commit=commit)
        if not commit:
            for key in sorted(records):
                consumer.seek(key, records[key][0].offset)


def relayed(
    read: Mapping[int, Iterable[int]], positions: Mapping[int, int], copies: Iterable[str]
) -> Iterator[Finding]:
    """Compare: offsets of committed records by partition, the group's positions, and the copies."""
    found = Counter(copies)
    due = {
        f"{partition}.{offset}"
        for partition, offsets in read.items()
        for offset in offsets
        if offset < positions.get(partition, 0)
    }
    for copy in sorted(due - found.keys()):
        yield Finding(
            "copy-lost", COPIES, f"{copy} lies below the position {positions}, its copy is not there", ()
        )
    for copy in sorted(found.keys() - due):
        yield Finding("copy-without-position", COPIES, f"{copy} is copied, the positions are {positions}", ())
    for copy, times in sorted(found.items()):
        if times > 1:
            yield Finding("copied-twice", COPIES, f"{copy} {times} times", ())
