"""librdkafka writes and reads."""

from __future__ import annotations

from functools import partial

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TIMESTAMP_CREATE_TIME, Consumer, TopicPartition

from tests.compat.suite.broker import BASE_TIME, Broker
from tests.compat.suite.clients import LIBRDKAFKA
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import WAIT_S_MAX, consumer, error_of, produce, read, values

pytestmark = pytest.mark.client(LIBRDKAFKA)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_acks(acks: str, idempotent: bool, broker: Broker, saw: Saw) -> None:
    """Produces with every acks, idempotently where that is possible."""
    topic = broker.topic()
    settings = {"acks": acks, "enable_idempotence": idempotent and acks == "all"}
    sent = produce(broker.bootstrap, topic, values(200), **settings)
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found = read(reader, 200)
    assert [message.value() for message in found] == [b"%d" % n for n in range(200)]
    assert [message.offset() for message in found] == list(range(200))
    saw("offsets told", "all" if [m.offset() for m in sent] == list(range(200)) else "not all")


def test_a_record_comes_back_as_it_was_sent(broker: Broker, saw: Saw) -> None:
    """Keys, values, headers, timestamps, nulls and empty ones come back as they were sent."""
    topic = broker.topic(retention_ms="-1")
    records = [
        {"key": b"k", "value": b"v", "timestamp": BASE_TIME},
        {"key": None, "value": b"v", "timestamp": BASE_TIME + 1},
        {"key": b"k", "value": None, "timestamp": BASE_TIME + 2},
        {"key": b"", "value": b"", "timestamp": BASE_TIME + 3},
        {"key": "ключ".encode(), "value": bytes(range(256)), "timestamp": 1},
        {"value": b"h", "headers": [("a", b"1"), ("a", b"2"), ("", b""), ("n", None)]},
    ]
    produce(broker.bootstrap, topic, records)
    with consumer(broker.bootstrap, check_crcs=True) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found = read(reader, len(records))
    for record, message in zip(records, found, strict=True):
        assert message.key() == record.get("key")
        assert message.value() == record["value"]
        assert message.headers() == record.get("headers")
        kind, at = message.timestamp()
        assert kind == TIMESTAMP_CREATE_TIME
        assert at == record.get("timestamp", at)
        saw(f"leader epoch of {message.offset()}", message.leader_epoch())


def test_append_time(broker: Broker, saw: Saw) -> None:
    """With message.timestamp.type=LogAppendTime the broker's time replaces the producer's."""
    topic = broker.topic(message_timestamp_type="LogAppendTime")
    produce(broker.bootstrap, topic, [{"value": b"v", "timestamp": BASE_TIME}])
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        (message,) = read(reader, 1)
    kind, at = message.timestamp()
    assert at > BASE_TIME
    saw("kind", kind)


def test_large_records(broker: Broker, saw: Saw) -> None:
    """Records near the limit pass, one above it is refused with MSG_SIZE_TOO_LARGE."""
    topic = broker.topic()
    large = [{"value": bytes([n]) * 990_000} for n in range(5)]
    produce(broker.bootstrap, topic, large)
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in read(reader, 5)] == [each["value"] for each in large]
    above = [{"value": b"x" * 2_000_000}]
    settings = {"message_max_bytes": 4_000_000}
    saw("above", error_of(lambda: produce(broker.bootstrap, topic, above, **settings)))
    wide = broker.topic("wide", max_message_bytes="3000000")
    assert produce(broker.bootstrap, wide, above, **settings)[0].offset() == 0


