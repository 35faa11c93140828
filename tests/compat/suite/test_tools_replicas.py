"""kafka-log-dirs, kafka-reassign-partitions and kafka-leader-election, where there is one replica."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java_clients import Java, numbered
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(TOOLS)


def test_log_dirs(broker: Broker, tools: Tools, java: Java) -> None:
    """kafka-log-dirs counts every partition and its bytes once."""
    topic = broker.topic(partitions=4)
    java.produce(topic, numbered(40, 4))
    report = json.loads(tools.ok("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    folders = [folder for each in report["brokers"] for folder in each["logDirs"]]
    assert {folder["error"] for folder in folders} == {None}
    parts = [part for folder in folders for part in folder["partitions"]]
    assert sorted(part["partition"] for part in parts) == [f"{topic}-{index}" for index in range(4)]
    assert all(part["size"] > 10 for part in parts)


def test_reassignments(broker: Broker, tools: Tools, tmp_path: Path, saw: Saw) -> None:
    """kafka-reassign-partitions lists none, moves a partition to where it is and refuses unknown brokers."""
    topic = broker.topic()

    def plan(node: int) -> tuple[str, str]:
        file, wanted = tmp_path / f"{node}.json", {"topic": topic, "partition": 0, "replicas": [node]}
        file.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        return ("--reassignment-json-file", str(file))

    here = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(topic).topics[topic]
    leader = here.partitions[0].leader
    saw("list", tools.ok("reassign-partitions", "--list").strip())
    said = tools.ok("reassign-partitions", "--execute", *plan(leader))
    saw("execute", said.strip().splitlines()[-1])
    tools.until("reassign-partitions", lambda said: "No partition reassignments" in said, "--list")
    saw("verify", _about(tools.ok("reassign-partitions", "--verify", *plan(leader)), topic))
    unknown = tools.run("reassign-partitions", "--execute", *plan(4711))
    saw("unknown broker", (unknown.status, (unknown.out + unknown.err).strip().splitlines()[0]))


def _about(said: str, topic: str) -> list[str]:
    return [line for line in said.splitlines() if topic in line]


def test_elections(broker: Broker, tools: Tools, saw: Saw) -> None:
    """kafka-leader-election finds that the preferred replica leads already."""
    topic = broker.topic(partitions=2)
    one = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    saw("one", tools.ok("leader-election", *one).strip())
    tools.ok("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    absent = ("--election-type", "preferred", "--topic", broker.fresh("absent"), "--partition", "0")
    saw("absent", tools.run("leader-election", *absent).status)
