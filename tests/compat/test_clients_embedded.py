"""Real Kafka clients against one agent on the embedded default: librdkafka, aiokafka, kafka-python."""

from __future__ import annotations

import itertools
import os
from typing import Any

import aiokafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.conftest import Embedded
from tests.compat.kafka_python import ConfigResource as PyConfigResource
from tests.compat.kafka_python import KafkaAdminClient, KafkaConsumer, KafkaProducer
from tests.compat.kafka_python import NewTopic as PyNewTopic
from tests.compat.kafka_python import TopicPartition as PyTopicPartition

# kafka-python reads its message definitions in a way that Python 3.11 calls deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

RECORDS = 300
PARTITIONS = 3
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_numbers = itertools.count(1)

HEADERS = (("n", b"1"), ("null", None))

Sent = list[tuple[bytes | None, bytes | None, int]]


@pytest.fixture
def topic(embedded: Embedded) -> str:
    """A fresh topic with three partitions, without retention: many of the records are years old."""
    name = f"topic-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, config={"retention.ms": "-1"})])[name].result(10)
    return name


def rdkafka_produce(bootstrap: str, topic: str, sent: Sent, **settings: Any) -> list[tuple[int, int]]:
    """(partition, offset) of each record, as acknowledged."""
    acknowledged: list[tuple[int, int]] = []
    failures: list[KafkaError] = []

    def report(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failures.append(error)
        else:
            acknowledged.append((message.partition(), message.offset()))

    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for key, value, timestamp in sent:
        producer.produce(
            topic,
            key=key,
            value=value,
            timestamp=timestamp,
            headers=[("n", b"1"), ("null", None)],
            on_delivery=report,
        )
        producer.poll(0)
    assert producer.flush(180) == 0
    assert not failures
    return acknowledged


def rdkafka_consume(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[Any]:
    """`count` records of all partitions from their beginning, by partition and offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[Any] = []
    try:
        while len(found) < count:
            messages = consumer.consume(count, 10)
            assert messages, f"only {len(found)} of {count} records came"
            for message in messages:
                assert message.error() is None, message.error()
                found.append(message)
    finally:
        consumer.close()
    return sorted(found, key=lambda m: (m.partition(), m.offset()))


def sample(count: int = RECORDS, size: int = 100) -> Sent:
    """Keys, values and timestamps, some null."""
    return [
        (
            None if n % 7 == 1 else b"key-%d" % n,
            None if n % 7 == 2 else b"%d-" % n + os.urandom(size // 2) + b"x" * (size // 2),
            1_700_000_000_000 + n,
        )
        for n in range(count)
    ]


def check(found: list[Any], sent: Sent) -> None:
    """Every record once, unchanged; offsets dense per partition."""
    assert sorted((m.timestamp()[1], m.key(), m.value()) for m in found) == sorted(
        ((t, k, v) for k, v, t in sent), key=lambda row: row[0]
    )
    for index in range(PARTITIONS):
        offsets = [m.offset() for m in found if m.partition() == index]
        assert offsets == list(range(len(offsets)))
    assert {tuple(m.headers()) for m in found} <= {HEADERS}


def same(found: list[Any], sent: Sent, acknowledged: list[Any]) -> None:
    """Every record once and unchanged, where it was acknowledged (the Python clients' records)."""
    assert sorted((m.timestamp, m.key, m.value) for m in found) == sorted(
        ((t, k, v) for k, v, t in sent), key=lambda row: row[0]
    )
    assert sorted((m.partition, m.offset) for m in acknowledged) == sorted(
        (m.partition, m.offset) for m in found
    )


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_in_every_codec(embedded: Embedded, topic: str, codec: str) -> None:
    sent = sample()
    rdkafka_produce(embedded.bootstrap, topic, sent, **{"compression.type": codec, "linger.ms": 5})
    check(rdkafka_consume(embedded.bootstrap, topic, RECORDS), sent)


@pytest.mark.parametrize(
    "settings", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable.idempotence": True}]
)
def test_librdkafka_with_every_kind_of_acknowledgement(
    embedded: Embedded, topic: str, settings: dict[str, Any]
) -> None:
    sent = sample()
    acknowledged = rdkafka_produce(embedded.bootstrap, topic, sent, **settings)
    found = rdkafka_consume(embedded.bootstrap, topic, RECORDS)
    check(found, sent)
    if settings.get("acks") != 0:
        assert sorted(acknowledged) == [(m.partition(), m.offset()) for m in found]


def test_librdkafka_with_large_records(embedded: Embedded, topic: str) -> None:
    sent = sample(8, 900_000)
    rdkafka_produce(embedded.bootstrap, topic, sent)
    check(rdkafka_consume(embedded.bootstrap, topic, 8), sent)


def test_a_record_above_the_topics_limit_is_refused_and_others_pass(embedded: Embedded, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)
    reports: list[int | None] = []
    producer = Producer({"bootstrap.servers": embedded.bootstrap, "linger.ms": 0})
    for size in (10, 5000, 10):
        producer.produce(
            topic, value=b"x" * size, partition=0, on_delivery=lambda e, _m: reports.append(e and e.code())
        )
        producer.flush(20)
    assert reports == [None, KafkaError.MSG_SIZE_TOO_LARGE, None]
    assert len(rdkafka_consume(embedded.bootstrap, topic, 2)) == 2


def test_an_unknown_partition_and_an_unwanted_topic_fail_clearly(embedded: Embedded, topic: str) -> None:
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": embedded.bootstrap, "message.timeout.ms": 3000})
    producer.produce(topic, b"x", partition=99, on_delivery=lambda e, _m: codes.append(e.code()))
    producer.flush(10)
    assert codes == [KafkaError._UNKNOWN_PARTITION]
    settings = {"bootstrap.servers": embedded.bootstrap, "group.id": "x", "allow.auto.create.topics": False}
    consumer = Consumer(settings)
    answer = consumer.list_topics("not-there", timeout=10).topics["not-there"]
    assert answer.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    consumer.close()


def test_offsets_by_time_and_their_bounds(embedded: Embedded, topic: str) -> None:
    first = 1_700_000_000_000
    sent: Sent = [(b"k", b"%d" % n, first + 10 * n) for n in range(20)]
    rdkafka_produce(embedded.bootstrap, topic, sent)
    found = rdkafka_consume(embedded.bootstrap, topic, 20)
    index = found[0].partition()
    consumer = Consumer({"bootstrap.servers": embedded.bootstrap, "group.id": "x"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, index), timeout=10) == (0, 20)
    for wanted, offset in ((first - 5, 0), (first + 95, 10), (first + 100, 10), (first + 190, 19)):
        (at,) = consumer.offsets_for_times([TopicPartition(topic, index, wanted)], timeout=10)
        assert at.offset == offset
    (late,) = consumer.offsets_for_times([TopicPartition(topic, index, first + 1000)], timeout=10)
    assert late.offset < 0
    consumer.close()
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    part = TopicPartition(topic, index)
    newest = admin.list_offsets({part: OffsetSpec.max_timestamp()})[part].result(10)
    assert (newest.offset, newest.timestamp) == (19, first + 190)


def test_out_of_range_resets_as_the_consumer_says(embedded: Embedded, topic: str) -> None:
    rdkafka_produce(embedded.bootstrap, topic, [(None, b"%d" % n, 1_700_000_000_000) for n in range(5)])
    consumer = Consumer(
        {"bootstrap.servers": embedded.bootstrap, "group.id": "x", "auto.offset.reset": "error"}
    )
    consumer.assign([TopicPartition(topic, 0, 1000)])
    message = consumer.poll(10)
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET
    consumer.close()


def test_administration_through_librdkafka(embedded: Embedded) -> None:
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    name = f"topic-{next(_numbers)}"
    admin.create_topics([NewTopic(name, 2, config={"retention.ms": "1000"})])[name].result(10)
    with pytest.raises(KafkaException) as twice:
        admin.create_topics([NewTopic(name, 2)])[name].result(10)
    assert twice.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with pytest.raises(KafkaException) as bad:
        admin.create_topics([NewTopic(f"{name}-bad", 1, config={"no.such": "1"})])[f"{name}-bad"].result(10)
    assert bad.value.args[0].code() == KafkaError.INVALID_CONFIG
    admin.create_partitions([NewPartitions(name, 5)])[name].result(10)
    listed = admin.list_topics(timeout=10)
    assert sorted(listed.topics[name].partitions) == list(range(5))
    assert listed.controller_id in listed.brokers
    assert admin.describe_cluster().result(10).cluster_id == listed.cluster_id
    resource = ConfigResource(ResourceType.TOPIC, name)
    configs = admin.describe_configs([resource])[resource].result(10)
    assert (configs["retention.ms"].value, configs["cleanup.policy"].value) == ("1000", "delete")
    admin.delete_topics([name])[name].result(10)
    assert name not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
async def test_aiokafka(embedded: Embedded, topic: str, codec: str | None, idempotent: bool) -> None:
    sent = sample()
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=embedded.bootstrap,
        compression_type=codec,
        enable_idempotence=idempotent,
        acks="all",
    ) as producer:
        futures = [
            await producer.send(topic, key=k, value=v, timestamp_ms=t, headers=[("n", b"1")])
            for k, v, t in sent
        ]
        acknowledged = [await future for future in futures]
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=embedded.bootstrap, enable_auto_commit=False)
    async with consumer:
        parts = [aiokafka.TopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(parts)
        await consumer.seek_to_beginning(*parts)
        found: list[Any] = []
        while len(found) < RECORDS:
            for messages in (await consumer.getmany(timeout_ms=10_000)).values():
                found += messages
        assert await consumer.end_offsets(parts) == {
            part: sum(m.partition == part.partition for m in found) for part in parts
        }
    assert sorted((m.timestamp, m.key, m.value) for m in found) == sorted(
        ((t, k, v) for k, v, t in sent), key=lambda row: row[0]
    )
    assert sorted((m.partition, m.offset) for m in acknowledged) == sorted(
        (m.partition, m.offset) for m in found
    )


async def test_administration_through_aiokafka(embedded: Embedded) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=embedded.bootstrap)
    await admin.start()
    try:
        name = f"topic-{next(_numbers)}"
        await admin.create_topics([aiokafka.admin.NewTopic(name, 2, 1)])
        assert name in await admin.list_topics()
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
    finally:
        await admin.close()


@pytest.mark.parametrize(
    "codec", [None, "gzip", "zstd"]
)  # the others need libraries that only tests would use
def test_kafka_python(embedded: Embedded, topic: str, codec: str | None) -> None:
    sent = sample()
    producer = KafkaProducer(bootstrap_servers=embedded.bootstrap, compression_type=codec, acks="all")
    try:
        futures = [
            producer.send(topic, key=k, value=v, timestamp_ms=t, headers=[("n", b"1")]) for k, v, t in sent
        ]
        acknowledged = [future.get(20) for future in futures]
    finally:
        producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=embedded.bootstrap,
        enable_auto_commit=False,
        group_id=None,
        consumer_timeout_ms=10_000,
    )
    try:
        parts = [PyTopicPartition(topic, index) for index in range(PARTITIONS)]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        found = list(itertools.islice(consumer, RECORDS))
        assert sum(consumer.end_offsets(parts).values()) == RECORDS
    finally:
        consumer.close()
    assert sorted((m.timestamp, m.key, m.value) for m in found) == sorted(
        ((t, k, v) for k, v, t in sent), key=lambda row: row[0]
    )
    assert sorted((m.partition, m.offset) for m in acknowledged) == sorted(
        (m.partition, m.offset) for m in found
    )


