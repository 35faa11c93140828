"""An administrator: makes the new keys, and changes topics that no client of the judged ones uses.

Answers may be lost, so every attempt has a name of its own: what an attempt left behind stays an empty topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, for_code

from tests.sim.clients import RETRY_S, SHORT, Surroundings, stopped
from tests.sim.loop import NODE

ADMIN = {"request_timeout_ms": 3000, "retry_backoff_ms": 50}
PAUSE_S = 0.4
PARTITIONS_MAX = 3
"""Of a new topic."""
GROWN_OF = 0.3
"""How many new keys are partitions of a topic that is there."""
ASIDE = "aside"
ASIDE_OF = 0.4
LARGE = 24
"""Topics of one large change."""
LARGE_OF = 0.3
RECORDS = 3


class Clerk:
    """One client at a time. `changes`: whether it does more than making keys."""

    def __init__(self, around: Surroundings, changes: bool) -> None:
        self._around = around
        self._changes = changes
        self._asides: list[str] = []

    async def live(self) -> None:
        """Until told to stop: one client after the other."""
        while not self._around.stopping.is_set():
            admin = AIOKafkaAdminClient(
                bootstrap_servers=self._around.bootstrap, client_id=NODE.get(), **ADMIN
            )
            try:
                await admin.start()
                await self._work(admin)
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await admin.close()

    async def _work(self, admin: Any) -> None:
        random, keys = self._around.loop.random, self._around.keys
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            if keys.wanted:
                await self._more_keys(admin, min(keys.wanted, PARTITIONS_MAX))
            elif self._changes and random.random() < ASIDE_OF:
                await self._aside(admin)

    async def _more_keys(self, admin: Any, count: int) -> None:
        """`count` new ones: a topic, or partitions of the newest one."""
        random, keys = self._around.loop.random, self._around.keys
        newest = keys.every[-1].topic
        if len(keys.topics) > 1 and random.random() < GROWN_OF:
            there = sum(key.topic == newest for key in keys.every)
            if newest in self._around.unsure:
                return
            self._around.unsure.add(newest)  # until it is answered, nobody knows how many it has
            await admin.create_partitions({newest: NewPartitions(there + count)})
            self._around.unsure.discard(newest)
            keys.add(TopicPartition(newest, there + n) for n in range(count))
        else:
            name = self._around.new_name(keys.every[0].topic)
            _raised(await admin.create_topics([NewTopic(name, count, 1)]))
            keys.add(TopicPartition(name, n) for n in range(count))

    async def _aside(self, admin: Any) -> None:
        """One change of a topic that no client is judged by; the audits look at it as at any other."""
        random = self._around.loop.random
        if not self._asides or random.random() < LARGE_OF:
            count = LARGE if random.random() < 0.5 else 1
            names = [self._around.new_name(ASIDE) for _ in range(count)]
            _raised(await admin.create_topics([NewTopic(name, 1, 1) for name in names]))
            self._asides += names
            return
        change: Callable[[Any, str], Any] = random.choice(
            (self._written, self._written, self._configured, self._grown, self._trimmed, self._deleted)
        )
        await change(admin, random.choice(self._asides))

    async def _written(self, admin: Any, topic: str) -> None:
        del admin
        producer = AIOKafkaProducer(
            bootstrap_servers=self._around.bootstrap, enable_idempotence=True, client_id=NODE.get(), **SHORT
        )
        try:
            await producer.start()
            for n in range(RECORDS):
                await producer.send_and_wait(
                    topic, b"%d" % n, partition=0, timestamp_ms=self._around.timestamp()
                )
        finally:
            await stopped(producer)

    async def _configured(self, admin: Any, topic: str) -> None:
        configs = {"retention.ms": str(self._around.loop.random.choice((3_600_000, 7_200_000)))}
        for answer in await admin.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, topic, configs=configs)]
        ):
            for code, *_ in answer.resources:
                if code:
                    raise for_code(code)

    async def _grown(self, admin: Any, topic: str) -> None:
        await admin.create_partitions({topic: NewPartitions(self._around.loop.random.randint(2, 4))})

    async def _trimmed(self, admin: Any, topic: str) -> None:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(1)})

    async def _deleted(self, admin: Any, topic: str) -> None:
        """With all that came in one large change, at times."""
        gone = list(self._asides) if len(self._asides) > LARGE // 2 else [topic]
        self._asides = [each for each in self._asides if each not in gone]
        _raised(await admin.delete_topics(gone))


def _raised(answer: Any) -> None:
    """Raise the first error of an answer about topics."""
    errors = getattr(answer, "topic_errors", ()) or getattr(answer, "topic_error_codes", ())
    for _, code, *_ in errors:
        if code:
            raise for_code(code)
