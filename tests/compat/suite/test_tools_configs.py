"""kafka-configs, kafka-features, kafka-metadata-quorum, kafka-cluster and kafka-broker-api-versions."""

from __future__ import annotations

import re

import pytest

from tests.compat.suite.broker import Broker
from tests.compat.suite.clients import TOOLS
from tests.compat.suite.conftest import Saw
from tests.compat.suite.tools import Tools

pytestmark = pytest.mark.client(TOOLS)


def test_configs_of_a_topic(broker: Broker, tools: Tools, saw: Saw) -> None:
    """kafka-configs sets, describes with synonyms, lists all of and deletes a topic's configs."""
    of = ("--entity-type", "topics", "--entity-name", broker.topic(retention_ms="60000"))
    changes = ("--add-config", "max.message.bytes=2000,cleanup.policy=[compact,delete]")
    tools.ok("configs", "--alter", *of, *changes, "--delete-config", "retention.ms")
    saw("described", sorted(_entries(tools.ok("configs", "--describe", *of))))
    every = tools.ok("configs", "--describe", "--all", *of)
    for name in ("retention.ms", "max.message.bytes", "segment.bytes"):
        saw(name, [row for row in _entries(every) if row.startswith(f"{name}=")])
    saw("refused", tools.refused("configs", "--alter", *of, "--add-config", "retention.ms=soon"))
    unknown = ("--entity-type", "topics", "--entity-name", broker.fresh("absent"))
    saw("unknown topic", tools.refused("configs", "--alter", *unknown, "--add-config", "retention.ms=1"))


def _entries(said: str) -> list[str]:
    """The rows about a config, each `name=value sensitive=… synonyms={…}`."""
    return [line.strip() for line in said.splitlines() if "=" in line]


def test_configs_of_the_cluster_and_of_a_broker(tools: Tools, saw: Saw) -> None:
    """kafka-configs sets a default of all brokers, which new topics follow, and describes one broker."""
    default, name = ("--entity-type", "brokers", "--entity-default"), "log.retention.ms"
    tools.ok("configs", "--alter", *default, "--add-config", f"{name}=7200000")
    try:
        described = tools.until("configs", lambda said: f"{name}=7200000" in said, "--describe", *default)
        saw("default", [row for row in _entries(described) if row.startswith(name)])
        saw("refused", tools.refused("configs", "--alter", *default, "--add-config", f"{name}=soon"))
    finally:
        tools.ok("configs", "--alter", *default, "--delete-config", name)
    tools.until("configs", lambda said: name not in said, "--describe", *default)
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = tools.ok("configs", "--describe", "--all", *one)
    assert "node.id=1 " in every
    saw("message.max.bytes", [row for row in _entries(every) if row.startswith("message.max.bytes=")])


def test_configs_of_groups(broker: Broker, tools: Tools, saw: Saw) -> None:
    """kafka-configs sets, describes, lists and deletes the configs of a group."""
    group, name = broker.fresh("group"), "consumer.session.timeout.ms"
    of = ("--entity-type", "groups", "--entity-name", group)
    tools.ok("configs", "--alter", *of, "--add-config", f"{name}=50000")
    described = tools.until("configs", lambda said: f"{name}=50000" in said, "--describe", *of)
    saw("described", [row for row in _entries(described) if row.startswith(name)])
    assert group in tools.ok("configs", "--describe", "--entity-type", "groups")
    saw("refused", tools.refused("configs", "--alter", *of, "--add-config", f"{name}=1"))
    tools.ok("configs", "--alter", *of, "--delete-config", name)
    tools.until("configs", lambda said: f"{name}=50000" not in said, "--describe", *of)


def test_quotas_of_clients(tools: Tools, saw: Saw) -> None:
    """kafka-configs sets, describes and deletes quotas of clients, users, both and addresses."""
    users = ("--entity-type", "users")
    for label, key, of in (
        ("client", "producer_byte_rate=1048576", ("--entity-type", "clients", "--entity-name", "app")),
        ("clients", "consumer_byte_rate=1048576", ("--entity-type", "clients", "--entity-default")),
        ("user", "request_percentage=12.5", (*users, "--entity-name", "alice")),
        (
            "both",
            "controller_mutation_rate=2.5",
            (
                "--entity-type",
                "users",
                "--entity-default",
                "--entity-type",
                "clients",
                "--entity-name",
                "app",
            ),
        ),
        ("address", "connection_creation_rate=1000", ("--entity-type", "ips", "--entity-name", "10.0.0.1")),
    ):
        saw(f"{label} set", tools.ok("configs", "--alter", *of, "--add-config", key).strip())
        try:
            described = tools.until("configs", lambda said, key=key: key in said, "--describe", *of)
            saw(f"{label} described", described.strip())
        finally:
            tools.ok("configs", "--alter", *of, "--delete-config", key.partition("=")[0])
    of = ("--entity-type", "clients", "--entity-name", "app")
    saw("negative", tools.refused("configs", "--alter", *of, "--add-config", "producer_byte_rate=-1"))
    saw("fraction", tools.refused("configs", "--alter", *of, "--add-config", "producer_byte_rate=1.5"))


def test_features(tools: Tools, saw: Saw) -> None:
    """kafka-features describes features and refuses levels that nobody knows."""
    described = tools.ok("features", "describe")
    (group,) = (row for row in described.splitlines() if "group.version" in row)
    saw("group.version", re.sub(r"\s+", " ", group.partition("Epoch")[0]).strip())
    tools.ok("features", "downgrade", "--feature", "group.version=0", "--dry-run")
    assert "FinalizedVersionLevel: 1" in group
    told = tools.refused("features", "upgrade", "--feature", "group.version=9")
    saw("unknown level", told)


def test_the_quorum(tools: Tools) -> None:
    """kafka-metadata-quorum names the leader and the voters."""
    status = tools.ok("metadata-quorum", "describe", "--status")
    for name in ("LeaderId:", "HighWatermark:", "CurrentVoters:"):
        assert name in status
    assert "Leader" in tools.ok("metadata-quorum", "describe", "--replication")


def test_the_cluster(broker: Broker, tools: Tools) -> None:
    """kafka-cluster tells its id, kafka-broker-api-versions what each broker can."""
    assert re.search(r"Cluster ID: \S", tools.ok("cluster", "cluster-id"))
    said = tools.ok("broker-api-versions")
    for address in broker.bootstrap.split(","):
        assert re.search(rf"^{re.escape(address)} \(id: \d+ ", said, re.MULTILINE)
    assert "ConsumerGroupHeartbeat(68): 0 to 1 [usable: 1]" in said
