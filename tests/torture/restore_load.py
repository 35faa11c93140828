"""What writes while etcd is lost, and what was acknowledged of it.

Small records of three kinds of producers always; beside them as many bytes a second as were asked for, by
producers of one kind: idempotent, plain or transactional.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

TOPIC, PARTITIONS = "t", 3
IDEMPOTENT, PLAIN, TRANSACTIONAL = "i", "p", "x"
"""A producer's name begins with its kind; its number says which partition it writes to."""
KINDS = (IDEMPOTENT, PLAIN, TRANSACTIONAL)
KIND_NAMES = {IDEMPOTENT: "idempotent", PLAIN: "plain", TRANSACTIONAL: "transactional"}
BULK_BYTES, BULK_WAITING_MAX = 10_000, 500
"""Of a large record's key, and records of one producer that wait for their acknowledgement."""
BULK_TRANSACTION = 99
"""Large records of one transaction: a third of them on each partition."""
SINGLE_GAP_S = 0.005
MB = 1_000_000
_UnderWay = tuple[int, tuple[str, ...]]
_NOTHING: _UnderWay = (0, ())
_BULK_OPTIONS: dict[str, Any] = {
    "request_timeout_ms": 180_000, "linger_ms": 20, "max_batch_size": MB // 2,
}  # fmt: skip
Note = Callable[[str, Literal["send", "txn"], Literal["ok", "info"], int, Sequence[tuple[int, str]]], None]
"""Given a producer's name, what it did, its outcome and begin (monotonic ns), partitions and values."""


@dataclass
class Load:
    """Values that were acknowledged, in order; of transactions one tuple of values each."""

    bootstrap: str
    sent: dict[str, list[str]] = field(default_factory=dict)
    transactions: list[tuple[str, ...]] = field(default_factory=list)
    bulk_bytes: int = 0
    begun_at: float = 0.0
    """When the first large record was on its way, by the loop's clock; 0: none was."""
    over: bool = False
    note: Note | None = None
    """Told of all that is not large, when it is over."""

    @property
    def mbps(self) -> float:
        """MB (10^6 bytes) a second of large records that were acknowledged until now."""
        return self.bulk_bytes / MB / (time.monotonic() - self.begun_at) if self.begun_at else 0.0

    @property
    def count(self) -> int:
        """Records that were acknowledged, those of transactions too."""
        return sum(map(len, self.sent.values())) + sum(map(len, self.transactions))

    def writers(self, kind: str, mbps: float) -> list[Coroutine[Any, Any, None]]:
        """Everything that writes; `kind`: of the large records' producers."""
        writing = [self.single(f"{IDEMPOTENT}{n}", idempotent=True) for n in range(3)]
        writing += [self.single(f"{PLAIN}4", idempotent=False), self.transactional(f"{TRANSACTIONAL}5")]
        for number in range(6, 6 + PARTITIONS) if mbps else ():
            rate = mbps * MB / PARTITIONS
            if kind == TRANSACTIONAL:
                writing.append(self.transactional(f"{kind}{number}", BULK_TRANSACTION, rate))
            else:
                writing.append(self.bulk(f"{kind}{number}", rate))
        return writing

    async def single(self, name: str, *, idempotent: bool) -> None:
        """One record after the other, each acknowledged before the next, on one partition."""
        acknowledged = self.sent.setdefault(name, [])
        partition, number = int(name[1:]) % PARTITIONS, 0
        options: dict[str, Any] = {"enable_idempotence": idempotent, "request_timeout_ms": 180_000}
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options)
        await producer.start()
        try:
            while not self.over:
                value, begun = f"{name}-{number}", time.monotonic_ns()
                number += 1
                with suppress(KafkaError):
                    await producer.send_and_wait(TOPIC, value.encode(), partition=partition)
                    acknowledged.append(value)
                self._noted(name, "send", acknowledged[-1:] == [value], begun, [(partition, value)])
                await asyncio.sleep(SINGLE_GAP_S)
        finally:
            with suppress(KafkaError):
                await asyncio.wait_for(producer.stop(), 20)

    async def bulk(self, name: str, bytes_per_s: float) -> None:
        """Large records on one partition, many on their way; their bytes are in their keys."""
        acknowledged, partition, number = self.sent.setdefault(name, []), int(name[1:]) % PARTITIONS, 0
        idempotent = name.startswith(IDEMPOTENT)
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, enable_idempotence=idempotent, **_BULK_OPTIONS
        )
        waiting: deque[tuple[str, asyncio.Future[Any]]] = deque()
        await producer.start()
        begun = self._begun()
        try:
            while not self.over or waiting:
                due = (time.monotonic() - begun) * bytes_per_s / BULK_BYTES
                while not self.over and number < due and len(waiting) < BULK_WAITING_MAX:
                    value = f"{name}-{number}"
                    key = os.urandom(BULK_BYTES)
                    waiting.append((value, await producer.send(TOPIC, value.encode(), key, partition)))
                    number += 1
                while waiting and waiting[0][1].done():
                    value, told = waiting.popleft()
                    if told.exception() is None:
                        acknowledged.append(value)
                        self.bulk_bytes += BULK_BYTES
                await asyncio.sleep(0.01)
        finally:
            with suppress(KafkaError):
                await asyncio.wait_for(producer.stop(), 20)

    async def transactional(self, name: str, records: int = PARTITIONS, bytes_per_s: float = 0) -> None:
        """Transactions over all partitions in turns, one after the other. A producer that fails is made anew.

        `bytes_per_s`: of large records; 0: of records without a key, as fast as it goes.
        """
        number, begun, under_way = 0, 0.0, _NOTHING
        while not self.over:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap, transactional_id=name,
                **({"linger_ms": 20, "max_batch_size": MB // 2} if bytes_per_s else {}),
            )  # fmt: skip
            try:
                await asyncio.wait_for(producer.start(), 20)
                begun = begun or (self._begun() if bytes_per_s else 1.0)
                while not self.over:
                    values = tuple(f"{name}-{number}-{each}" for each in range(records))
                    number += 1
                    under_way = (time.monotonic_ns(), values)
                    async with asyncio.timeout(20), producer.transaction():
                        for place, value in enumerate(values):
                            key = os.urandom(BULK_BYTES) if bytes_per_s else None
                            await producer.send(TOPIC, value.encode(), key, place % PARTITIONS)
                    self.transactions.append(values)
                    under_way = self._ended(name, under_way, committed=True)
                    if bytes_per_s:
                        self.bulk_bytes += records * BULK_BYTES
                        due_at = begun + number * records * BULK_BYTES / bytes_per_s
                        await asyncio.sleep(max(0.0, due_at - time.monotonic()))
            except (KafkaError, TimeoutError, AssertionError):
                under_way = self._ended(name, under_way, committed=False)
                await asyncio.sleep(0.2)
            finally:
                with suppress(Exception):
                    await asyncio.wait_for(producer.stop(), 5)

    def _ended(self, name: str, what: _UnderWay, *, committed: bool) -> _UnderWay:
        """Note a transaction that was under way: of one that failed nobody knows. Nothing is now."""
        begun, values = what
        if values:
            places = [(place % PARTITIONS, value) for place, value in enumerate(values)]
            self._noted(name, "txn", committed, begun, places)
        return _NOTHING

    def _noted(
        self, name: str, f: Literal["send", "txn"], done: bool, begun: int, what: Sequence[tuple[int, str]]
    ) -> None:
        if self.note is not None:
            self.note(name, f, "ok" if done else "info", begun, what)

    def _begun(self) -> float:
        self.begun_at = self.begun_at or time.monotonic()
        return time.monotonic()
