"""Java's consumer without a group."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import JAVA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, Sent, by_partition, failed, numbered

pytestmark = pytest.mark.client(JAVA)


def test_seek_pause_and_positions(broker: Broker, java: Java) -> None:
    """Assigns, seeks to offsets and both ends, pauses, resumes and knows its position and lag."""
    topic = broker.topic(partitions=2)
    zero, one = java.part(topic), java.part(topic, 1)
    java.produce(topic, numbered(100, 2))
    with java.consumer() as consumer:
        consumer.assign([zero, one])
        consumer.seek(zero, 10)
        assert len(java.read(consumer, 90)) == 90
        assert [consumer.position(each) for each in (zero, one)] == [50, 50]
        consumer.pause([one])
        consumer.seekToBeginning([zero, one])
        assert {each.partition for each in java.read(consumer, 50)} == {0}
        assert consumer.currentLag(zero).getAsLong() == 0
        consumer.resume([one])
        assert [each.offset for each in java.read(consumer, 50)] == list(range(50))
        consumer.seekToEnd([zero])
        assert consumer.position(zero) == 50
        java.produce(topic, [Sent(b"last")])
        assert [(each.value, each.offset) for each in java.read(consumer, 1)] == [(b"last", 50)]


def test_offsets_by_time_and_ends(broker: Broker, java: Java) -> None:
    """Finds offsets by time, inside batches too, and the ends of partitions."""
    topic = broker.topic(partitions=2)
    zero, one = java.part(topic), java.part(topic, 1)
    times = [Sent(b"v", timestamp=BASE_TIME + 1000 * n) for n in range(10)]
    java.produce(topic, times, linger_ms=100)
    with java.consumer() as consumer:

        def at(time: int) -> int | None:
            found = consumer.offsetsForTimes({zero: time})[zero]
            return found and found.offset()

        wanted = {0x80000000: 0, BASE_TIME + 4000: 4, BASE_TIME + 4001: 5, BASE_TIME + 9001: None}
        assert {time: at(time) for time in wanted} == wanted
        assert by_partition(consumer.beginningOffsets([zero, one])) == {0: 0, 1: 0}
        assert by_partition(consumer.endOffsets([zero, one])) == {0: 10, 1: 0}


@pytest.mark.parametrize("reset", ["earliest", "by_duration:P9999D", "none"])
def test_out_of_range(reset: str, broker: Broker, java: Java, saw: Saw) -> None:
    """An offset out of range is reset as auto.offset.reset says."""
    topic = broker.topic()
    java.produce(topic, numbered(5))
    with java.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([java.part(topic)])
        consumer.seek(java.part(topic), 99)
        try:
            saw("offsets", [each.offset for each in java.read(consumer, 5)])
        except Py4JJavaError as error:
            saw("error", error.java_exception.getClass().getSimpleName())


def test_latest(broker: Broker, java: Java) -> None:
    """auto.offset.reset=latest begins with what comes next."""
    topic = broker.topic()
    java.produce(topic, numbered(5))
    with java.consumer(auto_offset_reset="latest") as consumer:
        consumer.assign([java.part(topic)])
        assert consumer.position(java.part(topic)) == 5
        java.produce(topic, [Sent(b"next")])
        assert [each.value for each in java.read(consumer, 1)] == [b"next"]


LIMITS: dict[str, dict[str, object]] = {
    "polls of 7": {"max_poll_records": 7},
    "small fetches": {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 100},
    "read_committed": {"isolation_level": "read_committed"},
    "patient": {"fetch_min_bytes": 10_000_000, "fetch_max_wait_ms": 50},
    "of one rack": {"client_rack": "rack-a"},
}


@pytest.mark.parametrize("limits", LIMITS)
def test_fetches(limits: str, broker: Broker, java: Java) -> None:
    """Whatever limits a fetch has, all records come, in order; one larger than the limits too."""
    topic = broker.topic()
    java.produce(topic, [*numbered(40), Sent(b"x" * 5000), *numbered(40)], batch_size=200, linger_ms=5)
    with java.consumer(**LIMITS[limits]) as consumer:
        consumer.assign([java.part(topic)])
        found = java.read(consumer, 81)
    assert [each.offset for each in found] == list(range(81))
    assert found[40].value == b"x" * 5000


def test_topics_are_listed(broker: Broker, java: Java, saw: Saw) -> None:
    """Lists topics and partitions; unknown topics are not made by asking, bad names are told."""
    topic, absent = broker.topic(partitions=3), broker.fresh("absent")
    with java.consumer(allow_auto_create_topics="false", default_api_timeout_ms=3000) as consumer:
        assert [part.partition() for part in consumer.partitionsFor(topic)] == [0, 1, 2]
        listed = set(consumer.listTopics())
        assert topic in listed
        assert absent not in listed
        saw("absent", failed(lambda: consumer.partitionsFor(absent)))
        saw("bad name", failed(lambda: consumer.partitionsFor("a/b")))
        assert absent not in set(consumer.listTopics())
