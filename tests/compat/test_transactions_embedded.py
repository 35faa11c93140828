"""Transactions by real clients against one agent: three that speak v1, and our own that speaks v2.

Java's clients and Kafka's tools: tests/compat/suite/test_transactions.py.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.kafka_codes import Code
from tests.compat.conftest import Embedded
from tests.compat.kafka_python import KafkaProducer, OffsetAndMetadata
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.equipment.transactional_client import V1, Connection, TransactionalClient

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

TRANSACTIONS = 6
GROUP = "positions"
WAIT_S_MAX = 60.0
_numbers = itertools.count(1)
Write = Callable[[str, str, str], Awaitable[None]]


@pytest.fixture
def topic(embedded: Embedded) -> str:
    """A fresh topic with two partitions, without retention: the test client's records are years old."""
    name = f"txn-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    admin.create_topics([NewTopic(name, 2, config={"retention.ms": "-1"})])[name].result(WAIT_S_MAX)
    return name


def committed(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[tuple[int, bytes]]:
    """(partition, value) of every record up to the end, by librdkafka."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{next(_numbers)}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found, ended = [], 0
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in range(2)])
        while ended < 2:
            message = consumer.poll(WAIT_S_MAX)
            assert message is not None, f"nothing came for {WAIT_S_MAX} s; so far {found}"
            if message.error() is not None:
                ended += 1
            else:
                found.append((message.partition(), message.value()))
    finally:
        consumer.close()
    return sorted(found)


def expected(topic: str) -> list[tuple[int, bytes]]:
    """What the even ones of TRANSACTIONS wrote to both partitions."""
    even = [b"%d" % number for number in range(0, TRANSACTIONS, 2)]
    return sorted((index, value) for index in range(2) for value in even)


async def by_librdkafka(bootstrap: str, topic: str, group: str) -> None:
    """Commits every even transaction and aborts the odd ones; positions go along."""

    def run() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"rd-{topic}"})
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        producer.init_transactions(WAIT_S_MAX)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for index in range(2):
                producer.produce(topic, b"%d" % number, partition=index)
            assert producer.flush(WAIT_S_MAX) == 0, "an abort would drop what was not sent yet"
            positions = [TopicPartition(topic, 0, number + 1)]
            producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S_MAX)
            if number % 2:
                producer.abort_transaction(WAIT_S_MAX)
            else:
                producer.commit_transaction(WAIT_S_MAX)
        reader.close()

    await asyncio.to_thread(run)


async def by_aiokafka(bootstrap: str, topic: str, group: str) -> None:
    """The same."""
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"aio-{topic}")
    await producer.start()
    try:
        for number in range(TRANSACTIONS):
            await producer.begin_transaction()
            for index in range(2):
                await producer.send_and_wait(topic, b"%d" % number, partition=index)
            positions = {aiokafka.TopicPartition(topic, 0): number + 1}
            await producer.send_offsets_to_transaction(positions, group)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    finally:
        await producer.stop()


async def by_kafka_python(bootstrap: str, topic: str, group: str) -> None:
    """The same."""

    def run() -> None:
        producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"py-{topic}")
        producer.init_transactions()
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            for index in range(2):
                producer.send(topic, b"%d" % number, partition=index).get(WAIT_S_MAX)
            positions = {PyTopicPartition(topic, 0): OffsetAndMetadata(number + 1, "", -1)}
            producer.send_offsets_to_transaction(positions, group)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.close()

    await asyncio.to_thread(run)


async def by_our_own_v2(bootstrap: str, topic: str, group: str) -> None:
    """The same, of transactions v2."""
    async with TransactionalClient(bootstrap, f"own-{topic}") as producer:
        assert await producer.init() == 0
        for number in range(TRANSACTIONS):
            for index in range(2):
                assert (await producer.send(topic, b"%d" % number, index=index))[0] == 0
            assert await producer.offsets(group, topic, number + 1) == 0
            assert await producer.end(commit=number % 2 == 0) == 0
        assert producer.pair[1] == TRANSACTIONS, "a new epoch with every end"


@pytest.mark.parametrize(
    "write", [by_librdkafka, by_aiokafka, by_kafka_python, by_our_own_v2], ids=lambda write: write.__name__
)
async def test_committed_and_aborted_transactions(embedded: Embedded, topic: str, write: Write) -> None:
    group = f"{GROUP}-{topic}"
    await write(embedded.bootstrap, topic, group)
    assert await asyncio.to_thread(committed, embedded.bootstrap, topic) == expected(topic)
    everything = await asyncio.to_thread(committed, embedded.bootstrap, topic, "read_uncommitted")
    assert len(everything) == 2 * TRANSACTIONS
    reader = Consumer({"bootstrap.servers": embedded.bootstrap, "group.id": group})
    (position,) = await asyncio.to_thread(reader.committed, [TopicPartition(topic, 0)], WAIT_S_MAX)
    reader.close()
    assert position.offset == TRANSACTIONS - 1, "that of the last committed one"


@pytest.mark.parametrize("client", ["aiokafka", "librdkafka"])
async def test_readers_of_other_makes_parse_control_batches(
    embedded: Embedded, topic: str, client: str
) -> None:
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}") as producer:
        await producer.init()
        for number in range(TRANSACTIONS):
            await producer.send(topic, b"%d" % number)
            await producer.end(commit=number % 2 == 0)
        wanted = [b"%d" % number for number in range(0, TRANSACTIONS, 2)]
        if client == "librdkafka":
            assert [
                value for _, value in await asyncio.to_thread(committed, embedded.bootstrap, topic)
            ] == wanted
            return
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=embedded.bootstrap, isolation_level="read_committed"
        )
        await consumer.start()
        part = aiokafka.TopicPartition(topic, 0)
        consumer.assign([part])
        await consumer.seek_to_beginning(part)
        async with asyncio.timeout(WAIT_S_MAX):
            found = [(await consumer.getone()).value for _ in wanted]
        await consumer.stop()
        assert found == wanted


async def test_an_end_held_back_does_not_touch_the_next_transaction(embedded: Embedded, topic: str) -> None:
    """KAFKA-17754 in v1, over real sockets: the request sits on a connection that its client gave up."""
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}", versions=dict(V1)) as producer:
        old = await producer.reconnect()
        assert await producer.init() == 0
        assert await producer.add(topic, 0) == 0
        assert await producer.send(topic, b"first") == (0, 0)
        held = producer.ending(commit=True)
        await producer.reconnect()
        assert await producer.end(commit=True) == 0
        assert await producer.add(topic, 0) == 0
        assert await producer.send(topic, b"second") == (0, 2)
        await old.send("EndTxn", held, V1["EndTxn"])
        assert await old.closed()
        assert await asyncio.to_thread(committed, embedded.bootstrap, topic) == [(0, b"first")]
        assert await producer.end(commit=False) == 0
        assert await asyncio.to_thread(committed, embedded.bootstrap, topic) == [(0, b"first")]


async def test_the_second_connection_of_a_v1_client_reconnects_once_per_transaction(
    embedded: Embedded, topic: str
) -> None:
    """Its group's coordinator: TxnOffsetCommit comes by a connection of its own."""
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}", versions=dict(V1)) as producer:
        await producer.init()
        main = producer.connection
        other = await producer.reconnect()
        for number in range(3):
            producer.connection = main
            assert await producer.add_group(GROUP) == 0
            producer.connection = other
            if number:
                with pytest.raises(asyncio.IncompleteReadError):
                    await producer.offsets(GROUP, topic, number)
                other = await producer.reconnect()
            assert await producer.offsets(GROUP, topic, number) == 0
            producer.connection = main
            assert await producer.end(commit=True) == 0


async def test_a_late_end_in_v2_is_fenced(embedded: Embedded, topic: str) -> None:
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}") as producer:
        await producer.init()
        await producer.send(topic, b"first")
        held = producer.ending(commit=True)
        await producer.end(commit=True)
        await producer.send(topic, b"second")
        late = await Connection.open(embedded.bootstrap)
        assert (await late.call("EndTxn", held, 5)).error_code == Code.PRODUCER_FENCED
        await late.close()
        assert await asyncio.to_thread(committed, embedded.bootstrap, topic) == [(0, b"first")]
        assert await producer.end(commit=True) == 0
