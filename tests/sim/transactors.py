"""Clients that read and write inside of transactions: Jepsen's queue and abort mixes (CORRECTNESS §2 there).

Discipline, as there: a transactional id and a group per client, positions committed with what was read, the
consumer goes back to where the transaction began when it did not succeed (KAFKA-17582). A transaction whose
commit was never asked for is `fail`: nothing of it may ever be read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from tests.checker.operations import Micro, Poll, Send
from tests.sim.clients import (
    POLL_MS,
    REASSIGNED_OF,
    RETRY_S,
    SHORT,
    Pending,
    Surroundings,
    name,
    seen,
    stopped,
)
from tests.sim.loop import NODE
from tests.sim.producers import ERRORS, VERSIONS, Producing

OPERATION_S_MAX = 12.0
ABORTED_OF = 0.08
"""How likely an abort is before each micro-operation."""
PAUSE_S = 0.15
ASSIGNED_MAX = 6


@dataclass(slots=True)
class _Transaction:
    """What is done so far in one: micro-operations, and by key the first and the following offset read."""

    micro: list[Micro] = field(default_factory=list)
    first: dict[TopicPartition, int] = field(default_factory=dict)
    following: dict[TopicPartition, int] = field(default_factory=dict)


def committed_reader(around: Surroundings, group: str) -> Any:
    """A consumer of committed records only."""
    return AIOKafkaConsumer(
        bootstrap_servers=around.bootstrap,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        client_id=NODE.get(),
        max_partition_fetch_bytes=around.fetch_bytes,
        **SHORT,
    )


class Transactor:
    """One client. `pending`: what a crash leaves unanswered."""

    def __init__(
        self, around: Surroundings, node: str, version: str, timeout_ms: int, micro_max: int
    ) -> None:
        self._around = around
        self._node = node
        self._version = version
        self._timeout_ms = timeout_ms
        self._micro_max = micro_max
        self._aborted: dict[TopicPartition, tuple[int, int]] = {}
        """By key the first and the following offset of what transactions read that did not succeed."""
        self._assigned: list[TopicPartition] = []
        self._next = 0
        self.pending: Pending | None = None

    async def live(self) -> None:
        """Until told to stop: one process after the other."""
        while not self._around.stopping.is_set():
            process = self._around.recorder.process()
            producer = VERSIONS[self._version](self._around, self._node, self._timeout_ms)
            consumer = committed_reader(self._around, self._node)
            try:
                async with asyncio.timeout(OPERATION_S_MAX):
                    await producer.start()
                    await consumer.start()
                await self._work(producer, consumer, process)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await producer.stop()
                await stopped(consumer)

    async def _work(self, producer: Producing, consumer: Any, process: int) -> None:
        random = self._around.loop.random
        self._assign(consumer, process)
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            if random.random() < REASSIGNED_OF:
                self._assign(consumer, process)
            if not await self._transaction(producer, consumer, process) and not self._around.seeks_back:
                process = self._around.recorder.process()  # what it skips now is nobody's fault but its own
                self._note_assigned(process)

    def _assign(self, consumer: Any, process: int) -> None:
        self._assigned = self._around.keys.some(self._around.loop.random, ASSIGNED_MAX)
        consumer.assign(self._assigned)
        self._note_assigned(process)

    def _note_assigned(self, process: int) -> None:
        recorder = self._around.recorder
        recorder.note(process, "assign", "ok", recorder.now_ns(), keys=[name(key) for key in self._assigned])

    async def _transaction(self, producer: Producing, consumer: Any, process: int) -> bool:
        """One; whether it is committed."""
        recorder, done = self._around.recorder, _Transaction()
        self.pending = pending = Pending(process, "txn", recorder.now_ns(), done.micro, "fail")
        try:
            async with asyncio.timeout(OPERATION_S_MAX):
                await producer.begin()
                commit = await self._micro(producer, consumer, done)
                if done.following:
                    await producer.positions(done.following, self._node)
                pending.outcome = "info" if commit else "fail"
                await producer.end(commit=commit)
        except ERRORS as error:
            pending.error = type(error).__name__ if not error.args else f"{type(error).__name__} {error}"[:80]
            raise
        else:
            pending.outcome, pending.error = ("ok", "") if commit else ("fail", "aborted")
            if not commit and self._around.seeks_back:
                for key, offset in done.first.items():
                    consumer.seek(key, offset)
            return commit
        finally:
            if self.pending is pending:  # a crash has noted it already
                self.pending = None
                recorder.leave(pending)
            if pending.outcome != "ok":
                self._aborted |= {key: (done.first[key], done.following[key]) for key in done.first}

    async def _micro(self, producer: Producing, consumer: Any, done: _Transaction) -> bool:
        """The micro-operations; whether to commit."""
        random = self._around.loop.random
        for _ in range(random.randint(1, self._micro_max)):
            if random.random() < ABORTED_OF:
                return False
            if random.random() < 0.4:
                await self._poll(consumer, done)
            else:
                await self._send(producer, done)
        return random.random() > ABORTED_OF

    async def _poll(self, consumer: Any, done: _Transaction) -> None:
        records = await consumer.getmany(timeout_ms=POLL_MS)
        done.micro.append(Poll(seen(records)))
        for key in sorted(records):
            self._goes_on(key, records[key][0].offset)
            done.first.setdefault(key, records[key][0].offset)
            done.following[key] = records[key][-1].offset + 1

    def _goes_on(self, key: TopicPartition, offset: int) -> None:
        """Where a key is read first behind a transaction that did not succeed, against what that had read."""
        first, following = self._aborted.pop(key, (None, None))
        if first is not None and following is not None:
            where = "further back" if offset < first else "back" if offset < following else "on"
            self._around.counts[f"behind an abort {where}"] += 1

    async def _send(self, producer: Producing, done: _Transaction) -> None:
        self._next += 1
        key = self._around.any_key()
        value = f"{NODE.get()}.{self._next}"
        done.micro.append(Send(name(key), value))
        offset = await producer.send(key, value)
        done.micro[-1] = Send(name(key), value, offset)
