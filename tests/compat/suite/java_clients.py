"""Java's own clients in a few words, for the tests of the suite: `Java(jvm, bootstrap)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.compat.suite.broker import BASE_TIME
from tests.compat.suite.java import Jvm

WAIT_S_MAX = 60
POLL_MS = 100
SERIALIZERS = "org.apache.kafka.common.serialization"


@dataclass(frozen=True)
class Sent:
    """One record as it is sent or read; `timestamp` in ms."""

    value: bytes | None
    partition: int = 0
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1

    def __int__(self) -> int:
        assert self.value is not None
        return int(self.value)


@dataclass(frozen=True)
class Java:
    """Producers, consumers and admin clients of one broker. Settings are given with underscores for dots."""

    jvm: Jvm
    bootstrap: str

    def _properties(self, settings: Mapping[str, object]) -> Any:
        named = {key.replace("_", "."): value for key, value in settings.items()}
        return self.jvm.properties({"bootstrap.servers": self.bootstrap, **named})

    def part(self, topic: str, index: int = 0) -> Any:
        """org.apache.kafka.common.TopicPartition."""
        return self.jvm.kafka.common.TopicPartition(topic, index)

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """org.apache.kafka.clients.admin.Admin, closed at the end."""
        opened = self.jvm.kafka.clients.admin.Admin.create(self._properties({}))
        try:
            yield opened
        finally:
            opened.close()

    @contextmanager
    def producer(self, **settings: object) -> Iterator[Any]:
        """A KafkaProducer of bytes, closed at the end."""
        for role in ("key", "value"):
            settings[f"{role}_serializer"] = f"{SERIALIZERS}.ByteArraySerializer"
        opened = self.jvm.kafka.clients.producer.KafkaProducer(self._properties(settings))
        try:
            yield opened
        finally:
            opened.close()

    def record(self, topic: str, sent: Sent) -> Any:
        """org.apache.kafka.clients.producer.ProducerRecord."""
        made = self.jvm.kafka.clients.producer.ProducerRecord(
            topic, sent.partition, sent.timestamp, sent.key, sent.value
        )
        for name, value in sent.headers:
            made.headers().add(name, value)
        return made

    def produce(self, topic: str, records: Iterable[Sent], **settings: object) -> list[Any]:
        """Send all; their RecordMetadata in the order of sending. Raises Py4JJavaError."""
        with self.producer(**settings) as producer:
            futures = [producer.send(self.record(topic, each)) for each in records]
            producer.flush()
            return [future.get() for future in futures]

    @contextmanager
    def consumer(self, **settings: object) -> Iterator[Any]:
        """A KafkaConsumer of bytes that begins at the start and commits when told to; closed at the end."""
        base: dict[str, object] = {"enable_auto_commit": "false", "auto_offset_reset": "earliest"}
        for role in ("key", "value"):
            base[f"{role}_deserializer"] = f"{SERIALIZERS}.ByteArrayDeserializer"
        opened = self.jvm.kafka.clients.consumer.KafkaConsumer(self._properties({**base, **settings}))
        try:
            yield opened
        finally:
            opened.close()

    def poll(self, consumer: Any) -> list[Sent]:
        """What one poll gives."""
        records = consumer.poll(self.jvm.java.time.Duration.ofMillis(POLL_MS))
        return [
            Sent(
                each.value(),
                each.partition(),
                each.key(),
                each.timestamp(),
                tuple((header.key(), header.value()) for header in each.headers().iterator()),
                each.offset(),
            )
            for each in records.iterator()
        ]

    def read(self, consumer: Any, count: int) -> list[Sent]:
        """The next records: at least `count`, and no more than the last poll brings on top."""
        return self.until([consumer], lambda found: len(found) >= count, f"{count} records")

    def until(self, consumers: Iterable[Any], done: Callable[[list[Sent]], bool], what: str) -> list[Sent]:
        """Poll every consumer in turn until `done(all that came)`; gives that."""
        found: list[Sent] = []
        end = time.monotonic() + WAIT_S_MAX
        consumers = list(consumers)
        while not done(found):
            assert time.monotonic() < end, f"never: {what}; {len(found)} records came"
            for each in consumers:
                found += self.poll(each)
        return found


def numbered(count: int, partitions: int = 1) -> list[Sent]:
    """Records whose values are their numbers, over the partitions in turn, a ms apart from BASE_TIME."""
    return [Sent(b"%d" % n, n % partitions, timestamp=BASE_TIME + n) for n in range(count)]


def owned(consumer: Any) -> list[int]:
    """The partitions assigned to it, in order."""
    return sorted(part.partition() for part in consumer.assignment())


def by_partition(found: Mapping[Any, Any]) -> dict[int, Any]:
    """A Java map by TopicPartition as a dictionary by number, in their order."""
    return dict(sorted((part.partition(), value) for part, value in found.items()))


def failed(call: Callable[[], object]) -> str:
    """What the call gave, or the innermost Java exception: its name and its text."""
    try:
        return str(call())
    except Py4JJavaError as error:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
