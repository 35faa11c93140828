"""Records that break rules go to the topic's quarantine: clients write and read, pyiceberg the tables."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from pyiceberg.catalog.rest import RestCatalog

from schema.proto.quarantine_pb2 import Record
from tests.compat.conftest import Embedded, start, stop
from tests.compat.test_latest_embedded import QUICK, caught_up
from tests.compat.test_rules_embedded import BAD, GOOD, create, floe, metric
from tests.unit.schema import samples

WAIT_S_MAX = 60.0
MERGES = ("merging.interval_ms=50", "merging.age_s=1", "merging.keep_slices=0")
READ = {"committed": "read_committed", "all": "read_uncommitted"}
_numbers = itertools.count(1)

Written = list[tuple[int, bytes]]
"""Offset and value of each record that a consumer gets."""

Batches = list[list[bytes]]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent that commits tables and merges at once."""
    running = start(tmp_path_factory.mktemp("quarantine") / "data", *QUICK, *MERGES)
    yield running
    assert stop(running) == 0


@pytest.fixture(scope="module")
def proto(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("protos") / "flights.proto"
    file.write_bytes(samples.RULED_FLIGHTS)
    return file


@pytest.fixture
def topic(agent: Embedded, proto: Path) -> str:
    """A topic of one partition with a quarantine."""
    name = f"flights{next(_numbers)}"
    create(agent, name, proto)
    floe(agent, "topic", "config", name, "--set", "floe.value.rules=quarantine")
    return name


def consumed(agent: Embedded, topic: str, isolation: str, end: int) -> Written:
    """What librdkafka gets up to offset `end`, exclusive."""
    settings = {"isolation.level": isolation, "enable.partition.eof": True, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": agent.bootstrap, "group.id": "g", **settings})
    found: Written = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append((message.offset() or 0, message.value() or b""))
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            if (message.offset() or 0) >= end:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"the end {end} of {topic} never came")


async def consumed_by_aiokafka(agent: Embedded, topic: str, isolation: str, end: int) -> Written:
    """The same by aiokafka, whose position must get there."""
    consumer = AIOKafkaConsumer(bootstrap_servers=agent.bootstrap, isolation_level=isolation)
    partition = AioTopicPartition(topic, 0)
    found: Written = []
    await consumer.start()
    try:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        async with asyncio.timeout(WAIT_S_MAX):
            while await consumer.position(partition) < end:
                for each in (await consumer.getmany(timeout_ms=200)).get(partition, ()):
                    found.append((each.offset, each.value))
    finally:
        await consumer.stop()
    return found


def read(agent: Embedded, topic: str, isolation: str, end: int) -> Written:
    """What both clients get; they must agree."""
    found = consumed(agent, topic, isolation, end)
    assert asyncio.run(consumed_by_aiokafka(agent, topic, isolation, end)) == found
    return found


def kept(found: Written) -> list[tuple[int, int]]:
    """Of records in a quarantine: the sequence that they had, and their place in their batch."""
    records = [Record.FromString(value) for _, value in found]
    return [(each.sequence, each.batch_index) for each in records]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not reached():
        assert time.monotonic() < deadline, f"not reached in {WAIT_S_MAX} s"
        time.sleep(0.1)


def by_librdkafka(agent: Embedded, topic: str, batches: Batches, transactions: list[bool]) -> list[int]:
    """Send each list as one batch; with `transactions` each in one, committed or aborted. Offsets as told."""
    told: list[int] = []
    settings: dict[str, Any] = {"bootstrap.servers": agent.bootstrap, "linger.ms": 200}
    settings |= {"transactional.id": topic} if transactions else {"enable.idempotence": True}
    producer = Producer(settings)
    if transactions:
        producer.init_transactions(WAIT_S_MAX)

    def delivered(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        told.append(message.offset())

    for number, batch in enumerate(batches):
        if transactions:
            producer.begin_transaction()
        for value in batch:
            producer.produce(topic, value, partition=0, on_delivery=delivered)
        assert producer.flush(WAIT_S_MAX) == 0
        if transactions:
            end = producer.commit_transaction if transactions[number] else producer.abort_transaction
            end(WAIT_S_MAX)
    return told


def by_aiokafka(agent: Embedded, topic: str, batches: Batches, transactions: list[bool]) -> list[int]:
    """The same."""

    async def send() -> list[int]:
        told: list[int] = []
        settings = {"transactional_id": topic} if transactions else {"enable_idempotence": True}
        producer = AIOKafkaProducer(bootstrap_servers=agent.bootstrap, linger_ms=50, **settings)
        await producer.start()
        try:
            for number, batch in enumerate(batches):
                if transactions:
                    await producer.begin_transaction()
                futures = [await producer.send(topic, value, partition=0) for value in batch]
                told += [each.offset for each in await asyncio.gather(*futures)]
                if transactions:
                    await (
                        producer.commit_transaction()
                        if transactions[number]
                        else producer.abort_transaction()
                    )
        finally:
            await producer.stop()
        return told

    return asyncio.run(send())


CLIENTS = pytest.mark.parametrize("send", [by_librdkafka, by_aiokafka], ids=["librdkafka", "aiokafka"])
Send = Callable[[Embedded, str, Batches, list[bool]], list[int]]


@CLIENTS
def test_idempotent_producers_and_their_readers(agent: Embedded, topic: str, send: Send) -> None:
    batches = [[GOOD, BAD, GOOD], [BAD, BAD], [b"{}", GOOD], [BAD]]
    assert send(agent, topic, batches, []) == list(range(8)), "as if all of them were there"
    good = [(0, GOOD), (2, GOOD), (6, GOOD)]
    aside = [(1, 1), (3, 0), (4, 1), (5, 0), (7, 0)]
    for isolation in READ.values():
        assert read(agent, topic, isolation, 8) == good
        assert kept(read(agent, f"{topic}.quarantine", isolation, 5)) == aside
    assert metric(agent, "floe_rules_quarantined_total", f'topic="{topic}"') == 5
    status: Any = agent.status()
    assert [each["records"] for each in status["quarantined"] if each["topic"] == topic] == [5]


@CLIENTS
def test_what_is_set_aside_is_committed_and_aborted_with_its_transaction(
    agent: Embedded, topic: str, send: Send
) -> None:
    batches = [[GOOD, BAD], [BAD, GOOD], [BAD]]
    told = send(agent, topic, batches, [True, False, True])
    assert told == [0, 1, 3, 4, 6], "markers take an offset each"
    aside = f"{topic}.quarantine"
    assert read(agent, topic, "read_committed", 8) == [(0, GOOD)]
    committed = read(agent, aside, "read_committed", 6)
    assert [offset for offset, _ in committed] == [0, 4]
    assert [Record.FromString(value).batch_index for _, value in committed] == [1, 0]
    # What was aborted is there for who asks for it, until it is merged away: that may be between two readers.
    for found in (
        consumed(agent, aside, "read_uncommitted", 6),
        asyncio.run(consumed_by_aiokafka(agent, aside, "read_uncommitted", 6)),
    ):
        assert {0, 4} <= {offset for offset, _ in found} <= {0, 2, 4}


def test_the_quarantine_is_a_table(agent: Embedded, topic: str) -> None:
    assert by_librdkafka(agent, topic, [[GOOD, BAD], [BAD], [GOOD]], []) == [0, 1, 2, 3]
    assert by_aiokafka(agent, topic, [[BAD, BAD]], []) == [4, 5]
    catalog = RestCatalog("floe", uri=f"{agent.http}/iceberg", warehouse="floe")
    for name, count in ((topic, 2), (f"{topic}_quarantine", 4)):
        caught_up(agent, f"floe.{name}")
        found = catalog.load_table(f"floe.{name}").scan().to_arrow().to_pylist()
        assert len(found) == count
    rows = sorted((each["value"] for each in found), key=lambda row: (row["producer_id"], row["sequence"]))
    assert [(each["topic"], each["partition"], each["batch_index"]) for each in rows] == [
        (topic, 0, 1), (topic, 0, 0), (topic, 0, 0), (topic, 0, 1),
    ]  # fmt: skip
    assert {each["value"] for each in rows} == {BAD}
    assert {each["value_schema"]["message"] for each in rows} == {"nyc.Flight"}
    (violation,) = rows[0]["violations"]
    assert (violation["field"], violation["rule"]) == ("distance", "double.gte")
    shown = floe(agent, "consume", f"{topic}.quarantine")
    assert [json.loads(line)["value"]["topic"] for line in shown.out.splitlines()] == [topic] * 4
    assert len(floe(agent, "consume", topic).out.splitlines()) == 2


def test_holes_stay_holes_when_all_is_merged(agent: Embedded, topic: str) -> None:
    by_librdkafka(agent, topic, [[BAD, GOOD], [BAD, BAD], [GOOD, BAD], [BAD]], [])
    before = metric(agent, "floe_merge_rows_total")
    by_librdkafka(agent, topic, [[BAD]], [])
    until(lambda: metric(agent, "floe_merge_rows_total") >= before + 2)
    for isolation in READ.values():
        assert read(agent, topic, isolation, 8) == [(1, GOOD), (4, GOOD)]
        assert len(read(agent, f"{topic}.quarantine", isolation, 6)) == 6
    assert metric(agent, "floe_merges_failed_total") == 0
