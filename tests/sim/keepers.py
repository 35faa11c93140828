"""Clients of a compacted topic: one writes few keys again and again, one restores a table of them.

Keys that begin with `t` get tombstones now and then, those with `k` never do: of these a restore that runs
while the topic is compacted must end with a record no older than what was acknowledged before it began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from tests.checker.findings import Finding
from tests.sim.clients import POLL_MS, RETRY_S, SHORT, Surroundings, name, stopped
from tests.sim.loop import NODE

KEPT, SHORT_LIVED = "kept", "short"
KEPT_PARTITIONS, SHORT_PARTITIONS = 2, 1
VALUES = tuple(f"k{n}" for n in range(6))
WITH_TOMBSTONES = tuple(f"t{n}" for n in range(4))
PAUSE_S = 0.2
RESTORE_PAUSE_S = 1.0


class Kept(NamedTuple):
    """One record. `value` None: a tombstone."""

    partition: int
    key: str
    value: str | None
    offset: int

    @property
    def encoded(self) -> bytes | None:
        """The value's bytes."""
        return None if self.value is None else self.value.encode()


@dataclass(slots=True)
class Ledger:
    """What was sent to the compacted topic, what of it was acknowledged, and what restores found wrong."""

    acknowledged: list[Kept] = field(default_factory=list)
    sent: set[tuple[int, str, str | None]] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    restores: int = 0

    def judge(self, found: Sequence[Kept], known: int) -> list[Finding]:
        """Compare what was read from the start to the end with the first `known` acknowledged records."""
        wrong: list[str] = []
        at = {(each.partition, each.offset): each for each in self.acknowledged}
        newest: dict[tuple[int, str], Kept] = {}
        last: dict[int, int] = {}
        for each in found:
            if each.offset <= last.get(each.partition, -1):
                wrong.append(f"offset {each.offset} after {last[each.partition]}: {each}")
            last[each.partition] = each.offset
            if each[:3] not in self.sent or at.get((each.partition, each.offset), each) != each:
                wrong.append(f"never written there: {each}")
            newest[each.partition, each.key] = each
        for due in self.acknowledged[:known]:
            had = newest.get((due.partition, due.key))
            if due.key in VALUES and (had is None or had.offset < due.offset):
                wrong.append(f"acknowledged {due}, the newest that is read is {had}")
        return [Finding("compaction-lost", KEPT, each, ()) for each in wrong]

    def judge_at_rest(self, found: Sequence[Kept]) -> list[Finding]:
        """When nothing is written any more: no tombstone's value is back, none is gone that nothing ended."""
        findings = self.judge(found, len(self.acknowledged))
        newest = {(each.partition, each.key): each for each in found}
        for due in {(each.partition, each.key): each for each in self.acknowledged}.values():
            had = newest.get((due.partition, due.key))
            ended = (due.partition, due.key, None) in self.sent
            if had.offset < due.offset if had is not None else not ended:
                findings.append(Finding("compaction-lost", KEPT, f"acknowledged {due}, now {had}", ()))
        return findings


class Keeper:
    """Writes to the compacted topic and, as much again, to the one of short retention."""

    def __init__(self, around: Surroundings, ledger: Ledger) -> None:
        self._around = around
        self._ledger = ledger
        self._next = 0

    async def live(self) -> None:
        """Until told to stop: one producer after the other."""
        while not self._around.stopping.is_set():
            producer = AIOKafkaProducer(
                bootstrap_servers=self._around.bootstrap,
                enable_idempotence=True,
                client_id=NODE.get(),
                **SHORT,
            )
            try:
                await producer.start()
                while not self._around.stopping.is_set():
                    await self._write(producer)
                    await asyncio.sleep(self._around.loop.random.expovariate(1 / PAUSE_S))
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(producer)

    async def _write(self, producer: Any) -> None:
        random = self._around.loop.random
        self._next += 1
        key = random.choice(VALUES + WITH_TOMBSTONES)
        partition = random.randrange(KEPT_PARTITIONS)
        value = f"{NODE.get()}.{self._next}"
        kept: str | None = None if key in WITH_TOMBSTONES and random.random() < 0.4 else value
        self._ledger.sent.add((partition, key, kept))
        answer = await producer.send_and_wait(
            KEPT,
            None if kept is None else kept.encode(),
            key=key.encode(),
            partition=partition,
            timestamp_ms=self._around.timestamp(),
        )
        self._ledger.acknowledged.append(Kept(partition, key, kept, answer.offset))
        await producer.send_and_wait(
            SHORT_LIVED, value.encode(), partition=0, timestamp_ms=self._around.timestamp()
        )


class Restorer:
    """Reads the compacted topic from the start to its end, again and again, as Streams restores a store."""

    def __init__(self, around: Surroundings, ledger: Ledger) -> None:
        self._around = around
        self._ledger = ledger

    async def live(self) -> None:
        """Until told to stop: one consumer after the other."""
        while not self._around.stopping.is_set():
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._around.bootstrap,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                client_id=NODE.get(),
                max_partition_fetch_bytes=self._around.fetch_bytes,
                **SHORT,
            )
            try:
                await consumer.start()
                while not self._around.stopping.is_set():
                    await self._restore(consumer)
                    await asyncio.sleep(RESTORE_PAUSE_S)
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(consumer)

    async def _restore(self, consumer: Any) -> None:
        known = len(self._ledger.acknowledged)
        found = await restored(consumer)
        self._ledger.findings += self._ledger.judge(found, known)
        self._ledger.restores += 1


async def restored(consumer: Any) -> list[Kept]:
    """Everything from the start to the end.

    That is the end when it is reached: what supersedes a record may lie behind the end of the beginning.
    """
    keys = [TopicPartition(KEPT, n) for n in range(KEPT_PARTITIONS)]
    consumer.assign(keys)
    await consumer.seek_to_beginning(*keys)
    found: list[Kept] = []
    while await _behind(consumer, keys):
        records = await consumer.getmany(timeout_ms=POLL_MS)
        for key in sorted(records, key=name):
            for each in records[key]:
                value = None if each.value is None else each.value.decode()
                found.append(Kept(key.partition, each.key.decode(), value, each.offset))
    return found


async def _behind(consumer: Any, keys: Sequence[TopicPartition]) -> bool:
    """Whether a partition has more than was read."""
    at = {key: await consumer.position(key) for key in keys}
    ends = await consumer.end_offsets(keys)
    return any(at[key] < ends[key] for key in keys)
