"""Three client libraries behind one small interface: write records, read a partition's records back.

Each writes and reads in threads of its own, so a test sees plain blocking calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiokafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.compat.kafka_python import KafkaConsumer, KafkaProducer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition

WAIT_S_MAX = 60
REQUEST_BYTES_MAX = 4 << 20

Headers = tuple[tuple[str, bytes | None], ...]


class Rec(NamedTuple):
    """A record as sent or read; `timestamp` in Unix ms."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Placed(NamedTuple):
    """A record and where it is."""

    offset: int
    rec: Rec


@dataclass(frozen=True)
class Client:
    """`write(bootstrap, topic, partition, records, codec)` gives the acknowledged offsets in order;
    `read(bootstrap, topic, partition, count)` the first `count` records. `nulls`: whether the library sends a
    record without key and value, and a header without a value; every library reads them."""

    name: str
    write: Callable[[str, str, int, Iterable[Rec], str], list[int]]
    read: Callable[[str, str, int, int], list[Placed]]
    nulls: bool


def rdkafka_write(
    bootstrap: str, topic: str, partition: int, records: Iterable[Rec], codec: str, **settings: Any
) -> list[int]:
    """librdkafka, idempotent unless `settings` says otherwise."""
    offsets: list[int] = []
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Any) -> None:
        if error is None:
            offsets.append(message.offset())
        else:
            failures.append(error)

    base = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "message.max.bytes": REQUEST_BYTES_MAX,
    }
    producer = Producer({**base, "compression.type": codec, **settings})
    for rec in records:
        producer.produce(
            topic,
            partition=partition,
            key=rec.key,
            value=rec.value,
            timestamp=rec.timestamp,
            headers=list(rec.headers),
            on_delivery=report,
        )
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0
    assert not failures, failures
    return offsets


def rdkafka_read(bootstrap: str, topic: str, partition: int, count: int) -> list[Placed]:
    """librdkafka, checking every CRC."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "check.crcs": True, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[Placed] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), WAIT_S_MAX)
        assert messages, f"only {len(found)} of {count} records came"
        for message in messages:
            assert message.error() is None, message.error()
            headers = tuple(message.headers() or ())
            rec = Rec(message.timestamp()[1], message.key(), message.value(), headers)
            found.append(Placed(message.offset(), rec))
    consumer.close()
    return found


def aiokafka_write(
    bootstrap: str, topic: str, partition: int, records: Iterable[Rec], codec: str
) -> list[int]:
    """aiokafka, idempotent."""

    async def write() -> list[int]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=True,
            max_request_size=REQUEST_BYTES_MAX,
        ) as producer:
            sent = [
                await producer.send(
                    topic,
                    rec.value,
                    rec.key,
                    partition=partition,
                    timestamp_ms=rec.timestamp,
                    headers=list(rec.headers),
                )
                for rec in records
            ]
            return [(await each).offset for each in sent]

    return asyncio.run(write())


def aiokafka_read(bootstrap: str, topic: str, partition: int, count: int) -> list[Placed]:
    """aiokafka by assignment."""

    async def read() -> list[Placed]:
        found: list[Placed] = []
        part = aiokafka.TopicPartition(topic, partition)
        async with (
            aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False) as consumer,
            asyncio.timeout(WAIT_S_MAX),
        ):
            consumer.assign([part])
            consumer.seek(part, 0)
            while len(found) < count:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    found += [
                        Placed(m.offset, Rec(m.timestamp, m.key, m.value, tuple(m.headers))) for m in messages
                    ]
        return found

    return asyncio.run(read())


def kafka_python_write(
    bootstrap: str, topic: str, partition: int, records: Iterable[Rec], codec: str
) -> list[int]:
    """kafka-python, idempotent."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if codec == "none" else codec,
        enable_idempotence=True,
        max_request_size=REQUEST_BYTES_MAX,
    )
    try:
        sent = [
            producer.send(
                topic,
                key=rec.key,
                value=rec.value,
                partition=partition,
                timestamp_ms=rec.timestamp,
                headers=list(rec.headers),
            )
            for rec in records
        ]
        return [each.get(WAIT_S_MAX).offset for each in sent]
    finally:
        producer.close()


def kafka_python_read(bootstrap: str, topic: str, partition: int, count: int) -> list[Placed]:
    """kafka-python by assignment."""
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        enable_auto_commit=False,
        group_id=None,
        consumer_timeout_ms=WAIT_S_MAX * 1000,
    )
    part = PyTopicPartition(topic, partition)
    found: list[Placed] = []
    try:
        consumer.assign([part])
        consumer.seek(part, 0)
        for m in consumer:
            found.append(Placed(m.offset, Rec(m.timestamp, m.key, m.value, tuple(m.headers))))
            if len(found) == count:
                break
    finally:
        consumer.close()
    return found


CLIENTS = (
    Client("librdkafka", rdkafka_write, rdkafka_read, nulls=True),
    Client("aiokafka", aiokafka_write, aiokafka_read, nulls=False),
    Client("kafka-python", kafka_python_write, kafka_python_read, nulls=False),
)
