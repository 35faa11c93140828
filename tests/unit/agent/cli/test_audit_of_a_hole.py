"""Records that were lost and passed over, merged into a hole: clients and the audit go over it."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from deploy.setup.jars import ensure
from tests.compat.kafka_python import KafkaConsumer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java
from tests.unit.agent.cli.conftest import Dev, start_dev
from tests.unit.agent.cli.test_audit import audit

TOPIC = "holes"
LOST = (1, 4)
SOUND = [0, 2, 3, 5]  # and 5 came later
WAIT_S_MAX = 60.0
MERGING = ("fetch.cache_bytes_max=1024", "fetch.cold_cache_bytes_max=1024", "merging.skipped_wait_s=0")
AT_ONCE = ("merging.interval_ms=100", "merging.age_s=1")
pytestmark = [
    pytest.mark.services,
    pytest.mark.timeout(900),  # Spark
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]


def started(data: Path, *settings: str) -> Dev:
    return start_dev(data, *(part for setting in settings for part in ("--set", setting)))


def send(agent: Dev, number: int) -> None:
    producer = Producer({"bootstrap.servers": agent.bootstrap, "linger.ms": 0})
    producer.produce(TOPIC, f"record {number}".encode() * 500, partition=0)
    assert producer.flush(WAIT_S_MAX) == 0


@pytest.fixture(scope="module")
def holed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """Five records, a chunk each; two are lost, the last one too, passed over, and merged into a hole."""
    data = tmp_path_factory.mktemp("holes") / "data"
    agent = started(data, *MERGING)
    agent.run("topic", "create", TOPIC, "--partitions", "1")
    for number in range(5):
        send(agent, number)
    for number in LOST:
        text = f"record {number}".encode()
        (path,) = [path for path in data.rglob("*.chunk") if text in path.read_bytes()]
        path.write_bytes(path.read_bytes().replace(text, b"damage " + text[-2:], 1))
    agent.run("topic", "skip-damaged", TOPIC, "--partition", "0", "--by", "me", "--yes")
    assert agent.stop() == 0
    agent = started(data, *MERGING, *AT_ONCE)
    end = time.monotonic() + WAIT_S_MAX
    while merged_rows(agent) < 5:
        assert time.monotonic() < end, "it is not merged"
        time.sleep(0.1)
    send(agent, 5)
    yield agent
    assert agent.stop() == 0


def merged_rows(agent: Dev) -> float:
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=WAIT_S_MAX) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("floe_merge_rows_total"))


def test_librdkafka_reads_over_a_merged_hole(holed: Dev) -> None:
    consumer = Consumer({"bootstrap.servers": holed.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found = [message for message in consumer.consume(len(SOUND), WAIT_S_MAX) if message.error() is None]
    consumer.close()
    assert [message.offset() for message in found] == SOUND
    assert [str(message.value(), "ascii")[:8] for message in found] == [f"record {n}" for n in SOUND]


def test_kafka_python_reads_over_a_merged_hole(holed: Dev) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=holed.bootstrap, enable_auto_commit=False, consumer_timeout_ms=int(WAIT_S_MAX * 1e3)
    )
    place = PyTopicPartition(TOPIC, 0)
    consumer.assign([place])
    consumer.seek(place, 0)
    found = [next(consumer).offset for _ in SOUND]
    consumer.close()
    assert found == SOUND


def test_java_reads_over_a_merged_hole(holed: Dev) -> None:
    with Jvm() as jvm, Java(jvm, holed.bootstrap).consumer() as consumer:
        java = Java(jvm, holed.bootstrap)
        consumer.assign([java.part(TOPIC)])
        assert [each.offset for each in java.read(consumer, len(SOUND))] == SOUND


@pytest.mark.thorough
def test_the_audit_finds_the_table_equal_and_names_what_was_passed_over(holed: Dev) -> None:
    status, verdict = audit(holed, TOPIC, ensure("iceberg")[0].parent)
    assert (status, verdict["equal"]) == (0, True), json.dumps(verdict)
    passed = [(each["topic"], each["partition"], each["start"], each["end"]) for each in verdict["skipped"]]
    assert passed == [(TOPIC, 0, lost, lost + 1) for lost in LOST]
    (count,) = verdict["topics"]
    assert count["consumed"] == len(SOUND)
