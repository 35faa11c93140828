"""Every Python client writes to a cluster, every other reads it: values byte for byte, in every codec."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from deploy.services import Etcd, VersityGw
from objectstore.batch import peek, seal
from tests.compat.clients import CLIENTS, Client, Placed, Rec, rdkafka_read, rdkafka_write
from tests.compat.cluster import Cluster
from tests.compat.kafka_python import KafkaAdminClient
from tests.compat.kafka_python import NewTopic as PyNewTopic
from tests.compat.raw import fetch_batches, high_watermark, produce

# kafka-python reads its message definitions in a way that Python 3.11 calls deprecated.
pytestmark = [
    pytest.mark.services,
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BY_NAME = {client.name: client for client in CLIENTS}
FIRST_MS = 1_700_000_000_000
_numbers = itertools.count(1)


def fresh_topic(cluster: Cluster, partitions: int = 1, **configs: str) -> str:
    """A topic of the test's own, without retention: many of the records are years old."""
    name = f"clients-{next(_numbers)}"
    configs = {"retention.ms": "-1", **configs}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, partitions, config=configs)])[name].result(20)
    return name


def sample(seed: str, count: int = 60, nulls: bool = True) -> list[Rec]:
    """Records with null and empty keys and values, headers and timestamps that go back and forth.

    Without `nulls`, no record lacks both key and value and no header lacks its value.
    """
    chance = random.Random(seed)
    found = [
        Rec(
            FIRST_MS + chance.randrange(1000),
            chance.choice([None, b"", b"key-%d" % n]),
            chance.choice([None, b"", chance.randbytes(200), b"x" * 500, "Zürich\n".encode()]),
            chance.choice([(), (("a", b"1"),), (("a", b""), ("a", b"\x00\xff"), ("ünï", None))]),
        )
        for n in range(count)
    ]
    if nulls:
        return found
    return [
        rec._replace(
            key=b"k" if rec.key is rec.value is None else rec.key,
            headers=tuple((name, value or b"") for name, value in rec.headers),
        )
        for rec in found
    ]


def placed(records: list[Rec], first: int = 0) -> list[Placed]:
    """The records at dense offsets."""
    return [Placed(first + index, rec) for index, rec in enumerate(records)]


@pytest.mark.parametrize("writer", BY_NAME)
def test_what_one_client_writes_every_client_reads(cluster: Cluster, writer: str) -> None:
    topic = fresh_topic(cluster, len(CODECS))
    nulls = BY_NAME[writer].nulls
    sent = {codec: sample(f"{writer} {codec}", nulls=nulls) for codec in CODECS}
    for index, codec in enumerate(CODECS):
        offsets = BY_NAME[writer].write(cluster.bootstrap, topic, index, sent[codec], codec)
        assert offsets == list(range(len(sent[codec])))
    for reader in CLIENTS:
        for index, codec in enumerate(CODECS):
            found = reader.read(cluster.bootstrap, topic, index, len(sent[codec]))
            assert found == placed(sent[codec]), f"{reader.name} reads other records in {codec}"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
async def test_the_batches_are_compressed_as_the_client_was_told(cluster: Cluster, client: Client) -> None:
    """A client that is told a version it does not trust would silently send without compression."""
    topic = fresh_topic(cluster, len(CODECS))
    for index, codec in enumerate(CODECS):
        records = [Rec(FIRST_MS + n, b"k", b"compressible " * 50) for n in range(20)]
        await asyncio.to_thread(client.write, cluster.bootstrap, topic, index, records, codec)
        batches = await fetch_batches(cluster.bootstrap, topic, index)
        assert {peek(batch).attributes & 7 for batch in batches} == {index}
        assert all(peek(batch).producer_id >= 0 for batch in batches), "idempotent"


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_records_of_a_megabyte(cluster: Cluster, client: Client) -> None:
    topic = fresh_topic(cluster)
    sent = [Rec(FIRST_MS + n, b"%d" % n, random.Random(n).randbytes(1_000_000)) for n in range(4)]
    assert client.write(cluster.bootstrap, topic, 0, sent, "none") == [0, 1, 2, 3]
    for reader in CLIENTS:
        found = reader.read(cluster.bootstrap, topic, 0, len(sent))
        assert [(each.offset, hashlib.sha256(each.rec.value or b"").digest()) for each in found] == [
            (index, hashlib.sha256(rec.value or b"").digest()) for index, rec in enumerate(sent)
        ]


