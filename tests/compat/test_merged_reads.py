"""A slow consumer while what it reads is merged, deleted and collected underneath [rules 7 and 9].

Each record's value is its offset. The consumer rests in the middle of the topic until merging has swapped and
collection has deleted objects; in every second rest the log start moves beyond it. What comes next must be
the next record, or, after a deletion, OFFSET_OUT_OF_RANGE (librdkafka: auto.offset.reset): never a gap.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.bench.scrape import metric
from tests.compat.conftest import Embedded, start, stop
from tests.compat.raw import set_broker_config

PATIENCE_S = 120.0
ROUNDS = 6
READ_AT_ONCE = 150  # records between two rests; some more are in the client's memory
AHEAD = 400  # records written beyond the consumer before it rests
DELETED = 100  # records beyond the consumer that a deletion takes at least
VALUE_BYTES = 100
PAUSE_S = 0.02  # between two flushes
SMALL = {"fetch.message.max.bytes": 8000, "queued.min.messages": 1, "queued.max.messages.kbytes": 8}
SETTINGS = (
    "merging.interval_ms=50",
    "merging.min_slices=8",
    "merging.keep_slices=1",
    "merging.segment_bytes=65536",
    "collection.interval_s=1",
    "collection.grace_s=0",
    "fetch.cache_bytes_max=1024",
    "fetch.cold_cache_bytes_max=1024",
    "fetch.index_cache_bytes_max=1024",
)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    """An agent that merges and collects all the time and remembers next to nothing."""
    running = start(tmp_path_factory.mktemp("merged") / "data", *SETTINGS)
    interval = ("log.retention.check.interval.ms", "50")
    assert asyncio.run(set_broker_config(running.bootstrap, *interval)) == 0
    yield running
    assert stop(running) == 0


class Writer:
    """Writes records whose value is their offset, in small flushes, until told to stop."""

    def __init__(self, agent: Embedded, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": agent.bootstrap, "enable.idempotence": True})
        self._topic = topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.acknowledged = 0
        self.wrong: list[str] = []

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            for _ in range(5):
                self._producer.produce(
                    self._topic, str(number).zfill(VALUE_BYTES), partition=0, on_delivery=self._told
                )
                number += 1
            self._producer.flush(PATIENCE_S)
            time.sleep(PAUSE_S)

    def _told(self, error: object, message: object) -> None:
        if error is not None or message.offset() != int(message.value()):  # type: ignore[attr-defined]  # a Message
            self.wrong.append(str(error or message))
        self.acknowledged += 1


class Reader:
    """One consumer of the partition; asserts that nothing is left out."""

    def __init__(self, agent: Embedded, topic: str, offset: int, **settings: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": agent.bootstrap,
                "group.id": "none",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                **settings,
            }
        )
        self._partition = TopicPartition(topic, 0, offset)
        self._consumer.assign([self._partition])
        self.position = offset
        self.jumps = 0

    def start_offset(self) -> int:
        """Where the topic begins, as the agent says."""
        return int(self._consumer.get_watermark_offsets(self._partition, timeout=PATIENCE_S)[0])

    def read_to(self, offset: int, start: int) -> None:
        """Read up to this offset. `start`: the log start, which stands still meanwhile."""
        while self.position < offset:
            message = self._consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing came from {self.position} on"
            if message.error() is not None:
                assert message.error().code() == KafkaError._AUTO_OFFSET_RESET, message.error()
                assert self.position < start, (
                    f"{message.error()} at {self.position}, the log starts at {start}"
                )
                self._consumer.assign([TopicPartition(self._partition.topic, 0, start)])
                self.position = start
                self.jumps += 1
                continue
            assert (message.offset(), int(message.value())) == (self.position, self.position)
            self.position += 1

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Until it is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def wait_for_jobs(agent: Embedded) -> None:
    """Until merging has swapped, and collection has deleted, once more."""
    for name in ("floe_merge_swaps_total", "floe_collected_objects_total"):
        before = metric(agent.http, name)
        wait_for(lambda: metric(agent.http, name) > before, f"{name} stands at {before}")  # noqa: B023  # called here


class Deleting:
    """DeleteRecords and retention.bytes."""

    def __init__(self, agent: Embedded, topic: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": agent.bootstrap})
        self._topic = topic

    def records(self, reader: Reader) -> None:
        """DeleteRecords beyond the reader."""
        below = TopicPartition(self._topic, 0, reader.position + DELETED)
        self._admin.delete_records([below])[below].result(PATIENCE_S)

    def retention(self, reader: Reader) -> None:
        """retention.bytes, for as long as it takes to get beyond the reader."""
        target = reader.position + DELETED
        self._set("1")
        wait_for(lambda: reader.start_offset() > target, f"retention does not reach {target}")
        self._set("-1")
        wait_for(self._settled(reader), "the log start goes on moving")

    def _set(self, value: str) -> None:
        entry = ConfigEntry("retention.bytes", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, self._topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def _settled(self, reader: Reader) -> Callable[[], bool]:
        """Whether the log start is what it was at the last look but a few: a move may be on its way."""
        seen: list[int] = []

        def looked() -> bool:
            seen.append(reader.start_offset())
            return len(seen) > 20 and len(set(seen[-20:])) == 1

        return looked


@pytest.mark.parametrize("how", ["records", "retention"])
def test_a_slow_reader_gets_every_record_that_is_left(agent: Embedded, how: str) -> None:
    topic = f"slow-{how}"
    admin = AdminClient({"bootstrap.servers": agent.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(PATIENCE_S)
    delete = getattr(Deleting(agent, topic), how)
    with Writer(agent, topic) as writer:
        reader, start_offset = Reader(agent, topic, 0, **SMALL), 0
        for number in range(ROUNDS):
            due = max(reader.position, start_offset) + READ_AT_ONCE
            wait_for(lambda: writer.acknowledged > due + AHEAD, "nothing is written")  # noqa: B023  # called here
            reader.read_to(due, start_offset)
            if number % 2:
                delete(reader)
                start_offset = reader.start_offset()
                assert start_offset > reader.position
            wait_for_jobs(agent)
    assert writer.wrong == []
    assert reader.start_offset() == start_offset
    due = max(reader.position, start_offset) + READ_AT_ONCE
    reader.read_to(min(due, writer.acknowledged), start_offset)
    assert reader.jumps == ROUNDS // 2
    reader.close()
    late = Reader(agent, topic, start_offset)
    late.read_to(writer.acknowledged, start_offset)
    assert late.jumps == 0
    late.close()
