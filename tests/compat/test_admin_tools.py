"""Kafka's own administrative tools (Java, Apache Kafka 4.3.1) against a cluster: etcd, MinIO, two agents."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from agent.wire.generated import metadata as m
from deploy.services.kafka import tool
from tests.compat.cluster import Cluster
from tests.compat.raw import call

pytestmark = pytest.mark.services

_numbers = itertools.count(1)


def run(cluster: Cluster, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """One of Kafka's tools; its exit status is the caller's to judge."""
    return tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)


def ok(cluster: Cluster, name: str, *arguments: str) -> str:
    """What the tool prints; it must succeed."""
    done = run(cluster, name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fails(cluster: Cluster, name: str, *arguments: str) -> str:
    """What the tool prints and complains of; it must not succeed silently."""
    done = run(cluster, name, *arguments)
    said = done.stdout + done.stderr
    assert done.returncode != 0 or "Error" in said or "Exception" in said, said
    return said


def create(cluster: Cluster, partitions: int = 1) -> str:
    """A fresh topic, made by kafka-topics."""
    topic = f"admin-{next(_numbers)}"
    ok(cluster, "topics", "--create", "--topic", topic, "--partitions", str(partitions))
    return topic


def configs(cluster: Cluster, *arguments: str) -> str:
    """kafka-configs, which must succeed."""
    return ok(cluster, "configs", *arguments)


async def node_ids(cluster: Cluster) -> list[int]:
    answer = await call(cluster.bootstrap, "Metadata", m.MetadataRequest([], False), 12)
    return [broker.node_id for broker in answer.brokers]


def test_topics_from_creation_to_deletion(cluster: Cluster) -> None:
    topic = create(cluster, 2)
    assert topic in ok(cluster, "topics", "--list").split()
    described = ok(cluster, "topics", "--describe", "--topic", topic)
    assert "PartitionCount: 2" in described
    assert "ReplicationFactor" in described
    ok(cluster, "topics", "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in ok(cluster, "topics", "--describe", "--topic", topic)
    assert ok(cluster, "topics", "--describe", "--unavailable-partitions").strip() == ""
    ok(cluster, "topics", "--delete", "--topic", topic)
    assert topic not in ok(cluster, "topics", "--list").split()


def test_configs_of_a_topic(cluster: Cluster) -> None:
    topic = create(cluster)
    of = ("--entity-type", "topics", "--entity-name", topic)
    configs(cluster, "--alter", *of, "--add-config", "retention.ms=5,cleanup.policy=[compact,delete]")
    described = configs(cluster, "--describe", *of)
    assert "retention.ms=5" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=5" in described
    everything = configs(cluster, "--describe", "--all", *of)
    assert "max.message.bytes=1048588" in everything
    assert "DEFAULT_CONFIG:message.max.bytes=1048588" in everything
    configs(cluster, "--alter", *of, "--delete-config", "retention.ms")
    assert "retention.ms" not in configs(cluster, "--describe", *of)
    assert "InvalidConfigurationException" in fails(
        cluster, "configs", "--alter", *of, "--add-config", "retention.ms=soon"
    )


async def test_configs_of_the_cluster_and_of_one_broker(cluster: Cluster) -> None:
    default = ("--entity-type", "brokers", "--entity-default")
    configs(cluster, "--alter", *default, "--add-config", "num.partitions=3,log.retention.hours=2")
    try:
        described = configs(cluster, "--describe", *default)
        assert "num.partitions=3" in described
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:num.partitions=3" in described
        topic = f"admin-{next(_numbers)}"
        ok(cluster, "topics", "--create", "--topic", topic)
        assert "PartitionCount: 3" in ok(cluster, "topics", "--describe", "--topic", topic)
        of = ("--entity-type", "topics", "--entity-name", topic)
        assert "retention.ms=7200000" in configs(cluster, "--describe", "--all", *of)
        node = str((await node_ids(cluster))[0])
        one = ("--entity-type", "brokers", "--entity-name", node)
        everything = configs(cluster, "--describe", "--all", *one)
        assert f"node.id={node}" in everything
        assert "STATIC_BROKER_CONFIG:" in everything
        assert "empty broker name" in fails(
            cluster, "configs", "--alter", *one, "--add-config", "message.max.bytes=9"
        )
    finally:
        configs(cluster, "--alter", *default, "--delete-config", "num.partitions,log.retention.hours")
    assert "num.partitions" not in configs(cluster, "--describe", *default)


def test_configs_of_groups(cluster: Cluster) -> None:
    of = ("--entity-type", "groups", "--entity-name", "admin-group")
    configs(cluster, "--alter", *of, "--add-config", "consumer.session.timeout.ms=50000")
    described = configs(cluster, "--describe", *of)
    assert "consumer.session.timeout.ms=50000" in described
    assert "group.consumer.session.timeout.ms=45000" in described, "the synonym that it follows otherwise"
    assert "admin-group" in configs(cluster, "--describe", "--entity-type", "groups"), "ListConfigResources"
    said = fails(cluster, "configs", "--alter", *of, "--add-config", "consumer.session.timeout.ms=1")
    assert "group.consumer.min.session.timeout.ms" in said
    configs(cluster, "--alter", *of, "--delete-config", "consumer.session.timeout.ms")


def test_features_go_down_and_up(cluster: Cluster) -> None:
    described = ok(cluster, "features", "describe")
    assert "group.version" in described
    assert "floe.level" in described
    ok(cluster, "features", "downgrade", "--feature", "group.version=0", "--dry-run")
    finalized = next(
        row for row in ok(cluster, "features", "describe").splitlines() if "group.version" in row
    )
    assert "FinalizedVersionLevel: 1" in finalized, "a dry run changes nothing"
    ok(cluster, "features", "downgrade", "--feature", "group.version=0")
    try:
        row = next(r for r in ok(cluster, "features", "describe").splitlines() if "group.version" in r)
        assert "FinalizedVersionLevel: 0" in row
    finally:
        ok(cluster, "features", "upgrade", "--feature", "group.version=1")
    said = fails(cluster, "features", "upgrade", "--feature", "floe.level=2")
    assert "does not know it" in said


def test_the_log_stands_where_the_quorum_is(cluster: Cluster) -> None:
    status = ok(cluster, "metadata-quorum", "describe", "--status")
    assert "LeaderId:" in status
    assert "HighWatermark:" in status
    assert "CurrentVoters:" in status
    replicas = ok(cluster, "metadata-quorum", "describe", "--replication")
    assert "Leader" in replicas
    assert "Observer" in replicas, "the agent that is not the controller"


async def test_reassignments_are_done_when_they_begin(cluster: Cluster, tmp_path: Path) -> None:
    topic = create(cluster)
    node = (await node_ids(cluster))[0]
    plan = tmp_path / "plan.json"
    wanted = {"topic": topic, "partition": 0, "replicas": [node]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    listed = ok(cluster, "reassign-partitions", "--list")
    assert "No partition reassignments found" in listed
    file = ("--reassignment-json-file", str(plan))
    assert "Successfully started" in ok(cluster, "reassign-partitions", "--execute", *file)
    verified = run(cluster, "reassign-partitions", "--verify", *file)
    assert topic in verified.stdout


def test_elections_are_not_needed(cluster: Cluster) -> None:
    topic = create(cluster, 2)
    one = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in ok(cluster, "leader-election", *one)
    ok(cluster, "leader-election", "--election-type", "preferred", "--all-topic-partitions")


def test_offsets_and_sizes(cluster: Cluster) -> None:
    topic = create(cluster, 3)
    for time in ("-1", "-2", "-3", "-4", "-5", "latest", "earliest"):
        said = ok(cluster, "get-offsets", "--topic", topic, "--time", time)
        rows = sorted(line for line in said.splitlines() if line.startswith(topic))
        if time in ("-1", "-2", "-4", "latest", "earliest"):
            assert rows == [f"{topic}:{index}:0" for index in range(3)]
    described = ok(cluster, "log-dirs", "--describe", "--topic-list", topic)
    found = json.loads(described[described.index("{") :].splitlines()[0])
    parts = [p for broker in found["brokers"] for d in broker["logDirs"] for p in d["partitions"]]
    assert sorted(part["partition"] for part in parts) == [f"{topic}-{index}" for index in range(3)]


def test_librdkafkas_admin_describes_the_cluster(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    described = admin.describe_cluster(include_authorized_operations=True).result(20)
    assert len(described.nodes) == len(cluster.agents)
    assert described.controller.id in {node.id for node in described.nodes}
    assert described.authorized_operations
