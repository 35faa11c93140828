"""Java's transactional producer, which speaks transactions v2, and Kafka's tool for transactions."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import JAVA, TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, Sent, failed
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(JAVA)

TIMEOUT_MS = 60_000


def settings(broker: Broker, what: str = "id") -> dict[str, object]:
    """A transactional producer's."""
    return {"transactional_id": broker.fresh(what), "transaction_timeout_ms": TIMEOUT_MS, "linger_ms": 0}


def send(java: Java, producer: Any, topic: str, number: int, partitions: int = 2) -> None:
    """The number to every partition, acknowledged."""
    sent = [producer.send(java.record(topic, Sent(b"%d" % number, index))) for index in range(partitions)]
    producer.flush()
    for each in sent:
        each.get()


def read_committed(java: Java, topic: str, count: int, partitions: int = 2) -> list[int]:
    """The numbers that are committed; at least `count` must come."""
    with java.consumer(isolation_level="read_committed") as consumer:
        consumer.assign([java.part(topic, index) for index in range(partitions)])
        return sorted(map(int, java.read(consumer, count)))


def test_transactions_commit_and_abort(broker: Broker, java: Java, saw: Saw) -> None:
    """Commits and aborts transactions over two partitions; a committed read has the one and not the other."""
    topic = broker.topic(partitions=2)
    with java.producer(**settings(broker)) as producer:
        producer.initTransactions()
        for number in range(8):
            producer.beginTransaction()
            send(java, producer, topic, number)
            if number % 2:
                producer.abortTransaction()
            else:
                producer.commitTransaction()
    assert read_committed(java, topic, 8) == [0, 0, 2, 2, 4, 4, 6, 6]
    with java.consumer(isolation_level="read_committed") as consumer:
        part = java.part(topic)
        saw("end of committed reads", consumer.endOffsets([part])[part])


def test_positions_in_transactions(broker: Broker, java: Java) -> None:
    """Reads, processes and writes: positions move with the transaction, and back with its abort."""
    source, target, group = broker.topic("in"), broker.topic("out"), broker.fresh("group")
    java.produce(source, [Sent(b"%d" % number) for number in range(10)])
    with java.consumer(group_id=group, isolation_level="read_committed") as consumer:
        consumer.subscribe([source])
        with java.producer(**settings(broker)) as producer:
            producer.initTransactions()
            part, offsets = java.part(source), java.jvm.kafka.clients.consumer
            for number, each in enumerate(java.read(consumer, 10)):
                producer.beginTransaction()
                send(java, producer, target, int(each), 1)
                position = {part: offsets.OffsetAndMetadata(each.offset + 1)}
                producer.sendOffsetsToTransaction(position, consumer.groupMetadata())
                if number < 7:
                    producer.commitTransaction()
                else:
                    producer.abortTransaction()
            committed = consumer.committed(java.jvm.java.util.HashSet([part]))
            assert committed[part].offset() == 7
    assert read_committed(java, target, 7, 1) == list(range(7))


def test_a_second_instance_fences_the_first(broker: Broker, java: Java, saw: Saw) -> None:
    """Another producer of the same id aborts what is ongoing; the first one hears that it is fenced."""
    topic = broker.topic(partitions=2)
    with java.producer(**settings(broker)) as first, java.producer(**settings(broker)) as second:
        first.initTransactions()
        first.beginTransaction()
        send(java, first, topic, 1)
        second.initTransactions()
        saw("the first commits", failed(first.commitTransaction).split(":")[0])
        second.beginTransaction()
        send(java, second, topic, 2)
        second.commitTransaction()
    assert read_committed(java, topic, 2) == [2, 2]


@pytest.mark.client(TOOLS)
def test_the_tool_finds_and_describes_transactions(
    broker: Broker, java: Java, tools: Tools, saw: Saw
) -> None:
    """kafka-transactions.sh lists, describes, finds what hangs (nothing), and aborts a transaction."""
    topic = broker.topic(partitions=1)
    with java.producer(**settings(broker)) as producer:
        producer.initTransactions()
        producer.beginTransaction()
        send(java, producer, topic, 1, 1)
        name = broker.fresh("id")
        listed = tools.ok("transactions", "list")
        assert re.search(rf"{re.escape(name)}\s+\S+\s+\d+\s+Ongoing", listed), listed
        described = tools.ok("transactions", "describe", "--transactional-id", name)
        saw("described", " ".join(re.findall(r"Ongoing|60000", described)))
        assert f"{topic}-0" in described
        hanging = tools.ok("transactions", "find-hanging", "--topic", topic, "--partition", "0")
        saw("hanging", len(hanging.strip().splitlines()) - 1)
        tools.ok("transactions", "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        with java.consumer(isolation_level="read_committed") as consumer:
            part = java.part(topic)
            assert consumer.endOffsets([part])[part] == 2, "its marker stands there"
