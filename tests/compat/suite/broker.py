"""What a test of the suite knows of the cluster that it talks to: not whether it is Floe or Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from agent.net.wire.generated import incremental_alter_configs as iac
from agent.version import VERSION
from deploy.services import Etcd
from deploy.services.kafka import Kafka
from deploy.services.s3 import S3Service
from tests.compat.cluster import Cluster
from tests.compat.raw import call

WAIT_S_MAX = 60
# When the suite's records are from, in ms: an hour ago, so that retention lets them be.
BASE_TIME = (int(time.time()) - 3600) * 1000
NAME_CHARS_MAX = 120
SET, BROKER = 0, 4  # operations and types of resources, by Kafka's numbers
# Tests of groups count members, not seconds: both brokers let the first member in at once
# and let members of the new protocol ask often.
GROUP_SETTINGS = (
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "1000"),
    ("group.consumer.min.heartbeat.interval.ms", "500"),
    ("group.consumer.heartbeat.interval.ms", "500"),
)
KAFKA_SETTINGS = (
    *("=".join(setting) for setting in GROUP_SETTINGS),
    "offsets.topic.num.partitions=5",
    "share.coordinator.state.topic.replication.factor=1",
    "share.coordinator.state.topic.min.isr=1",
)


class Broker(ABC):
    """A running cluster. Names begin with the test that asks for them, so answers of two brokers compare."""

    name: str
    title: str
    version: str

    def __init__(self) -> None:
        self.scope = "suite"

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """`host:port` of every broker, with commas."""

    @abstractmethod
    def start(self) -> None:
        """Start every process and wait until they serve."""

    @abstractmethod
    def stop(self) -> None:
        """End every process."""

    @abstractmethod
    def restart(self) -> None:
        """Stop and start every process, one after the other, on the same data and ports."""

    @contextmanager
    def alone(self) -> Iterator[str]:
        """host:port of a cluster of this kind that has one broker."""
        yield self.bootstrap

    def fresh(self, what: str = "topic") -> str:
        """A legal name for a topic or group that no other test uses; the same in every run."""
        return f"{re.sub(r'[^a-zA-Z0-9._-]+', '-', self.scope)[:NAME_CHARS_MAX].strip('-')}-{what}"

    def topic(self, what: str = "topic", partitions: int = 1, **configs: str) -> str:
        """A new topic, made and led; configs with underscores for dots."""
        name = self.fresh(what)
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(WAIT_S_MAX)
        end = time.monotonic() + WAIT_S_MAX
        while not self.led(admin, name, partitions):
            assert time.monotonic() < end, f"{name} has no leaders"
            time.sleep(0.05)
        return name

    @staticmethod
    def led(admin: AdminClient, name: str, partitions: int) -> bool:
        """Whether the topic has so many partitions, each with a leader that answers for it.

        Kafka shows leaders a moment before they are: a new producer's first batch may then be refused and its
        second taken, and the first stays out of order until it expires.
        """
        found = admin.list_topics(name, WAIT_S_MAX).topics[name]
        if len(found.partitions) != partitions or any(part.leader < 0 for part in found.partitions.values()):
            return False
        wanted = {TopicPartition(name, index): OffsetSpec.latest() for index in range(partitions)}
        answers = admin.list_offsets(wanted).values()
        return all(answer.exception(WAIT_S_MAX) is None for answer in answers)


class ApacheKafka(Broker):
    """One KRaft node."""

    name = "kafka"
    title = "Apache Kafka"
    version = "4.3.1"

    def __init__(self, directory: Path, settings: Sequence[str] = KAFKA_SETTINGS) -> None:
        super().__init__()
        self._node = Kafka(directory, settings=settings)

    @property
    def bootstrap(self) -> str:
        return self._node.bootstrap

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.stop()

    def restart(self) -> None:
        self._node.stop()
        self._node.start()


class Floe(Broker):
    """Two agents on etcd and an S3 server."""

    name = "floe"
    title = "Floe"
    version = VERSION

    def __init__(self, etcd: Etcd, store: S3Service, directory: Path) -> None:
        super().__init__()
        self._cluster = Cluster(etcd, store, directory=directory)
        self._services = etcd, store

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def start(self) -> None:
        self._cluster.__enter__()
        set_up_groups(self.bootstrap)

    @contextmanager
    def alone(self) -> Iterator[str]:
        with Cluster(*self._services, agents=1) as cluster:
            set_up_groups(cluster.bootstrap)
            yield cluster.bootstrap

    def stop(self) -> None:
        self._cluster.__exit__(None, None, None)

    def restart(self) -> None:
        for agent in self._cluster.agents:
            agent.stop()
            agent.start()


def set_up_groups(bootstrap: str) -> None:
    """Floe's defaults of all brokers that make tests of groups quick."""
    changes = [iac.AlterableConfig(name, SET, value) for name, value in GROUP_SETTINGS]
    every_broker = iac.AlterConfigsResource(BROKER, "", changes)
    request = iac.IncrementalAlterConfigsRequest([every_broker])
    answer = asyncio.run(call(bootstrap, "IncrementalAlterConfigs", request, 1))
    assert answer.responses[0].error_code == 0, answer
