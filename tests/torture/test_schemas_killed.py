"""Agents die while schemas are registered, and while a table is committed whose topic gets new versions.

What is registered has one id and one version through any agent; a row is there once, by its own version.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from objectstore.varint import varint
from schema.framing import prefix
from tests.torture.cluster import Cluster
from tests.torture.crashing_agent import Armed, CrashingAgent
from tests.torture.run import create_topic, open_catalog
from tests.torture.schemas import WAIT_S_MAX, asked, bind_to, die, until_answered
from tests.torture.workload import BASE

pytestmark = [pytest.mark.services, pytest.mark.timeout(300)]

REGISTERED_STEPS = ("append/send", "append/answered")
TABLE_STEPS = ("table/plan", "table/write-file", "table/store-metadata", "table/commit-table")
RATE = 200


@pytest.fixture(scope="module")
def armed(tmp_path_factory: pytest.TempPathFactory) -> Armed:
    return Armed(tmp_path_factory.mktemp("schemas") / "armed")


@pytest.fixture(scope="module")
def cluster(armed: Armed) -> Iterator[Cluster]:
    class Agent(CrashingAgent):
        """Knows where the armed step is written."""

    Agent.armed = armed.path
    with Cluster(2, {"replica": {"heartbeat_ms": 300}}, agent=Agent) as made:
        yield made


class Registrar(threading.Thread):
    """Registers one subject after the other at its agent, as another one does at the same time."""

    def __init__(self, cluster: Cluster, agent: int) -> None:
        super().__init__(daemon=True)
        self.told: dict[str, tuple[int, int]] = {}
        """By subject, version and id."""
        self.failed: BaseException | None = None
        self.over = threading.Event()
        self._cluster, self._agent = cluster, agent

    def run(self) -> None:
        try:
            number = 0
            while not self.over.is_set():
                subject = f"s{number}"
                body = {"schema": schema(number)}
                path = f"/subjects/{subject}/versions"
                told = until_answered(partial(asked, self._cluster, self._agent, path, body))
                self.told[subject] = (told["version"], told["id"])
                number += 1
        except BaseException as error:
            self.failed = error


def schema(number: int) -> str:
    """A schema of AVRO that no other number has."""
    fields = [{"name": f"f{number}", "type": "long", "default": 0}]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def test_what_is_registered_at_two_agents_is_there_once_whoever_dies(cluster: Cluster, armed: Armed) -> None:
    registrars = [Registrar(cluster, agent) for agent in range(2)]
    for each in registrars:
        each.start()
    for turn, step in enumerate(REGISTERED_STEPS * 2):
        die(cluster, armed, step, 3 + turn)
    for each in registrars:
        each.over.set()
    for each in registrars:
        each.join(WAIT_S_MAX)
        assert each.failed is None, each.failed
    first, second = (each.told for each in registrars)
    assert min(len(first), len(second)) > 20
    every = first | second
    assert all(first[one] == second[one] for one in first.keys() & second.keys())
    assert len({schema_id for _, schema_id in every.values()}) == len(every)
    for agent in range(2):
        for subject, (version, schema_id) in every.items():
            assert asked(cluster, agent, f"/subjects/{subject}/versions") == [1] == [version]
            found = asked(cluster, agent, f"/subjects/{subject}", {"schema": schema(int(subject[1:]))})
            assert (found["version"], found["id"]) == (version, schema_id)


class Versions(threading.Thread):
    """Writes records of the newest version of a topic's subject. `version` by number, of what was taken."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        super().__init__(daemon=True)
        self.taken: dict[int, int] = {}
        self.refused: list[str] = []
        self.over = threading.Event()
        self.ids: list[int] = []
        self._topic = topic
        own = {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 10}
        self._producer = Producer({**BASE, **own})

    def run(self) -> None:
        number = 0
        while not self.over.is_set():
            version = len(self.ids)
            value = prefix(self.ids[-1], (0,)) + b"\x08" + varint(number)
            value += varint((version + 1) << 3) + varint(number + version)

            def delivered(error: Any, _message: Any, number: int = number, version: int = version) -> None:
                if error is None:
                    self.taken[number] = version
                else:
                    self.refused.append(error.str())

            self._producer.produce(self._topic, value, on_delivery=delivered)
            number += 1
            self._producer.poll(1 / RATE)
        assert self._producer.flush(WAIT_S_MAX) == 0


@pytest.mark.thorough
def test_rows_show_their_own_version_whoever_dies_while_one_is_added(cluster: Cluster, armed: Armed) -> None:
    topic = "moving"
    create_topic(cluster.bootstrap, topic, 1)
    writer = Versions(cluster, topic)

    def add() -> None:
        """A version with one field more."""
        version = len(writer.ids) + 1
        fields = "".join(f" int64 b{each} = {each + 1};" for each in range(1, version + 1))
        text = f'syntax = "proto3"; message M {{ int64 a = 1;{fields} }}'
        body = {"schema": text, "schemaType": "PROTOBUF"}
        told = until_answered(lambda: asked(cluster, version % 2, f"/subjects/{topic}/versions", body))
        writer.ids.append(told["id"])

    add()
    bind_to(cluster, topic, {"subject": topic})
    writer.start()
    for step in TABLE_STEPS:
        add()
        dying = threading.Thread(target=die, args=(cluster, armed, step, 1), daemon=True)
        dying.start()
        add()
        dying.join(WAIT_S_MAX)
        assert not dying.is_alive(), step
    writer.over.set()
    writer.join(2 * WAIT_S_MAX)
    assert writer.refused == []
    rows = rows_of(cluster, topic, len(writer.taken))
    assert len(rows) == len(writer.taken) == len({row["a"] for row in rows})
    for row in rows:
        version = writer.taken[row["a"]]
        shown = {name: value for name, value in row.items() if name.startswith("b") and value}
        assert shown == {f"b{version}": row["a"] + version}, row
    assert len(set(writer.taken.values())) > len(TABLE_STEPS)


def rows_of(cluster: Cluster, topic: str, count: int) -> list[dict[str, Any]]:
    """The values of the table's rows, once there are so many."""
    catalog = open_catalog(cluster.members[0].agent.http, cluster.s3_properties)
    until = time.monotonic() + WAIT_S_MAX
    while True:
        rows = catalog.load_table(f"floe.{topic}").scan().to_arrow().to_pylist()
        if len(rows) >= count:
            return [each["value"] for each in rows]
        assert time.monotonic() < until, f"{len(rows)} rows of {count}"
        time.sleep(0.5)
