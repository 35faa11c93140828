"""Java's producer."""

from __future__ import annotations

import pytest

from objectstore.batch import peek
from tests.compat.raw import fetch_batches
from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import JAVA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, Sent, failed, numbered

pytestmark = pytest.mark.client(JAVA)

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("codec", CODECS)
async def test_codecs(codec: str, broker: Broker, java: Java) -> None:
    """Writes every codec with acks=all, idempotently; what is stored is the producer's batch."""
    topic = broker.topic(partitions=3)
    sent = java.produce(topic, numbered(300, 3), compression_type=codec, acks="all", linger_ms=20)
    assert [each.offset() for each in sent] == [n // 3 for n in range(300)]
    with java.consumer(check_crcs="true") as consumer:
        consumer.assign([java.part(topic, index) for index in range(3)])
        found = java.read(consumer, 300)
    assert sorted(map(int, found)) == list(range(300))
    for index in range(3):
        assert [int(each) for each in found if each.partition == index] == list(range(index, 300, 3))
        batches = [peek(batch) for batch in await fetch_batches(broker.bootstrap, topic, index)]
        assert {batch.attributes & 7 for batch in batches} == {CODECS[codec]}
        assert all(batch.producer_id >= 0 for batch in batches)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_acks(acks: str, broker: Broker, java: Java, saw: Saw) -> None:
    """Writes with every acks, without idempotence."""
    topic = broker.topic()
    sent = java.produce(topic, numbered(100), acks=acks, enable_idempotence="false")
    saw("offsets told", {each.hasOffset() for each in sent})
    with java.consumer() as consumer:
        consumer.assign([java.part(topic)])
        assert [int(each) for each in java.read(consumer, 100)] == list(range(100))
    batches = [peek(batch) for batch in await fetch_batches(broker.bootstrap, topic, 0)]
    assert {batch.producer_id for batch in batches} == {-1}


def test_a_record_comes_back_as_it_was_sent(broker: Broker, java: Java) -> None:
    """Keys, values, headers, timestamps, nulls and empty ones come back as they were sent."""
    topic = broker.topic(retention_ms="-1")
    sent = [
        Sent(b"v", 0, b"k", BASE_TIME, offset=0),
        Sent(None, 0, b"k", BASE_TIME + 1, offset=1),
        Sent(b"", 0, b"", BASE_TIME + 2, offset=2),
        Sent(bytes(range(256)), 0, None, 4_102_444_800, offset=3),
        Sent(b"h", 0, None, BASE_TIME, (("a", b"1"), ("a", b"2"), ("", b""), ("n", None)), 4),
    ]
    java.produce(topic, sent)
    with java.consumer() as consumer:
        consumer.assign([java.part(topic)])
        assert java.read(consumer, len(sent)) == sent


def test_append_time(broker: Broker, java: Java, saw: Saw) -> None:
    """With LogAppendTime the producer is told the broker's time, and the reader sees the same."""
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    (told,) = java.produce(topic, [Sent(b"v", timestamp=BASE_TIME)])
    with java.consumer() as consumer:
        consumer.assign([java.part(topic)])
        (found,) = java.read(consumer, 1)
    assert found.timestamp == told.timestamp() > BASE_TIME


def test_what_is_refused(broker: Broker, java: Java, saw: Saw) -> None:
    """Records that are too large, without a key in a compacted topic, too old, or for nobody are refused."""
    small = broker.topic("small", max_message_bytes="1000")
    old = broker.topic("strict", message_timestamp_before_max_ms="1000")
    compacted = broker.topic("compacted", cleanup_policy="compact")
    cases = {
        "too large": (small, Sent(b"x" * 2000)),
        "no key": (compacted, Sent(b"v")),
        "too old": (old, Sent(b"v", timestamp=BASE_TIME)),
        "bad name": ("a/b", Sent(b"v")),
        "no such partition": (small, Sent(b"v", 7)),
    }
    for name, (topic, record) in cases.items():
        told = failed(lambda topic=topic, record=record: java.produce(topic, [record], max_block_ms=3000))
        # The text about what is too old names times.
        saw(name, told.partition(":")[0] if name == "too old" else told)


def test_auto_creation(broker: Broker, java: Java) -> None:
    """A topic that is not there is made by the first record."""
    topic = broker.fresh()
    assert java.produce(topic, [Sent(b"first")])[0].offset() == 0
    with java.producer() as producer:
        assert [part.partition() for part in producer.partitionsFor(topic)] == [0]


def test_records_without_a_partition(broker: Broker, java: Java, saw: Saw) -> None:
    """Keys choose the partition; what has no key is spread over all of them."""
    topic = broker.topic(partitions=4)
    made = java.jvm.kafka.clients.producer.ProducerRecord
    with java.producer(batch_size=100, linger_ms=0) as producer:
        keyed = [producer.send(made(topic, b"key %d" % (n % 10), b"v")) for n in range(40)]
        placed = [future.get().partition() for future in keyed]
        assert placed[:10] * 4 == placed
        saw("keys to partitions", placed[:10])
        loose = [producer.send(made(topic, b"%d" % n * 20)) for n in range(200)]
        assert {future.get().partition() for future in loose} == {0, 1, 2, 3}


def test_a_producer_outlives_a_restart(broker: Broker, java: Java) -> None:
    """The same idempotent producer goes on after every broker was restarted: nothing is lost or doubled."""
    topic = broker.topic()
    with java.producer(delivery_timeout_ms=120_000) as producer:
        before = [producer.send(java.record(topic, each)) for each in numbered(50)]
        assert [future.get().offset() for future in before] == list(range(50))
        broker.restart()
        after = [producer.send(java.record(topic, each)) for each in numbered(50)]
        assert [future.get().offset() for future in after] == list(range(50, 100))
    with java.consumer() as consumer:
        consumer.assign([java.part(topic)])
        assert [int(each) for each in java.read(consumer, 100)] == [*range(50), *range(50)]
