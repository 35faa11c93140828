"""What the tests of Confluent's registry clients share: clients, a fresh topic, records there and back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient

from tests.compat.conftest import Embedded

Connect = Callable[[], SchemaRegistryClient]
_numbers = itertools.count(1)


@pytest.fixture
def connect(embedded: Embedded) -> Iterator[Connect]:
    """Clients of the agent's HTTP port, each with caches of its own: nothing else is configured."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(SchemaRegistryClient({"url": embedded.http}))


@pytest.fixture
def registry(connect: Connect) -> SchemaRegistryClient:
    """One of them."""
    return connect()


@pytest.fixture
def name(embedded: Embedded) -> str:
    """A fresh topic of one partition."""
    made = f"registry-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    admin.create_topics([NewTopic(made, 1)])[made].result(10)
    return made


def sent_and_read(bootstrap: str, topic: str, values: list[bytes]) -> list[bytes]:
    """Produce the values, consume them."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(180) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    read = []
    while len(read) < len(values):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None, message.error()
        read.append(message.value())
    consumer.close()
    return read
