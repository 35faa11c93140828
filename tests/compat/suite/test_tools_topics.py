"""kafka-topics and kafka-configs."""

from __future__ import annotations

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.java import Jvm

pytestmark = pytest.mark.client(TOOLS)


def test_topics_live_and_die(broker: Broker, jvm: Jvm, saw: Saw) -> None:
    """kafka-topics creates, lists, describes, grows and deletes a topic."""
    server, topic = ("--bootstrap-server", broker.bootstrap), broker.fresh()
    wanted = ("--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    made = jvm.tool("topics", *server, "--create", *wanted)
    assert made.status == 0, made
    assert f"Created topic {topic}." in made.out
    assert topic in jvm.tool("topics", *server, "--list").out.split()
    described = jvm.tool("topics", *server, "--describe", "--topic", topic).out
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    assert jvm.tool("topics", *server, "--alter", "--topic", topic, "--partitions", "5").status == 0
    assert "PartitionCount: 5" in jvm.tool("topics", *server, "--describe", "--topic", topic).out
    assert jvm.tool("topics", *server, "--delete", "--topic", topic).status == 0
    assert topic not in jvm.tool("topics", *server, "--list").out.split()


REFUSED = {
    "name": ("--create", "--topic", "a/b"),
    "exists": ("--create", "--topic", "{known}"),
    "config": ("--create", "--topic", "{new}", "--config", "no.such.config=1"),
    "no partitions": ("--create", "--topic", "{new}", "--partitions", "0"),
    "fewer partitions": ("--alter", "--topic", "{known}", "--partitions", "1"),
    "delete unknown": ("--delete", "--topic", "not-there"),
    "describe unknown": ("--describe", "--topic", "not-there"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_kafka_topics_refuses(case: str, broker: Broker, jvm: Jvm, saw: Saw) -> None:
    """kafka-topics says what was refused."""
    names = {"known": broker.topic("known", 2), "new": broker.fresh("new")}
    words = [each.format(**names) for each in REFUSED[case]]
    done = jvm.tool("topics", "--bootstrap-server", broker.bootstrap, *words)
    assert done.status == 1
    saw("says", done.out.strip().splitlines()[-1])
