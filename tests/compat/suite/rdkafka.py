"""librdkafka in a few words, for the tests of the suite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

WAIT_S_MAX = 40


def produce(bootstrap: str, topic: str, records: Iterable[dict[str, Any]], **settings: Any) -> list[Message]:
    """Send records (arguments of Producer.produce); gives what was acknowledged, in order."""
    done: list[Message] = []
    errors: list[KafkaError] = []
    config = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, **config})

    def report(error: KafkaError | None, message: Message) -> None:
        if error is None:
            done.append(message)
        else:
            errors.append(error)

    for record in records:
        producer.produce(topic, on_delivery=report, **record)
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0
    if errors:
        raise KafkaException(errors[0])
    return done


def values(count: int, partitions: int = 1, start: int = 0) -> list[dict[str, Any]]:
    """Records `start`… whose values are their numbers, spread over the partitions in turn."""
    return [{"value": b"%d" % n, "partition": n % partitions} for n in range(start, start + count)]


@contextmanager
def consumer(bootstrap: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that commits only when told to and begins at the start; closed at the end."""
    config = {key.replace("_", "."): value for key, value in settings.items()}
    base = {"group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    opened = Consumer({"bootstrap.servers": bootstrap, **base, **config})
    try:
        yield opened
    finally:
        opened.close()


def read(consumer: Consumer, count: int) -> list[Message]:
    """The next `count` messages."""
    found: list[Message] = []
    end = time.monotonic() + WAIT_S_MAX
    while len(found) < count:
        assert time.monotonic() < end, f"only {len(found)} of {count} records came"
        for message in consumer.consume(count - len(found), 0.2):
            if message.error() is not None:
                raise KafkaException(message.error())
            found.append(message)
    return found


def poll_until(consumers: Iterable[Consumer], reached: Callable[[], bool], what: str) -> list[Message]:
    """Poll every consumer in turn until it is so; gives what came meanwhile."""
    found: list[Message] = []
    end = time.monotonic() + WAIT_S_MAX
    consumers = list(consumers)
    while not reached():
        assert time.monotonic() < end, f"never: {what}"
        for each in consumers:
            message = each.poll(0.05)
            if message is not None and message.error() is None:
                found.append(message)
    return found


def owned(consumer: Consumer) -> list[int]:
    """The partitions assigned to it, in order."""
    return sorted(part.partition for part in consumer.assignment())


def committed(consumer: Consumer, topic: str, partitions: int) -> list[int]:
    """The committed offset of each partition; -1001 for none."""
    wanted = [TopicPartition(topic, index) for index in range(partitions)]
    return [part.offset for part in consumer.committed(wanted, WAIT_S_MAX)]


def error_of(call: Callable[[], object]) -> str:
    """The name of the error that the call ends with; `none` when it succeeds."""
    try:
        call()
    except KafkaException as raised:
        return str(raised.args[0].name())
    return "none"
