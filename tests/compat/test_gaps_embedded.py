"""Readers of committed data where nothing is left up to the last stable offset: they must get there.

A transaction was aborted and merged away; what stands behind it is open. Whoever restores a store or waits
for its lag to end (Streams) asks for the end offset and polls until its position is there.
"""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services import guardian
from deploy.services.kafka import TOOLS, java_command
from tests.compat.conftest import start, stop
from tests.compat.kafka_python import KafkaConsumer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.compat.suite.node import drive

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

WAIT_S_MAX = 60.0
END = 2  # the last stable offset


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent whose topics t and u have lost their first two offsets.

    What follows in t is of an open transaction, in u of one that is committed.
    """
    agent = start(tmp_path_factory.mktemp("gaps") / "data", "merging.interval_ms=50", "merging.age_s=1")
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    for made in admin.create_topics([NewTopic(topic, 1) for topic in ("t", "u")]).values():
        made.result(WAIT_S_MAX)
    aborted, committed, staying = (
        Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": name}) for name in "abc"
    )
    written = ((aborted, "tu", (b"0", b"1")), (committed, "u", (b"2",)), (staying, "t", (b"2",)))
    for producer, topics, values in written:
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        for topic in topics:
            for value in values:
                producer.produce(topic, value)
        assert producer.flush(WAIT_S_MAX) == 0
    aborted.abort_transaction(WAIT_S_MAX)
    committed.commit_transaction(WAIT_S_MAX)
    _until(lambda: [_first(agent.bootstrap, topic) for topic in ("t", "u")] == [END, END])
    yield agent.bootstrap
    staying.abort_transaction(WAIT_S_MAX)
    assert stop(agent) == 0


def _first(bootstrap: str, topic: str) -> int | None:
    """The offset of the first record that is there, committed or not."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "isolation.level": "read_uncommitted"}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None, f"nothing came from {topic}"
        return None if message.error() is not None else int(message.offset())
    finally:
        consumer.close()


def _until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not reached():
        assert time.monotonic() < deadline, f"not reached in {WAIT_S_MAX} s"
        time.sleep(0.05)


def test_librdkafka_gets_to_the_end(bootstrap: str) -> None:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", **settings})
    try:
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(WAIT_S_MAX)
        assert message is not None, "the end never came"
        assert message.error() is not None
        assert message.offset() == END, "the end of the partition, and no record before it"
    finally:
        consumer.close()


async def test_aiokafka_gets_to_the_end(bootstrap: str) -> None:
    partition = AioTopicPartition("t", 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert await consumer.end_offsets([partition]) == {partition: END}
        async with asyncio.timeout(WAIT_S_MAX):
            while await consumer.position(partition) < END:
                assert await consumer.getmany(timeout_ms=200) == {}
    finally:
        await consumer.stop()


def test_kafka_python_gets_to_the_end(bootstrap: str) -> None:
    partition = PyTopicPartition("t", 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed")
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)

        def there() -> bool:
            assert consumer.poll(200) == {}
            return bool(consumer.position(partition) == END)

        _until(there)
    finally:
        consumer.close()


def test_java_gets_to_the_end(bootstrap: str) -> None:
    """Its position is what it commits by itself."""
    admin, group = AdminClient({"bootstrap.servers": bootstrap}), "java"
    arguments = ["--bootstrap-server", bootstrap, "--topic", "t", "--group", group, "--from-beginning"]
    arguments += ["--isolation-level", "read_committed", "--command-property", "auto.commit.interval.ms=200"]
    reader = subprocess.Popen(
        java_command(TOOLS["console-consumer"], *arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    guardian.guard(reader.pid)
    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("t", 0)])]

    def there() -> bool:
        assert reader.poll() is None, "the reader has ended"
        found = admin.list_consumer_group_offsets(asked)[group].result(WAIT_S_MAX)
        return bool(found.topic_partitions[0].offset == END)

    try:
        _until(there)
    finally:
        reader.kill()
        told, _ = reader.communicate()
    assert told == b"", "nothing is committed there"


def test_kafkajs_reads_across_the_gap(bootstrap: str) -> None:
    """It moves on with records only; in u there is one."""
    read = drive("kafkajs", "consume", bootstrap, topic="u", group="kafkajs", count=1)
    assert [(each["offset"], each["value"]) for each in read] == [(END, "2")]
