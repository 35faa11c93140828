"""Consumers that read a compacted topic from the start while it is written to and compacted.

Streams restores its stores so, and Connect its configuration: what they end with must be the newest value of
each key, and a record that went in front of them must be no error and no gap that they cannot pass.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.services.kafka import TOOLS, java_command
from tests.compat.conftest import Embedded, start, stop
from tests.compat.raw import set_broker_config

pytestmark = pytest.mark.services

TOPIC = "c"
KEYS = 50  # written again and again
ONCE = 10  # keys written before all others and never again
LAST = "last"  # the key of the last record
PATIENCE_S = 120.0
ROUND_PAUSE_S = 0.02
SETTINGS = ("compaction.dirty_bytes_min=1024", "merging.interval_ms=200", "merging.min_slices=20")
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
Row = tuple[int, str, str]
"""Offset, key, value."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent that compacts whenever there is something to compact."""
    running = start(tmp_path_factory.mktemp("compacted") / "data", *SETTINGS)
    assert asyncio.run(set_broker_config(running.bootstrap, "log.cleaner.backoff.ms", "50")) == 0
    yield running
    assert stop(running) == 0


class Writer:
    """Writes some keys once, then all others once a round until told to stop.

    `acknowledged` is the last round that all have.
    """

    def __init__(self, agent: Embedded, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": agent.bootstrap, "enable.idempotence": True})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.acknowledged = -1
        self.failed: list[str] = []

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def finish(self) -> int:
        """The last record, a key of its own; how many records were written."""
        self.__exit__()
        self._produce(LAST, "end")
        assert self._producer.flush(PATIENCE_S) == 0
        assert self.failed == []
        return ONCE + (self.acknowledged + 1) * KEYS + 1

    def _write(self) -> None:
        for key in range(ONCE):
            self._produce(f"once{key}", "0")
        number = 0
        while not self._stopping.is_set():
            for key in range(KEYS):
                self._produce(f"k{key}", str(number))
            self._producer.flush(PATIENCE_S)
            self.acknowledged = number
            number += 1
            time.sleep(ROUND_PAUSE_S)

    def _produce(self, key: str, value: str) -> None:
        self._producer.produce(self._topic, value, key, on_delivery=self._told)

    def _told(self, error: object, message: object) -> None:
        del message
        if error is not None:
            self.failed.append(str(error))


def compacted_away(agent: Embedded) -> float:
    """Bytes that compaction has left out so far."""
    with urllib.request.urlopen(f"{agent.http}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[1]) for line in lines if line.startswith("floe_compacted_away_bytes_total"))


def wait_for_compaction(agent: Embedded, more_than: float = 0.0) -> float:
    """Bytes left out once they are more."""
    end = time.monotonic() + PATIENCE_S
    while (now := compacted_away(agent)) <= more_than:
        assert time.monotonic() < end, f"nothing was compacted: {now} bytes"
        time.sleep(0.05)
    return now


def created(agent: Embedded, topic: str) -> str:
    """A compacted topic of one partition."""
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=CONFIGS)])[topic].result(30)
    return topic


def complete(rows: Sequence[Row], known: int) -> bool:
    """Whether of each key a record of round `known` or a later one was read.

    That may take records behind what was the end at the start: what is in front of them goes by right.
    """
    newest = {key: int(value) for _, key, value in rows if key != LAST}
    return len(newest) == KEYS + ONCE and all(
        at >= known for key, at in newest.items() if not key.startswith("once")
    )


def judge(rows: Sequence[Row]) -> None:
    """Offsets rise, and the records that nothing has superseded are where they were."""
    offsets = [offset for offset, _, _ in rows]
    assert offsets == sorted(set(offsets))
    assert rows[:ONCE] == [(number, f"once{number}", "0") for number in range(ONCE)]


def read_all(agent: Embedded, topic: str, known: int, pause_at: int = -1) -> list[Row]:
    """From the start until it is complete; after `pause_at` records it rests until more was compacted."""
    settings = {"bootstrap.servers": agent.bootstrap, "group.id": "none", "enable.auto.commit": False}
    small = {"fetch.message.max.bytes": 1000, "queued.min.messages": 1, "queued.max.messages.kbytes": 1}
    consumer = Consumer({**settings, **small, "check.crcs": True})
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[Row] = []
    while not rows or rows[-1][0] < end - 1 or not complete(rows, known):
        message = consumer.poll(PATIENCE_S)
        assert message is not None, f"nothing came behind {rows[-1:]}, up to {end} and round {known}"
        assert message.error() is None, message.error()
        rows.append((message.offset(), message.key().decode(), message.value().decode()))
        if len(rows) == pause_at:
            wait_for_compaction(agent, compacted_away(agent))
    consumer.close()
    judge(rows)
    return rows


def test_librdkafka_restores_while_it_is_compacted(agent: Embedded) -> None:
    topic = created(agent, "rdkafka")
    with Writer(agent, topic) as writer:
        wait_for_compaction(agent)
        for pause_at in (-1, 10, 60, KEYS):
            read_all(agent, topic, writer.acknowledged, pause_at)
        wait_for_compaction(agent, compacted_away(agent))
        written = writer.finish()
    rows = read_all(agent, topic, writer.acknowledged)
    assert rows[-1][:2] == (written - 1, LAST), "offsets are what they were"
    assert len(rows) < written / 2, "most of it is compacted away"


def test_java_restores_while_it_is_compacted(agent: Embedded, tmp_path: Path) -> None:
    topic = created(agent, "java")
    shown = [word for what in ("offset", "key") for word in ("--formatter-property", f"print.{what}=true")]
    words = ("--bootstrap-server", agent.bootstrap, "--topic", topic, "--partition", "0")
    small = (
        "--command-property",
        "max.partition.fetch.bytes=1000",
        "--command-property",
        "max.poll.records=20",
    )
    command = java_command(TOOLS["console-consumer"], *words, "--offset", "earliest", *small, *shown)
    with Writer(agent, topic) as writer, open(tmp_path / "errors", "w") as errors:
        wait_for_compaction(agent, compacted_away(agent))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as reader:
            assert reader.stdout is not None
            rows = [_row(reader.stdout.readline()) for _ in range(KEYS)]
            wait_for_compaction(agent, compacted_away(agent))
            written = writer.finish()
            while rows[-1][1] != LAST:
                rows.append(_row(reader.stdout.readline()))
            reader.terminate()
    judge(rows)
    assert complete(rows, writer.acknowledged)
    assert rows[-1][0] == written - 1
    assert "Exception" not in (tmp_path / "errors").read_text()


def _row(line: str) -> Row:
    offset, key, value = line.strip().split("\t")
    return int(offset.removeprefix("Offset:")), key, value
