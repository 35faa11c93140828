"""Read, process, write: one client copies the judged topic to another one, exactly once.

What it read and what it wrote of it are one transaction. So when all is over the copies are exactly of those
records that lie below the group's positions, whatever was killed, held or sent twice meanwhile. A record's
copy is its place, `topic-partition.offset`. A client that does not go back to where a transaction began which
it aborted (KAFKA-17582) loses what that had read, by its own fault: such places may be missing, and are
counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from aiokafka import TopicPartition

from tests.checker.findings import Finding
from tests.sim.clients import POLL_MS, RETRY_S, Surroundings, name, stopped
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
                known = 0
                while not self._around.stopping.is_set():
                    if len(self._around.keys.every) != known:
                        known = len(self._around.keys.every)
                        consumer.assign(list(self._around.keys.every))
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
            await copy(producer, COPIES, records)
            following = {key: records[key][-1].offset + 1 for key in sorted(records)}
            await producer.positions(following, GROUP)
            await producer.end(commit=commit)
        if commit:
            return
        for key in sorted(records):
            if self._around.seeks_back:
                consumer.seek(key, records[key][0].offset)
            else:
                self._around.skipped.update(f"{name(key)}.{each.offset}" for each in records[key])


async def copy(producer: Producing, topic: str, records: Mapping[TopicPartition, Sequence[Any]]) -> None:
    """Send the places of the records to the topic's partitions."""
    places = [(name(key), each.offset) for key in sorted(records) for each in records[key]]
    for index in range(COPIES_PARTITIONS):
        copies = [f"{key}.{offset}" for key, offset in places if offset % COPIES_PARTITIONS == index]
        if copies:
            await producer.send(TopicPartition(topic, index), *copies)


def relayed(
    topic: str,
    read: Mapping[str, Iterable[int]],
    positions: Mapping[str, int],
    copies: Iterable[str],
    skipped: Container[str] = (),
) -> Iterator[Finding]:
    """Compare: offsets of committed records by key, the group's positions, and the copies in the topic.

    Of those that the client itself `skipped` copies may be there or not.
    """
    found = Counter(copies)
    due = {
        f"{key}.{offset}"
        for key, offsets in read.items()
        for offset in offsets
        if offset < positions.get(key, 0)
    }
    for place in sorted(due - found.keys()):
        if place not in skipped:
            at = positions[place.rpartition(".")[0]]
            yield Finding(
                "copy-lost", topic, f"{place} is below the position {at}, its copy is not there", ()
            )
    for place in sorted(found.keys() - due):
        at = positions.get(place.rpartition(".")[0], 0)
        yield Finding("copy-without-position", topic, f"{place} is copied, the position is {at}", ())
    for place, times in sorted(found.items()):
        if times > 1:
            yield Finding("copied-twice", topic, f"{place} {times} times", ())
