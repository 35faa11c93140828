"""What Kafka's administrative tools show of Floe alone; what both brokers must do is in suite/.

One test starts its tool as people do, with a JVM of its own; the others share one.
"""

from __future__ import annotations

import subprocess

import pytest

from deploy.services.kafka import tool as started
from tests.compat.cluster import Cluster
from tests.equipment.kafka_tools import tool

pytestmark = pytest.mark.services


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
    said = fails(cluster, "features", "upgrade", "--feature", "floe.level=3")
    assert "does not know it" in said


def test_agents_beside_the_controller_observe(cluster: Cluster) -> None:
    words = ("--bootstrap-server", cluster.bootstrap, "describe", "--replication")
    done = started("metadata-quorum", *words)
    assert done.returncode == 0, done
    assert "Observer" in done.stdout, "the agent that is not the controller"


def test_configs_set_at_one_broker_count_for_all(cluster: Cluster) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    all_of_them = ("--entity-type", "brokers", "--entity-default")
    ok(cluster, "configs", "--alter", *one, "--add-config", "log.cleaner.backoff.ms=15001")
    try:
        assert "log.cleaner.backoff.ms=15001" in ok(cluster, "configs", "--describe", *all_of_them)
    finally:
        ok(cluster, "configs", "--alter", *one, "--delete-config", "log.cleaner.backoff.ms")
    assert "log.cleaner.backoff.ms" not in ok(cluster, "configs", "--describe", *all_of_them)
