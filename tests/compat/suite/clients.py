"""The clients of the suite, by the names that docs/clients.md gives them, each with the version that runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from importlib.metadata import version

import confluent_kafka

from deploy.setup.jars import pinned
from deploy.setup.kcat import kcat_command
from tests.compat.suite import node


def _jar(jars: str, name: str) -> str:
    (found,) = {jar.version for jar in pinned(jars) if jar.name == name}
    return found


def _java() -> str:
    return _jar("kafka", "kafka-clients")


def _kcat() -> str:
    shown = subprocess.run([*kcat_command(), "-V"], capture_output=True, text=True, check=True).stdout
    kcat, library = re.findall(r"Version (\S+)|librdkafka (\S+)", shown)
    return f"{kcat[0]} (librdkafka {library[1]})"


LIBRDKAFKA, AIOKAFKA, KAFKA_PYTHON = "librdkafka", "aiokafka", "kafka-python"
JAVA, TOOLS, OWN_TESTS = "Java kafka-clients", "Apache Kafka's tools", "kafka-python's own tests"

KAFKAJS, PLATFORMATIC, KCAT = "KafkaJS", "@platformatic/kafka", "kcat"
STREAMS, CONNECT, UIS = "Kafka Streams", "Kafka Connect", "Calls of Kafka UIs"

VERSIONS: dict[str, Callable[[], str]] = {
    LIBRDKAFKA: lambda: f"{confluent_kafka.libversion()[0]} (confluent-kafka {version('confluent-kafka')})",
    AIOKAFKA: lambda: version("aiokafka"),
    KAFKA_PYTHON: lambda: version("kafka-python"),
    OWN_TESTS: lambda: version("kafka-python"),
    JAVA: _java,
    TOOLS: _java,
    KAFKAJS: lambda: node.installed("kafkajs"),
    PLATFORMATIC: lambda: node.installed("@platformatic/kafka"),
    KCAT: _kcat,
    STREAMS: lambda: _jar("streams", "kafka-streams"),
    CONNECT: lambda: _jar("connect", "connect-runtime"),
    UIS: _java,
}