def test_seek_pause_and_positions(broker: Broker) -> None:
    """Assigns, seeks, pauses, resumes and knows its position."""
    topic = broker.topic(partitions=2)
    produce(broker.bootstrap, topic, values(100, 2))
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING), TopicPartition(topic, 1, 10)])
        assert len(read(reader, 90)) == 90
        assert [part.offset for part in reader.position(reader.assignment())] == [50, 50]
        reader.pause([TopicPartition(topic, 1)])
        reader.seek(TopicPartition(topic, 1, 0))
        reader.seek(TopicPartition(topic, 0, 40))
        assert {message.partition() for message in read(reader, 10)} == {0}
        reader.resume([TopicPartition(topic, 1)])
        assert [message.offset() for message in read(reader, 50)] == list(range(50))
        produce(broker.bootstrap, topic, values(1, start=100))
        (message,) = read(reader, 1)
        assert (message.value(), message.offset()) == (b"100", 50)


def test_offsets_by_time_and_watermarks(broker: Broker) -> None:
    """Finds offsets by time, inside batches too, and the ends of a partition."""
    topic = broker.topic()
    records = [{"value": b"%d" % n, "timestamp": BASE_TIME + 1000 * n} for n in range(10)]
    produce(broker.bootstrap, topic, records, linger_ms=200)
    with consumer(broker.bootstrap) as reader:

        def at(time: int) -> int:
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, time)], WAIT_S_MAX)
            offset: int = found.offset
            return offset

        assert at(0) == 0
        assert at(BASE_TIME + 4000) == 4
        assert at(BASE_TIME + 4001) == 5
        assert at(BASE_TIME + 9000) == 9
        assert at(BASE_TIME + 9001) == OFFSET_END
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), WAIT_S_MAX) == (0, 10)


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_out_of_range(reset: str, broker: Broker, saw: Saw) -> None:
    """An offset out of range is reset as auto.offset.reset says."""
    topic = broker.topic()
    produce(broker.bootstrap, topic, values(5))
    with consumer(broker.bootstrap, auto_offset_reset=reset) as reader:
        reader.assign([TopicPartition(topic, 0, 99)])
        saw("error", error_of(lambda: _first(reader, broker.bootstrap, topic, reset)))


def _first(reader: Consumer, bootstrap: str, topic: str, reset: str) -> None:
    """The first record after the reset: with `latest` one has to come."""
    if reset != "latest":
        read(reader, 1)
        return
    for _ in range(100):
        produce(bootstrap, topic, [{"value": b"late"}])
        message = reader.poll(0.2)
        if message is not None:
            assert message.value() == b"late"
            return
    raise AssertionError("nothing came")


def test_what_is_not_there(broker: Broker, saw: Saw) -> None:
    """Unknown topics and partitions, and bad names, are told."""
    topic = broker.topic(partitions=2)
    with consumer(broker.bootstrap) as reader:
        for name, part in {
            "absent topic": TopicPartition(broker.fresh("absent"), 0),
            "absent partition": TopicPartition(topic, 7),
        }.items():
            ends = partial(reader.get_watermark_offsets, part, WAIT_S_MAX)
            saw(f"ends of an {name}", error_of(ends))
    bad = [{"value": b"v"}]
    saw("produce bad name", error_of(lambda: produce(broker.bootstrap, "a/b", bad, message_timeout_ms=5000)))
    far = [{"value": b"v", "partition": 9}]
    saw("produce partition", error_of(lambda: produce(broker.bootstrap, topic, far, message_timeout_ms=5000)))


def test_auto_creation(broker: Broker) -> None:
    """A topic that is not there is made by the first record."""
    topic = broker.fresh()
    assert produce(broker.bootstrap, topic, [{"value": b"first"}])[0].offset() == 0
    with consumer(broker.bootstrap) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert read(reader, 1)[0].value() == b"first"


def test_a_slow_trickle_arrives_at_once(broker: Broker) -> None:
    """A consumer at the end gets each record while it waits."""
    topic = broker.topic()
    with consumer(broker.bootstrap, fetch_wait_max_ms=20_000) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        for n in range(5):
            produce(broker.bootstrap, topic, values(1, start=n))
            assert read(reader, 1)[0].value() == b"%d" % n
