"""Takes the place of `test/integration/fixtures.py` of kafka-python's own tests: a broker that runs already.

deploy/setup/kafka_python_tests.py copies it there; it is imported by their conftest, never by ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient
from kafka.admin import NewPartitions
from kafka.errors import TopicAlreadyExistsError
from test.testutil import random_string

PARTITIONS = 4
# Made by its first record in their tests, which then name its second partition: their own brokers are started
# with num.partitions=4. With one partition their producer asks for ever for one that is not there.
SEVERAL_PARTITIONS = "transactional_test_topic"


_create_partitions = KafkaAdminClient.create_partitions


def create_partitions(
    self: KafkaAdminClient, topic_partitions: Mapping[str, Any], *arguments: Any, **options: Any
) -> Any:
    """CreatePartitions with replicas on the first broker there is: their tests name the id of their own."""
    first = min(node["broker_id"] for node in self.describe_cluster()["brokers"])
    placed = {
        topic: NewPartitions(wanted.total_count, [[first] for _ in wanted.new_assignments])
        for topic, wanted in topic_partitions.items()
    }
    return _create_partitions(self, placed, *arguments, **options)


KafkaAdminClient.create_partitions = create_partitions


class KafkaFixture:
    """The broker at $KAFKA_URI."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self.zookeeper = None

    @classmethod
    def instance(cls, broker_id: int, host: str, port: int, external: bool) -> KafkaFixture:
        """What their conftest asks for."""
        broker = cls(host, port)
        with contextlib.suppress(TopicAlreadyExistsError):
            create_topics(broker, [SEVERAL_PARTITIONS])
        return broker

    def bootstrap_server(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"


class ZookeeperFixture:
    """There is none; their conftest imports the name."""


def create_topics(
    broker: KafkaFixture,
    topic_names: Sequence[str],
    num_partitions: int = PARTITIONS,
    replication_factor: int = 1,
) -> None:
    """Make topics and wait for their leaders."""
    with KafkaAdminClient(bootstrap_servers=broker.bootstrap_server()) as admin:
        wanted = {"num_partitions": num_partitions, "replication_factor": replication_factor}
        admin.create_topics({name: dict(wanted) for name in topic_names}, wait_for_metadata=True)


def client_params(broker: KafkaFixture, client_id: str = "client", **overrides: Any) -> dict[str, Any]:
    """Parameters of a client of that broker."""
    base = {
        "client_id": f"{client_id}_{random_string(4)}",
        "bootstrap_servers": broker.bootstrap_server(),
        "security_protocol": "PLAINTEXT",
        # Who subscribes while the first metadata is under way never asks for the topic's before these are old
        # (known to ClusterMetadata.set_topics): half a minute of nothing fails a test, with any broker.
        "metadata_max_age_ms": 5_000,
    }
    return {**base, **overrides}