async def test_a_retry_of_every_clients_batch_is_not_stored_twice(cluster: Cluster) -> None:
    """The batches as they were sent, sent once more through the other agent, give their first offsets."""
    for client in CLIENTS:
        topic = fresh_topic(cluster)
        records = sample(client.name, 5, client.nulls)
        await asyncio.to_thread(client.write, cluster.bootstrap, topic, 0, records, "none")
        stored = await fetch_batches(cluster.bootstrap, topic, 0)
        for batch in stored[-5:]:
            header = peek(batch)
            again = seal(header._replace(base_offset=0), batch[61:])
            answer = await produce(cluster.agents[-1].bootstrap, topic, again)
            assert (answer.error_code, answer.base_offset) == (0, header.base_offset)
        assert await high_watermark(cluster.bootstrap, topic) == len(records)


def test_append_time_replaces_the_clients(cluster: Cluster) -> None:
    topic = fresh_topic(cluster, **{"message.timestamp.type": "LogAppendTime"})
    for client in CLIENTS:
        client.write(cluster.bootstrap, topic, 0, [Rec(FIRST_MS, None, client.name.encode())], "none")
    for reader in CLIENTS:
        found = reader.read(cluster.bootstrap, topic, 0, len(CLIENTS))
        assert [each.rec.value for each in found] == [client.name.encode() for client in CLIENTS]
        assert all(each.rec.timestamp > FIRST_MS for each in found)


def test_librdkafka_on_versitygw(etcd: Etcd, versitygw: VersityGw) -> None:
    """Another S3 server as the store, the same story."""
    with Cluster(etcd, versitygw) as cluster:
        topic = fresh_topic(cluster, len(CODECS))
        for index, codec in enumerate(CODECS):
            sent = sample(codec)
            assert rdkafka_write(cluster.bootstrap, topic, index, sent, codec) == list(range(len(sent)))
            assert rdkafka_read(cluster.bootstrap, topic, index, len(sent)) == placed(sent)
        large = [Rec(FIRST_MS, None, b"z" * 1_000_000)]
        assert rdkafka_write(cluster.bootstrap, topic, 0, large, "none") == [60]


def test_administration_through_librdkafka(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    name = fresh_topic(cluster, 2)
    with pytest.raises(KafkaException) as twice:
        admin.create_topics([NewTopic(name, 2)])[name].result(20)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(name, 5)])[name].result(20)
    listed = admin.list_topics(timeout=20)
    assert sorted(listed.topics[name].partitions) == list(range(5))
    assert len(listed.brokers) == len(cluster.agents)
    admin.delete_topics([name])[name].result(20)
    assert name not in admin.list_topics(timeout=20).topics
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.timeout.ms": 5000})
    failed: list[int] = []
    producer.produce(name, b"x", partition=9, on_delivery=lambda error, _: failed.append(error.code()))
    producer.flush(20)
    assert len(failed) == 1, "a record for a partition that is not there fails"


async def test_administration_through_aiokafka(cluster: Cluster) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        name = f"clients-{next(_numbers)}"
        await admin.create_topics([aiokafka.admin.NewTopic(name, 2, 1)])
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
    finally:
        await admin.close()


def test_administration_through_kafka_python(cluster: Cluster) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        name = f"clients-{next(_numbers)}"
        admin.create_topics([PyNewTopic(name, 2, 1)])
        assert name in admin.list_topics()
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


def test_librdkafka_sees_its_own_commit_that_it_did_not_wait_for(cluster: Cluster) -> None:
    """Rule 17: OffsetFetch goes out right behind OffsetCommit on the same connection."""
    topic = fresh_topic(cluster)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-group"})
    # The first one finds the coordinator: until then librdkafka keeps requests back, each kind by itself.
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    seen = []
    for position in range(1, 101):
        consumer.commit(offsets=[TopicPartition(topic, 0, position)], asynchronous=True)
        seen.append(consumer.committed([TopicPartition(topic, 0)], 10)[0].offset)
    consumer.close()
    assert seen == list(range(1, 101))
