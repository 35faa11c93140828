"""`__latest` tables of a real agent: Kafka's client writes, pyiceberg and DuckDB read, rows are exact.

What the rows must be is worked out from what a consumer reads of the topic with a dictionary.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from google.protobuf.message import Message as Proto
from pyiceberg.catalog.rest import RestCatalog

from tests.compat.conftest import Embedded, start, stop
from tests.unit.agent.cli.conftest import inside
from tests.unit.iceberg.duck import connect
from tests.unit.iceberg.test_tables_bindings import kind

PARTITIONS = 2
SETTINGS = ("tables.enabled=true", "tables.interval_ms=100", "tables.latest_age_s=1")
QUICK = (*SETTINGS, "tables.latest_busy_percent=100")
WAIT_S_MAX = 60.0
"""Bounds what is stuck."""

QUIET = {"log_level": 0}
"""Of a client whose agent is killed."""

Place = tuple[int, bytes]
Row = tuple[int, int, bytes | None]
"""A record's offset, its timestamp in ms, and its value."""


@dataclass
class Agent:
    """An agent that is killed and started again on the same folder."""

    folder: Path
    now: Embedded

    def kill(self) -> None:
        """SIGKILL, and another one on what it left."""
        self.now.process.kill()
        self.now.process.wait(30)
        self.now = start(self.folder / "data", *QUICK)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent of its own."""
    found = Agent(tmp_path, start(tmp_path / "data", *QUICK))
    yield found
    assert stop(found.now) == 0


def create(agent: Embedded, name: str, **config: str) -> None:
    """A topic with a table of newest rows."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    made = NewTopic(name, PARTITIONS, config={"floe.table.mode": "upsert", **config})
    admin.create_topics([made])[name].result(30)


def send(producer: Producer, topic: str, rows: list[tuple[int, bytes, bytes | None]]) -> None:
    """Records by partition, key and value."""
    for partition, key, value in rows:
        producer.produce(topic, partition=partition, key=key, value=value)
        producer.poll(0)


def some(chance: random.Random, count: int) -> list[tuple[int, bytes, bytes | None]]:
    """Puts and tombstones of few keys."""
    return [
        (
            chance.randrange(PARTITIONS),
            b"key-%02d" % chance.randrange(40),
            None if chance.random() < 0.25 else b"value-%d" % chance.randrange(1 << 30),
        )
        for _ in range(count)
    ]


def in_transactions(agent: Embedded, topic: str, chance: random.Random) -> None:
    """One that commits and one that aborts, of the same keys."""
    producer = Producer(
        {**QUIET, "bootstrap.servers": agent.bootstrap, "transactional.id": f"{topic}-writer"}
    )
    producer.init_transactions(30)
    for commits in (True, False):
        producer.begin_transaction()
        send(producer, topic, some(chance, 30))
        producer.flush(120)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)


