"""Transactions by real clients against one agent: three that speak v1, and our own that speaks v2.

Java's clients and Kafka's tools: tests/compat/suite/test_transactions.py.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import urllib.request
from collections.abc import Awaitable, Callable

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from coordination.kafka_codes import Code
from tests.compat.conftest import Embedded
from tests.compat.kafka_python import KafkaProducer, OffsetAndMetadata
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java, Sent
from tests.compat.suite.node import drive
from tests.equipment.transactional_client import V1, Connection, TransactionalClient

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

TRANSACTIONS = 6
SIXTY = 60
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


async def test_positions_come_by_a_connection_of_their_own(embedded: Embedded, topic: str) -> None:
    """That of the group's coordinator is opened once, and is older than the ends that follow."""
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}", versions=dict(V1)) as producer:
        await producer.init()
        main = producer.connection
        other = await producer.reconnect()
        for number in range(3):
            producer.connection = main
            assert await producer.add_group(GROUP) == 0
            producer.connection = other
            assert await producer.offsets(GROUP, topic, number) == 0
            producer.connection = main
            assert await producer.end(commit=True) == 0


@pytest.mark.parametrize("late_first", [True, False], ids=["in front", "behind"])
async def test_positions_held_back_do_not_count_in_the_next_transaction(
    embedded: Embedded, topic: str, late_first: bool
) -> None:
    """A TxnOffsetCommit is given up and sent again; its first try arrives in the next transaction."""
    group = f"held-{topic}"
    async with TransactionalClient(embedded.bootstrap, f"own-{topic}", versions=dict(V1)) as producer:
        await producer.init()
        main = producer.connection
        old = await producer.reconnect()
        held = producer.positioning(group, {(topic, 0): 100})
        other = await producer.reconnect()
        for offset in (100, 200):
            producer.connection = main
            assert await producer.add_group(group) == 0
            producer.connection = other
            if offset == 200 and late_first:
                await old.call("TxnOffsetCommit", held, V1["TxnOffsetCommit"])
                with pytest.raises(asyncio.IncompleteReadError):
                    await producer.offsets(group, topic, offset)
                await producer.reconnect()
            assert await producer.offsets(group, topic, offset) == 0
            if offset == 200 and not late_first:
                await old.send("TxnOffsetCommit", held, V1["TxnOffsetCommit"])
                assert await old.closed()
            producer.connection = main
            assert await producer.end(commit=True) == 0
    assert await asyncio.to_thread(position, embedded.bootstrap, topic, group) == 200


def test_librdkafka_loses_no_connection_in_sixty_transactions(embedded: Embedded, topic: str) -> None:
    """Read, process, write: its group coordinator's connection is one, and neither it nor the application
    hears of any trouble."""
    before, errors, lost = stale(embedded), [], []

    def told(text: str) -> None:
        lost.append(sum(each["disconnects"] for each in json.loads(text)["brokers"].values()))

    settings = {"statistics.interval.ms": 100, "stats_cb": told, "error_cb": errors.append}
    producer = Producer(
        {"bootstrap.servers": embedded.bootstrap, "transactional.id": f"rd-{topic}", **settings}
    )
    reader = Consumer({"bootstrap.servers": embedded.bootstrap, "group.id": f"sixty-{topic}"})
    producer.init_transactions(WAIT_S_MAX)
    for number in range(SIXTY):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number)
        positions = [TopicPartition(topic, 0, number + 1)]
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), WAIT_S_MAX)
        producer.commit_transaction(WAIT_S_MAX)
        producer.poll(0)
    told_before = len(lost)
    while len(lost) == told_before:
        producer.poll(WAIT_S_MAX)
    reader.close()
    assert (lost[-1], errors, stale(embedded) - before) == (0, [], 0)
    assert position(embedded.bootstrap, topic, f"sixty-{topic}") == SIXTY


def test_java_loses_no_connection_in_sixty_transactions(embedded: Embedded, topic: str) -> None:
    """The same by Java's producer, as it counts itself."""
    group = f"sixty-java-{topic}"
    with Jvm() as jvm:
        java = Java(jvm, embedded.bootstrap)
        offsets = jvm.kafka.clients.consumer
        with java.producer(transactional_id=f"java-{topic}", linger_ms=0) as producer:
            producer.initTransactions()
            for number in range(SIXTY):
                producer.beginTransaction()
                producer.send(java.record(topic, Sent(b"%d" % number)))
                positions = {java.part(topic): offsets.OffsetAndMetadata(number + 1)}
                producer.sendOffsetsToTransaction(positions, offsets.ConsumerGroupMetadata(group))
                producer.commitTransaction()
            told = {
                each.getKey().name(): each.getValue().metricValue()
                for each in producer.metrics().entrySet()
                if each.getKey().group() == "producer-metrics"
            }
    assert told["connection-creation-total"] > 0
    assert told["connection-close-total"] <= 1, "not one for each transaction"
    assert position(embedded.bootstrap, topic, group) == SIXTY


def test_kafkajs_goes_on_when_its_connections_were_cut(embedded: Embedded, topic: str) -> None:
    """It asks for ApiVersions on its very first connection alone: nothing tells of the others how old they
    are until one of its requests was refused there, which it sends again."""
    before, values = stale(embedded), [str(number) for number in range(4)]
    group = f"kafkajs-{topic}"
    options = {"topic": topic, "group": group, "transactionalId": f"kafkajs-{topic}", "values": values}
    assert drive("kafkajs", "transactions", embedded.bootstrap, **options) == len(values)
    assert committed(embedded.bootstrap, topic) == [(0, value.encode()) for value in values]
    assert position(embedded.bootstrap, topic, group) == len(values)
    assert stale(embedded) == before


def position(bootstrap: str, topic: str, group: str) -> int:
    """What the group has committed of the first partition."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        return int(reader.committed([TopicPartition(topic, 0)], WAIT_S_MAX)[0].offset)
    finally:
        reader.close()


def stale(agent: Embedded) -> float:
    """How many connections the fence has closed."""
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("floe_transactions_stale_total"))


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
