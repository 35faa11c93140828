"""Apache Kafka itself, one KRaft node, as the peer in comparisons; and Kafka's own command-line tools."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from deploy.services.ports import free_port
from deploy.services.service import Service, ServiceError
from deploy.setup.jars import ROOTS, ensure
from deploy.setup.java import java_home

VERSION = ROOTS["kafka"][0].rpartition("/")[2]  # as pinned
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
HEAP = "1g"
# A tool that lives for a second is over before an optimising compiler pays.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LONG = ("producer-perf-test", "consumer-perf-test")

TOOLS = {
    "acls": "org.apache.kafka.tools.AclCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "client-compatibility-test": "org.apache.kafka.tools.ClientCompatibilityTest",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def classpath() -> str:
    """All jars of Apache Kafka, brought when they are missing."""
    return os.pathsep.join(str(jar) for jar in ensure("kafka"))


def java_command(main: str, *arguments: str, heap: str = "256m", options: Sequence[str] = QUICK) -> list[str]:
    """A command line that runs a class of Apache Kafka's jars. `options` are the JVM's."""
    java = str(java_home() / "bin" / "java")
    return [java, f"-Xmx{heap}", *options, "-cp", classpath(), main, *arguments]


def tool(
    name: str, *arguments: str, stdin: str = "", timeout_s: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's own tools to its end, as `kafka-<name>.sh` would."""
    return subprocess.run(
        java_command(TOOLS[name], *arguments, options=QUICK if name not in LONG else ()),
        check=False,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )


class Kafka(Service):
    """`bootstrap` is host:port of its one listener."""

    name = "kafka"

    def __init__(self, directory: Path | None = None, *, settings: Sequence[str] = ()) -> None:
        super().__init__(directory)
        self.port = free_port()
        self.controller_port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._properties = self.directory / "server.properties"
        self._settings = settings

    def start(self) -> Kafka:
        """Format the folder when it is new, then start. Raises ServiceError."""
        if not self._properties.exists():
            self._properties.write_text("\n".join([*self._base(), *self._settings, ""]))
            arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._properties))
            done = subprocess.run(
                java_command("kafka.tools.StorageTool", *arguments),
                check=False,
                capture_output=True,
                text=True,
                timeout=120,
            )
            if done.returncode:
                raise ServiceError(f"Kafka's storage was not formatted: {done.stdout}{done.stderr}")
        super().start()
        return self

    def _base(self) -> list[str]:
        return [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self.controller_port}",
            f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            f"advertised.listeners=PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROLLER",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            f"log.dirs={self.directory / 'data'}",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
        ]

    def command(self) -> list[str]:
        """The broker's command line."""
        return java_command("kafka.Kafka", str(self._properties), heap=HEAP, options=())

    def ready(self) -> bool:
        """Whether the broker takes connections: it opens its port once it is registered."""
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0
