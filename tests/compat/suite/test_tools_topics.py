"""kafka-topics."""

from __future__ import annotations

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(TOOLS)


def test_topics_live_and_die(broker: Broker, tools: Tools) -> None:
    """kafka-topics creates, lists, describes, grows and deletes a topic."""
    topic = broker.fresh()
    wanted = ("--topic", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert f"Created topic {topic}." in tools.ok("topics", "--create", *wanted)
    tools.until("topics", lambda said: topic in said.split(), "--list")
    described = tools.ok("topics", "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert "retention.ms=60000" in described
    tools.ok("topics", "--alter", "--topic", topic, "--partitions", "5")
    tools.until("topics", lambda said: "PartitionCount: 5" in said, "--describe", "--topic", topic)
    tools.ok("topics", "--delete", "--topic", topic)
    tools.until("topics", lambda said: topic not in said.split(), "--list")


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
def test_what_kafka_topics_refuses(case: str, broker: Broker, tools: Tools, saw: Saw) -> None:
    """kafka-topics says what was refused."""
    names = {"known": broker.topic("known", 2), "new": broker.fresh("new")}
    words = [each.format(**names) for each in REFUSED[case]]
    done = tools.run("topics", *words)
    assert done.status == 1
    saw("says", done.out.strip().splitlines()[-1])