def test_administration_through_kafka_python(embedded: Embedded) -> None:
    admin = KafkaAdminClient(bootstrap_servers=embedded.bootstrap)
    try:
        name = f"topic-{next(_numbers)}"
        admin.create_topics([PyNewTopic(name, 2, 1)])
        assert name in admin.list_topics()
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


def test_what_one_client_writes_another_reads(embedded: Embedded, topic: str) -> None:
    sent: Sent = [(b"k", b"from librdkafka", 1_700_000_000_000)]
    rdkafka_produce(embedded.bootstrap, topic, sent, **{"compression.type": "zstd"})
    producer = KafkaProducer(bootstrap_servers=embedded.bootstrap, compression_type="zstd")
    producer.send(topic, key=b"k", value=b"from kafka-python").get(10)
    producer.close()
    values = [m.value() for m in rdkafka_consume(embedded.bootstrap, topic, 2)]
    assert sorted(values) == [b"from kafka-python", b"from librdkafka"]


def test_python_clients_set_the_clusters_configs_by_a_brokers_id(embedded: Embedded) -> None:
    """They cannot name the cluster itself: an empty resource name is refused before it is sent."""
    admin = AdminClient({"bootstrap.servers": embedded.bootstrap})
    node = str(next(iter(admin.list_topics(timeout=10).brokers)))

    def shown() -> str | None:
        asked = ConfigResource(ResourceType.BROKER, node)
        found = admin.describe_configs([asked])[asked].result(10)
        value: str | None = found["group.max.size"].value
        return value

    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("group.max.size", value, incremental_operation=operation)
        wanted = ConfigResource(ResourceType.BROKER, node, incremental_configs=[entry])
        admin.incremental_alter_configs([wanted])[wanted].result(10)

    before = shown()
    change(AlterConfigOpType.SET, "1000")
    assert shown() == "1000"
    change(AlterConfigOpType.DELETE, None)
    assert shown() == before
    other = KafkaAdminClient(bootstrap_servers=embedded.bootstrap)
    other.alter_configs([PyConfigResource("BROKER", node, {"group.max.size": "2000"})])
    assert shown() == "2000"
    other.close()
    change(AlterConfigOpType.DELETE, None)