def read(agent: Embedded, topic: str) -> list[Message]:
    """Every committed record, as a consumer gets it."""
    settings = {"bootstrap.servers": agent.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    ends, found = set(), []
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    while len(ends) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            found.append(message)
        else:
            ends.add(message.partition())
    consumer.close()
    return found


def newest(messages: list[Message]) -> dict[Place, Row]:
    """What the table must have: a dictionary of the records one by one."""
    found: dict[Place, Row] = {}
    for each in messages:
        place = each.partition(), each.key()
        found.pop(place, None)
        if each.value() is not None:
            found[place] = each.offset(), each.timestamp()[1], each.value()
    return found


def caught_up(agent: Embedded, table: str) -> dict[str, Any]:
    """What /status says of the table once it has all there is."""
    end = time.monotonic() + WAIT_S_MAX
    known: dict[str, Any] | None = None
    while time.monotonic() < end:
        rows = agent.status()["tables"]
        assert isinstance(rows, list)
        known = next((each for each in rows if each["table"] == table), None)
        if known is not None and known["records_behind"] == 0:
            return known
        time.sleep(0.05)
    raise AssertionError(f"{table} does not catch up: {known}")


def by_pyiceberg(agent: Embedded, table: str) -> dict[Place, dict[str, Any]]:
    """The table's rows; no key of a partition has two."""
    catalog = RestCatalog("floe", uri=f"{agent.http}/iceberg", warehouse="floe")
    return _by_place(catalog.load_table(table).scan().to_arrow().to_pylist())


def by_duckdb(agent: Embedded, table: str) -> dict[Place, dict[str, Any]]:
    """The same by another engine."""
    connection = connect("avro", "httpfs", "iceberg")
    options = f"TYPE iceberg, ENDPOINT '{agent.http}/iceberg', AUTHORIZATION_TYPE 'none'"
    connection.execute(f"ATTACH 'floe' AS lake ({options})")
    return _by_place(connection.execute(f"SELECT * FROM lake.{table}").fetch_arrow_table().to_pylist())


def _by_place(rows: list[dict[str, Any]]) -> dict[Place, dict[str, Any]]:
    found = {(each["kafka"]["partition"], each["key"]["__raw__"]): each for each in rows}
    assert len(found) == len(rows), "a key has one row"
    return found


def told(rows: dict[Place, dict[str, Any]]) -> dict[Place, Row]:
    """Offset, timestamp and bytes of the rows."""
    return {
        place: (
            each["kafka"]["offset"],
            round(each["kafka"]["timestamp"].timestamp() * 1_000),
            each["value"]["__raw__"],
        )
        for place, each in rows.items()
    }


def assert_exact(agent: Embedded, topic: str, messages: list[Message]) -> None:
    """Both engines find what a dictionary of the topic's records has, and nothing else."""
    wanted, table = newest(messages), f"floe.{topic}__latest"
    caught_up(agent, table)
    assert told(by_pyiceberg(agent, table)) == wanted
    assert told(by_duckdb(agent, table)) == wanted


def test_updates_tombstones_and_transactions_are_exact(agent: Agent) -> None:
    chance, acknowledged = random.Random(1), []
    create(agent.now, "t")
    for _ in range(3):
        plain = Producer({**QUIET, "bootstrap.servers": agent.now.bootstrap, "enable.idempotence": True})
        send(plain, "t", some(chance, 60))
        assert plain.flush(180) == 0
        in_transactions(agent.now, "t", chance)
        caught_up(agent.now, "floe.t__latest")
        acknowledged.append(90)  # those of the transaction that aborted are nobody's
    messages = read(agent.now, "t")
    assert len(messages) == sum(acknowledged)
    assert_exact(agent.now, "t", messages)
    rows = newest(messages)
    assert 0 < len(rows) < 40 * PARTITIONS, "some keys were deleted"


def test_killed_again_and_again_it_goes_on_and_is_exact(agent: Agent) -> None:
    """Wherever a turn is: what was acknowledged is in it once, what was not as a consumer reads it."""
    chance, known = random.Random(2), set()
    create(agent.now, "t")
    for number in range(5):
        producer = Producer({**QUIET, "bootstrap.servers": agent.now.bootstrap, "message.timeout.ms": 2_000})
        for _ in range(chance.randint(1, 12)):
            send(producer, "t", some(chance, 20))
            assert producer.flush(180) == 0
            time.sleep(chance.random() / 10)  # turns begin meanwhile
        if number % 2:
            with suppress(KafkaException):
                in_transactions(agent.now, "t", chance)
        send(producer, "t", some(chance, 50))  # on their way when it dies
        agent.kill()
        del producer
        known |= {(each.partition(), each.offset()) for each in read(agent.now, "t")}
    messages = read(agent.now, "t")
    assert known <= {(each.partition(), each.offset()) for each in messages}
    assert_exact(agent.now, "t", messages)


ENVELOPE = b"""syntax = "proto3"; package p;
message Row { int32 id = 1; string name = 2; }
message M { Row before = 1; Row after = 2; string op = 3; int64 ts_ms = 4; }"""


def envelope(op: str, **rows: dict[str, Any]) -> bytes:
    """A change as Debezium tells it."""
    made: Proto = kind(ENVELOPE).message_class(op=op, ts_ms=1, **rows)
    return made.SerializeToString()


def test_envelopes_of_debezium_are_rows(agent: Agent, tmp_path: Path) -> None:
    """A snapshot, changes and deletes with their tombstones; the agent is killed between them."""
    create(agent.now, "people", **{"floe.table.envelope": "debezium"})
    (tmp_path / "m.proto").write_bytes(ENVELOPE)
    where = ("--proto", str(tmp_path / "m.proto"), "--message", "p.M", "--tombstones")
    bound = inside("topic", "bind", "people", *where, FLOE_HTTP=agent.now.http)
    assert bound.status == 0, bound.err
    ann, ben, bob = {"id": 1, "name": "Ann"}, {"id": 2, "name": "Ben"}, {"id": 2, "name": "Bob"}
    turns: list[list[tuple[int, bytes, bytes | None]]] = [
        [
            (0, b"1", envelope("r", after=ann)),
            (1, b"2", envelope("c", after=ben)),
            (0, b"3", envelope("c", after=ann)),
        ],
        [
            (1, b"2", envelope("u", before=ben, after=bob)),
            (0, b"3", envelope("d", before=ann)),
            (0, b"3", None),
        ],
        [(0, b"4", envelope("c", after={"id": 4})), (0, b"4", None), (1, b"5", envelope("t"))],
    ]
    for turn in turns:
        producer = Producer({**QUIET, "bootstrap.servers": agent.now.bootstrap})
        send(producer, "people", turn)
        assert producer.flush(180) == 0
        agent.kill()
    caught_up(agent.now, "floe.people__latest")
    for rows in (by_pyiceberg(agent.now, "floe.people__latest"), by_duckdb(agent.now, "floe.people__latest")):
        values = {place: (each["value"]["id"], each["value"]["name"]) for place, each in rows.items()}
        assert values == {(0, b"1"): (1, "Ann"), (1, b"2"): (2, "Bob")}
        assert {*rows[0, b"1"]["value"]} == {"__raw__", "__err__", "id", "name"}
        assert rows[1, b"2"]["value"]["__raw__"] == envelope("u", before=ben, after=bob)
