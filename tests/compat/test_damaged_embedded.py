"""Rule 16 with real clients: a damaged chunk is told to the application; the other partition flows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from py4j.protocol import Py4JJavaError

from tests.compat.conftest import Embedded, start, stop
from tests.compat.damaged import SETTINGS, TOPIC, fill
from tests.compat.kafka_python import KafkaConsumer
from tests.compat.kafka_python import TopicPartition as PyTopicPartition
from tests.compat.suite.java import Jvm
from tests.compat.suite.java_clients import Java

pytestmark = pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning")

LOOKS_MAX = 150  # of 0.2 s
INTACT = {(0, 0), (1, 0), (1, 1), (1, 2)}
Found = tuple[set[tuple[int, int]], list[str]]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """Two partitions of three records, a chunk each; that of offset 1 of partition 0 is damaged."""
    agent = start(tmp_path_factory.mktemp("damaged") / "data", *SETTINGS)
    fill(agent)
    yield agent
    assert stop(agent) == 0


def librdkafka(bootstrap: str) -> Found:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in (0, 1)])
    got: set[tuple[int, int]] = set()
    errors: list[str] = []
    for _ in range(LOOKS_MAX):
        message = consumer.poll(0.2)
        if message is None:
            continue
        error = message.error()
        if error is None:
            got.add((message.partition(), message.offset()))
        elif error.code() == KafkaError.INVALID_MSG:
            errors.append(str(error))
        if got == INTACT and errors:
            break
    consumer.close()
    return got, errors


def kafka_python(bootstrap: str) -> Found:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([PyTopicPartition(TOPIC, partition) for partition in (0, 1)])
    got: set[tuple[int, int]] = set()
    errors: list[str] = []
    for _ in range(LOOKS_MAX):
        try:
            for where, records in consumer.poll(200).items():
                got |= {(where.partition, record.offset) for record in records}
        except Exception as error:
            errors.append(type(error).__name__)
        if got == INTACT and errors:
            break
    consumer.close()
    return got, errors


def java(bootstrap: str) -> Found:
    got: set[tuple[int, int]] = set()
    errors: list[str] = []
    with Jvm() as jvm, Java(jvm, bootstrap).consumer() as consumer:
        consumer.assign([Java(jvm, bootstrap).part(TOPIC, partition) for partition in (0, 1)])
        for _ in range(LOOKS_MAX):
            try:
                got |= {(each.partition, each.offset) for each in Java(jvm, bootstrap).poll(consumer)}
            except Py4JJavaError as error:
                errors.append(error.java_exception.getClass().getSimpleName())
            if got == INTACT and errors:
                break
    return got, errors


@pytest.mark.parametrize("client", [librdkafka, kafka_python, java])
def test_the_application_hears_of_the_damage_and_gets_everything_else(
    damaged: Embedded, client: Callable[[str], Found]
) -> None:
    got, errors = client(damaged.bootstrap)
    assert got == INTACT
    assert errors, "told to the application"


async def test_aiokafka_gets_everything_else(damaged: Embedded, caplog: pytest.LogCaptureFixture) -> None:
    """It tells no error of a Fetch to its application but those of offsets and permissions: it logs them."""
    caplog.set_level(logging.INFO, logger="aiokafka")  # commands of this process turn it down
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=damaged.bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
    )
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(TOPIC, partition) for partition in (0, 1)])
    got: set[tuple[int, int]] = set()
    for _ in range(LOOKS_MAX):
        found: dict[Any, Any] = await consumer.getmany(timeout_ms=200)
        got |= {(where.partition, each.offset) for where, records in found.items() for each in records}
        if got == INTACT and "CorruptRecord" in caplog.text:
            break
    await consumer.stop()
    assert got == INTACT
    assert "CorruptRecord" in caplog.text


def test_the_status_names_the_range(damaged: Embedded) -> None:
    librdkafka(damaged.bootstrap)
    rows: Any = damaged.status()["damaged"]
    assert [(row["topic"], row["partition"], row["from_offset"], row["to_offset"]) for row in rows] == [
        (TOPIC, 0, 1, 2)
    ]
