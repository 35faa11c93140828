"""Kafka Connect in distributed mode: its three compacted topics, a file source and sink; once or more."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import CONNECT
from tests.compat.suite.conftest import Saw
from tests.compat.suite.rdkafka import consumer
from tests.compat.suite.workers import ConnectWorker, RefusedWorker

pytestmark = [pytest.mark.client(CONNECT), pytest.mark.timeout(600)]

WAIT_S_MAX = 200
FILE = "org.apache.kafka.connect.file.FileStream"


def eventually(what: Callable[[], object], wanted: Callable[[], object]) -> None:
    """Wait until `what()` is `wanted()`; an assertion shows both when it does not come to that."""
    end = time.monotonic() + WAIT_S_MAX
    while (found := what()) != (goal := wanted()):
        assert time.monotonic() < end, f"{found} is not {goal}"
        time.sleep(0.1)


class Files:
    """A source that follows one file into a topic, and a sink that writes the topic to another."""

    def __init__(self, directory: Path, topic: str) -> None:
        self.read, self.written = directory / "read.txt", directory / "written.txt"
        self.read.touch()
        self.written.touch()
        self.connectors = {
            "source": {"connector.class": f"{FILE}SourceConnector", "file": str(self.read), "topic": topic},
            "sink": {"connector.class": f"{FILE}SinkConnector", "file": str(self.written), "topics": topic},
        }
        self.sent: list[str] = []

    def append(self, what: str, count: int) -> None:
        """More lines for the source."""
        lines = [f"{what} {index}" for index in range(count)]
        self.sent += lines
        with self.read.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def arrived(self) -> Counter[str]:
        """The sink's lines, each with how often it is there."""
        return Counter(self.written.read_text().splitlines())

    def all_arrive(self) -> None:
        """Wait until the sink has every line."""
        eventually(lambda: sorted(self.arrived()), lambda: sorted(self.sent))


def running(worker: ConnectWorker) -> dict[str, list[str]]:
    """connector → the states of itself and its tasks."""
    found = worker.rest("GET", "/connectors?expand=status")
    return {
        name: [row["status"]["connector"]["state"], *(task["state"] for task in row["status"]["tasks"])]
        for name, row in found.items()
    }


ALL_RUN = {"source": ["RUNNING", "RUNNING"], "sink": ["RUNNING", "RUNNING"]}


def policies(broker: Broker, topics: list[str]) -> list[str]:
    """The cleanup policies of the topics, in their order."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = admin.describe_configs(resources)
    return [answers[each].result(WAIT_S_MAX)["cleanup.policy"].value for each in resources]


def test_lines_flow_over_restarts_and_a_kill(broker: Broker, tmp_path: Path, saw: Saw) -> None:
    """A file goes through a topic into another file; tasks are restarted, the worker is killed and started
    again: offsets go on, nothing is lost."""
    files = Files(tmp_path, broker.topic())
    worker = ConnectWorker(tmp_path, broker.bootstrap, broker.fresh("connect"))
    with worker:
        for name, config in files.connectors.items():
            worker.rest("POST", "/connectors", {"name": name, "config": config})
        files.append("first", 100)
        files.all_arrive()
        saw("policies", policies(broker, worker.topics))
        eventually(lambda: running(worker), lambda: ALL_RUN)
        for name in files.connectors:
            worker.rest("POST", f"/connectors/{name}/restart?includeTasks=true")
        files.append("restarted", 100)
        files.all_arrive()

        def position() -> object:
            return worker.rest("GET", "/connectors/source/offsets")["offsets"][0]["offset"]["position"]

        eventually(position, lambda: files.read.stat().st_size)
        worker.kill()
        files.append("killed", 100)
        worker.start()
        files.append("back", 50)
        files.all_arrive()
        eventually(position, lambda: files.read.stat().st_size)
        for name in files.connectors:
            worker.rest("DELETE", f"/connectors/{name}")
        eventually(lambda: worker.rest("GET", "/connectors"), list)
    repeated = [line for line, times in files.arrived().items() if times > 1]
    assert not [line for line in repeated if line.startswith("first")], "positions were kept before the kill"


def committed(broker: Broker, topic: str) -> list[str]:
    """The values that read_committed sees now, in order."""
    with consumer(broker.bootstrap, isolation_level="read_committed", enable_partition_eof=True) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        while (message := reader.poll(WAIT_S_MAX)) is not None and message.error() is None:
            found.append(message.value().decode())
        assert message is not None, "the end of the partition did not come"
        assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
        return found


@pytest.mark.compat_only
def test_a_source_writes_exactly_once(broker: Broker, tmp_path: Path, saw: Saw) -> None:
    """With exactly.once.source.support every line is there once, in its order, though the worker is killed in
    the middle of its transactions, twice."""
    topic = broker.topic()
    files = Files(tmp_path, topic)
    source = {**files.connectors["source"], "exactly.once.support": "required"}
    worker = ConnectWorker(tmp_path, broker.bootstrap, broker.fresh("connect"), source="enabled")

    def appended(goal: int) -> bool:
        """Each look gives the source lines for one more transaction."""
        files.append(f"line {len(files.sent)}.", 5)
        return len(committed(broker, topic)) >= goal

    with worker:
        worker.rest("POST", "/connectors", {"name": "source", "config": source})
        for _ in range(2):
            goal = len(files.sent) + 20
            eventually(lambda goal=goal: appended(goal), lambda: True)
            worker.kill()
            files.append(f"line {len(files.sent)}.", 10)
            worker.start()
        eventually(lambda: len(committed(broker, topic)), lambda: len(files.sent))
        saw("policies", policies(broker, worker.topics))
        worker.rest("DELETE", "/connectors/source")
        eventually(lambda: worker.rest("GET", "/connectors"), list)
    assert committed(broker, topic) == files.sent


@pytest.mark.compat_only
def test_a_second_worker_takes_over(broker: Broker, tmp_path: Path) -> None:
    """Two workers share connectors and tasks; when one is killed the other carries on with all of them."""
    files, group = Files(tmp_path, broker.topic()), broker.fresh("connect")
    first, second = (ConnectWorker(tmp_path, broker.bootstrap, group, name) for name in ("one", "two"))
    with first, second:
        for name, config in files.connectors.items():
            first.rest("POST", "/connectors", {"name": name, "config": config})
        files.append("shared", 100)
        files.all_arrive()
        first.kill()
        files.append("alone", 100)
        files.all_arrive()
        eventually(lambda: running(second), lambda: ALL_RUN)


@pytest.mark.compat_only
def test_topics_that_are_not_compacted_are_refused(broker: Broker, tmp_path: Path) -> None:
    """A worker does not start on an offsets topic that exists with cleanup.policy=delete."""
    worker = RefusedWorker(tmp_path, broker.bootstrap, broker.fresh("connect"))
    assert worker.topics[1] == broker.topic("connect-offsets", 3, cleanup_policy="delete")
    worker.start()
    worker.kill()
    assert "required to have 'cleanup.policy=compact'" in worker.log_path.read_text()
