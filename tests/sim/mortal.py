"""A topic whose records are deleted, and which is deleted itself and made again under its name.

One client does all of it, so it knows what must be there: from the log start that DeleteRecords was answered
with on, every acknowledged record of the topic's present life, once, and nothing of a life before.
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

from tests.checker.findings import Finding
from tests.sim.clerk import ADMIN
from tests.sim.clients import POLL_MS, RETRY_S, SHORT, Surroundings, stopped
from tests.sim.loop import NODE

MORTAL = "mortal"
KEY = TopicPartition(MORTAL, 0)
PAUSE_S = 0.4
BATCH = 4
LIFE_STEPS_MAX = 6
READ_S_MAX = 10.0
ERRORS = (KafkaError, OSError, TimeoutError)


class Mortal:
    """One client. The topic's present life has what `_acked` says, from `_start` on."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._acked: dict[int, bytes] = {}
        self._sent: set[bytes] = set()
        self._start = 0
        self._next = 0

    async def live(self) -> None:
        """Until told to stop: one life of the topic after the other."""
        while not self._around.stopping.is_set():
            admin = AIOKafkaAdminClient(
                bootstrap_servers=self._around.bootstrap, client_id=NODE.get(), **ADMIN
            )
            try:
                await admin.start()
                await self._born(admin)
                for _ in range(self._around.loop.random.randint(1, LIFE_STEPS_MAX)):
                    if self._around.stopping.is_set():
                        return
                    await self._lived(admin)
                    await asyncio.sleep(self._around.loop.random.expovariate(1 / PAUSE_S))
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await admin.close()

    async def _born(self, admin: Any) -> None:
        """Delete the topic until it is gone, then make it. An answer that was lost may come true still."""
        for change, done in (
            (lambda: admin.delete_topics([MORTAL]), UnknownTopicOrPartitionError),
            (lambda: admin.create_topics([NewTopic(MORTAL, 1, 1)]), None),
        ):
            answer = await change()
            for _, code, *_ in getattr(answer, "topic_errors", None) or answer.topic_error_codes:
                if code and (done is None or for_code(code) is not done):
                    raise for_code(code)
        self._acked, self._sent, self._start = {}, set(), 0
        self._around.counts["topics made again"] += 1

    async def _lived(self, admin: Any) -> None:
        """Write, take the oldest away, read."""
        await self._written()
        if self._acked and self._around.loop.random.random() < 0.5:
            before = self._around.loop.random.choice(sorted(self._acked))
            answer = await admin.delete_records({KEY: RecordsToDelete(before)})
            if answer.get(KEY) is not None:
                self._start = max(self._start, before)
                self._around.counts["records deleted"] += 1
        known = [offset for offset in self._acked if offset >= self._start]
        found = await self._read()
        self._judge(known, found)

    async def _written(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._around.bootstrap, enable_idempotence=True, client_id=NODE.get(), **SHORT
        )
        try:
            await producer.start()
            for _ in range(BATCH):
                self._next += 1
                value = f"{NODE.get()}.{self._next}".encode()
                self._sent.add(value)
                stamp_ms = self._around.timestamp()
                done = await producer.send_and_wait(MORTAL, value, partition=0, timestamp_ms=stamp_ms)
                self._acked[done.offset] = value
        finally:
            await stopped(producer)

    async def _read(self) -> list[tuple[int, bytes]]:
        """Everything that is there."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._around.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            client_id=NODE.get(),
            **SHORT,
        )
        try:
            await consumer.start()
            consumer.assign([KEY])
            await consumer.seek_to_beginning(KEY)
            end = (await consumer.end_offsets([KEY]))[KEY]
            found: list[tuple[int, bytes]] = []
            async with asyncio.timeout(READ_S_MAX):
                while await consumer.position(KEY) < end:
                    records = await consumer.getmany(timeout_ms=POLL_MS)
                    found += [(each.offset, each.value) for each in records.get(KEY, ())]
            return found
        finally:
            await stopped(consumer)

    def _judge(self, known: list[int], found: list[tuple[int, bytes]]) -> None:
        offsets = [offset for offset, _ in found]
        wrong = [f"{offset} is read after it was deleted" for offset in offsets if offset < self._start]
        wrong += [f"{value!r} at {at} is of a life before" for at, value in found if value not in self._sent]
        wrong += [f"{offset} was acknowledged and is gone" for offset in known if offset not in offsets]
        wrong += [f"{at}: {value!r} is not what was acknowledged" for at, value in found
                  if self._acked.get(at, value) != value]  # fmt: skip
        if offsets != sorted(dict.fromkeys(offsets)):
            wrong.append(f"out of order: {offsets}")
        self._around.findings += [Finding("mortal", MORTAL, each, ()) for each in wrong]
