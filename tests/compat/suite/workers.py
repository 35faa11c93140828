"""Kafka Streams' word count and a Kafka Connect worker, each a JVM of its own that can be killed."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.services.ports import free_port
from deploy.services.service import Service, answers
from deploy.setup.jars import ensure
from deploy.setup.java import java_home

HEAP = "256m"
REST_S_MAX = 60


def _command(jars: str, main: str, *arguments: str) -> list[str]:
    classpath = os.pathsep.join(str(jar) for jar in ensure(jars))
    options = [f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
    return [str(java_home() / "bin" / "java"), *options, "-cp", classpath, main, *arguments]


def _write(path: Path, properties: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return path


class WordCount(Service):
    """Kafka's own example: counts the words of streams-plaintext-input into streams-wordcount-output, by way
    of a repartition topic and a store with a changelog. `stop()` closes it in order."""

    name = "wordcount"
    input, output = "streams-plaintext-input", "streams-wordcount-output"
    repartition, changelog = (
        f"-KSTREAM-AGGREGATE-STATE-STORE-0000000003-{kind}" for kind in ("repartition", "changelog")
    )

    def __init__(
        self, directory: Path, bootstrap: str, application: str, guarantee: str = "at_least_once"
    ) -> None:
        super().__init__(directory)
        self.store = directory / "store"
        self.changelog = f"{application}{WordCount.changelog}"
        self.repartition = f"{application}{WordCount.repartition}"
        properties = {
            "application.id": application,
            "bootstrap.servers": bootstrap,
            "state.dir": self.store,
            "processing.guarantee": guarantee,
            "transaction.timeout.ms": 10_000,
            "commit.interval.ms": 200,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            # Small enough for compaction to reach what is behind the active segment within the test.
            "topic.segment.ms": 1000,
            "topic.min.cleanable.dirty.ratio": 0.01,
            "topic.max.compaction.lag.ms": 2000,
        }
        self._properties = _write(directory / "wordcount.properties", properties)

    def command(self) -> list[str]:
        main = "org.apache.kafka.streams.examples.wordcount.WordCountDemo"
        return _command("streams", main, str(self._properties))

    def ready(self) -> bool:
        """It listens nowhere: its output tells."""
        return self.running


class ConnectWorker(Service):
    """A worker in distributed mode with its REST server at `url`. Workers of one `group` share connectors."""

    ready_seconds_max = 240  # it scans its jars first, and joins its group

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        group: str,
        name: str = "connect",
        source: str = "disabled",
        own: Mapping[str, object] | None = None,
    ) -> None:
        """`source`: exactly.once.source.support. `own`: other properties, such as a login."""
        self.name = name
        super().__init__(directory)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.topics = [f"{group}-{kind}" for kind in ("configs", "offsets", "status")]
        properties: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "offset.flush.interval.ms": 500,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            "consumer.session.timeout.ms": 6000,
            "consumer.heartbeat.interval.ms": 500,
            "scheduled.rebalance.max.delay.ms": 0,
            "listeners": self.url,
            "plugin.discovery": "only_scan",
            "exactly.once.source.support": source,
        }
        for kind, topic in zip(("config", "offset", "status"), self.topics, strict=True):
            properties |= {f"{kind}.storage.topic": topic, f"{kind}.storage.replication.factor": 1}
        properties |= {"offset.storage.partitions": 3, "status.storage.partitions": 2}
        properties |= own or {}
        self._properties = _write(directory / f"{name}.properties", properties)

    def command(self) -> list[str]:
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return _command("connect", main, str(self._properties))

    def ready(self) -> bool:
        """Whether it has joined its group and answers."""
        return answers(f"{self.url}/connectors")

    def rest(self, method: str, path: str, body: object = None) -> Any:
        """The REST server's answer, None for an empty one. Raises AssertionError with what it refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=REST_S_MAX) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(text) if text else None


class RefusedWorker(ConnectWorker):
    """A worker that must not come up: `start()` waits for its reason: its way out takes a minute."""

    def ready(self) -> bool:
        """Whether it said why."""
        return "ConfigException" in self.log_path.read_text()
