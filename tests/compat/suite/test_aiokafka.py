"""aiokafka: producer, consumer, groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import AIOKAFKA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import WAIT_S_MAX

pytestmark = pytest.mark.client(AIOKAFKA)

GROUP = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300, "enable_auto_commit": False}


async def send(broker: Broker, topic: str, count: int, partitions: int = 1, **settings: Any) -> None:
    """Records whose values are their numbers, over the partitions in turn, at BASE_TIME and on."""
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        sent = [
            await producer.send(topic, b"%d" % n, partition=n % partitions, timestamp_ms=BASE_TIME + n)
            for n in range(count)
        ]
        for each in sent:
            await each


@asynccontextmanager
async def reader(broker: Broker, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer from the start."""
    base = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 1000}
    consumer = AIOKafkaConsumer(*topics, bootstrap_servers=broker.bootstrap, **{**base, **settings})
    async with consumer as started:
        yield started


async def take(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    found: list[Any] = []
    async with asyncio.timeout(WAIT_S_MAX):
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=200, max_records=count - len(found))).values():
                found += records
    return found


async def until(reached: Callable[[], bool], *consumers: AIOKafkaConsumer) -> None:
    """Wait until it is so, while the consumers are polled."""
    async with asyncio.timeout(WAIT_S_MAX):
        while not reached():
            for each in consumers:
                await each.getmany(timeout_ms=50)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
async def test_codecs(codec: str | None, idempotent: bool, broker: Broker) -> None:
    """Writes and reads every codec, idempotently too."""
    topic = broker.topic()
    await send(broker, topic, 500, compression_type=codec, enable_idempotence=idempotent)
    async with reader(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = await take(consumer, 500)
    assert [int(record.value) for record in found] == list(range(500))
    assert [record.timestamp - BASE_TIME for record in found] == list(range(500))


@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_acks(acks: int | str, broker: Broker) -> None:
    """Writes with every acks."""
    topic = broker.topic()
    await send(broker, topic, 50, acks=acks)
    async with reader(broker, group_id=None) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert len(await take(consumer, 50)) == 50


async def test_seek_offsets_and_pause(broker: Broker) -> None:
    """Seeks, finds offsets by time and ends, pauses and resumes."""
    topic = broker.topic(partitions=2)
    await send(broker, topic, 40, 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reader(broker, group_id=None) as consumer:
        consumer.assign([zero, one])
        assert await consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
        assert await consumer.end_offsets([zero, one]) == {zero: 20, one: 20}
        found = await consumer.offsets_for_times({zero: BASE_TIME + 9, one: BASE_TIME + 1000})
        assert found[zero].offset == 5
        assert found[one] is None
        consumer.pause(one)
        consumer.seek(zero, 15)
        assert {record.partition for record in await take(consumer, 5)} == {0}
        assert await consumer.position(zero) == 20
        consumer.resume(one)
        assert {record.partition for record in await take(consumer, 20)} == {1}
        await consumer.seek_to_beginning(zero)
        assert (await take(consumer, 1))[0].offset == 0


ASSIGNORS = {
    "roundrobin": (RoundRobinPartitionAssignor,),
    "sticky": (StickyPartitionAssignor,),
}


@pytest.mark.parametrize("assignor", ASSIGNORS)
async def test_members_share(assignor: str, broker: Broker) -> None:
    """Two members share a topic's partitions; when one leaves the other has all."""
    topic, group = broker.topic(partitions=4), broker.fresh("group")
    settings = {**GROUP, "group_id": group, "partition_assignment_strategy": ASSIGNORS[assignor]}
    async with reader(broker, topic, **settings) as first:
        await until(lambda: len(first.assignment()) == 4, first)
        async with reader(broker, topic, **settings) as second:
            await until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
            assert not first.assignment() & second.assignment()
        await until(lambda: len(first.assignment()) == 4, first)


async def test_a_group_goes_on_where_it_was(broker: Broker) -> None:
    """Committed positions with metadata outlive the member."""
    topic, group = broker.topic(), broker.fresh("group")
    await send(broker, topic, 30)
    part = TopicPartition(topic, 0)
    for start in (0, 10, 20):
        async with reader(broker, topic, group_id=group, **GROUP) as consumer:
            found = await take(consumer, 10)
            assert [record.offset for record in found] == list(range(start, start + 10))
            await consumer.commit({part: OffsetAndMetadata(start + 10, "note")})
            assert await consumer.committed(part) == start + 10


async def test_a_static_member(broker: Broker) -> None:
    """A static member that comes back in time keeps its partitions, without a rebalance."""
    topic, group = broker.topic(partitions=2), broker.fresh("group")
    settings = {**GROUP, "group_id": group}
    async with reader(broker, topic, group_instance_id="one", **settings) as one:
        async with reader(broker, topic, group_instance_id="two", **settings) as two:
            await until(lambda: len(one.assignment()) == len(two.assignment()) == 1, one, two)
            mine, others = two.assignment(), one.assignment()
        async with reader(broker, topic, group_instance_id="two", **settings) as two:
            await until(lambda: two.assignment() == mine, one, two)
            assert one.assignment() == others


async def test_pattern(broker: Broker) -> None:
    """A pattern takes matching topics, one made later too."""
    group, stem = broker.fresh("group"), broker.fresh("p")
    first = broker.topic("p-a")
    async with reader(broker, group_id=group, **GROUP) as consumer:
        consumer.subscribe(pattern=f"^{stem}-.*")
        await until(lambda: {part.topic for part in consumer.assignment()} == {first}, consumer)
        second = await asyncio.to_thread(broker.topic, "p-b")
        await until(lambda: {part.topic for part in consumer.assignment()} == {first, second}, consumer)


async def test_admin(broker: Broker, saw: Saw) -> None:
    """The admin client creates, grows and deletes topics, deletes records, lists and describes groups."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        topic, group = broker.fresh(), broker.fresh("group")
        made = await admin.create_topics([NewTopic(topic, 1, 1)])
        saw("created", [row[1] for row in made.topic_errors])
        grown = await admin.create_partitions({topic: NewPartitions(2)})
        saw("grown", [row[1] for row in grown.topic_errors])
        await asyncio.to_thread(lambda: broker.topic("other"))
        await send(broker, topic, 10)
        try:
            found = await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(4)})
            saw("deleted to", sorted(found.values()))
        except KafkaError as error:
            saw("delete records", type(error).__name__)
        async with reader(broker, topic, group_id=group, **GROUP) as consumer:
            await take(consumer, 6)
            for partition in consumer.assignment():  # an empty one is committed only if its position is known
                await consumer.position(partition)
            await consumer.commit()
            listed = {row[0]: row[1] for row in await admin.list_consumer_groups()}
            saw("listed as", listed.get(group))
            offsets = await admin.list_consumer_group_offsets(group)
            saw("offsets", sorted((part.partition, at.offset) for part, at in offsets.items()))
        (gone,) = (await admin.delete_topics([topic])).topic_error_codes
        saw("topic deleted", gone[1])
    finally:
        await admin.close()
