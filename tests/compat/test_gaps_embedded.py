"""Readers of committed data where nothing is left up to the last stable offset: they must get there.

A transaction was aborted and merged away; what stands behind it is open. Whoever restores a store or waits
for its lag to end (Streams) asks for the end offset and polls until its position is there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.bench.scrape import metric
from tests.compat.conftest import start, stop
from tests.compat.kafka_python import KafkaConsumer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

WAIT_S_MAX = 60.0
END = 2  # the last stable offset


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An agent whose topic t has lost its first two offsets; the others are of an open transaction."""
    agent = start(tmp_path_factory.mktemp("gaps") / "data", "merging.interval_ms=50", "merging.age_s=1")
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic("t", 1)])["t"].result(WAIT_S_MAX)
    aborted, staying = (
        Producer({"bootstrap.servers": agent.bootstrap, "transactional.id": name}) for name in ("a", "b")
    )
    for producer, values in ((aborted, (b"0", b"1")), (staying, (b"2",))):
        producer.init_transactions(WAIT_S_MAX)
        producer.begin_transaction()
        for value in values:
            producer.produce("t", value)
        assert producer.flush(WAIT_S_MAX) == 0
    aborted.abort_transaction(WAIT_S_MAX)
    _until(lambda: metric(agent.http, "floe_merge_swaps_total") >= 1)
    yield agent.bootstrap
    staying.abort_transaction(WAIT_S_MAX)
    assert stop(agent) == 0


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
