"""Idempotent writers and assigned readers that run through every fault, and the final read after them.

Each lives in a thread of its own with a librdkafka client, as an application would. Values are unique:
`writer/partition/sequence`, so that the verdict can tell any two records apart.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.torture.verdict import Place, Seen, Sent

DELIVERY_TIMEOUT_MS = 120_000  # long enough that no outage here makes the client give up by itself
FLUSH_SECONDS_MAX = 150
POLL_SECONDS = 0.2
FINAL_READ_SECONDS_MAX = 120

Client = dict[str, Any]

BASE: Client = {
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 1_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "allow.auto.create.topics": False,  # a producer's refresh would make a topic anew that a test deleted
    "log_level": 0,
}


class _Told(logging.Handler):
    """Keeps what librdkafka says of a producer's epochs: it numbers anew what it sends again after one.

    And counts the records that it reports as delivered without an offset: those before a batch that was
    acknowledged (IMPLICITACK), and those that the broker has and no longer knows where (DUPSEQ).
    """

    WORDS = ("ERRSEQ", "bump", "desync", "epoch", "IMPLICITACK", "DUPSEQ")
    UNPLACED = re.compile(r"(\d+) message\(s\) (?:implicitly acked|failed due to duplicate sequence)")

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: deque[str] = deque(maxlen=100)
        self.unplaced = 0

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if found := self.UNPLACED.search(text):
            self.unplaced += int(found[1])
        if any(word in text for word in self.WORDS):
            self.lines.append(f"{time.strftime('%H:%M:%S')} {text}")


class Writer(threading.Thread):
    """Sends `rate` records a second, round robin over partitions, until stop() or `limit` records.

    `keys`: so many keys in turn within each partition, so that compaction has something to take; 0: none.
    """

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: Sequence[int],
        *,
        rate: float = 500,
        limit: int | None = None,
        size: int = 100,
        keys: int = 0,
        **settings: object,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.sent: list[Sent] = []
        self.attempted = 0
        self._topic, self._partitions, self._rate, self._limit, self._size = (
            topic,
            partitions,
            rate,
            limit,
            size,
        )
        self._keys = keys
        self._told = str(settings.get("acks")) != "0"  # nobody tells offsets then; librdkafka makes some up
        self._halt = threading.Event()
        client = {"bootstrap.servers": bootstrap, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS, "linger.ms": 5}
        told, log = _Told(), logging.Logger(name, logging.DEBUG)
        log.addHandler(told)
        self._librdkafka = told
        self.told = told.lines
        """What the client said of its epochs, for whoever has to explain a finding."""
        spoken = {"debug": "eos", "log_level": 7, "logger": log}
        self._producer = Producer({**BASE, "enable.idempotence": True, **client, **spoken, **settings})

    def run(self) -> None:
        begun = time.monotonic()
        while not self._halt.is_set() and (self._limit is None or self.attempted < self._limit):
            ahead = self.attempted / self._rate - (time.monotonic() - begun)
            if ahead > 0:
                self._producer.poll(min(ahead, 0.05))
                continue
            self._send(self.attempted)
            self.attempted += 1
            self._producer.poll(0)
        self._producer.flush(FLUSH_SECONDS_MAX)

    def _send(self, sequence: int) -> None:
        partition = self._partitions[sequence % len(self._partitions)]
        value = f"{self.name}/{partition}/{sequence}/".encode().ljust(self._size, b".")
        turn = sequence // len(self._partitions)
        key = b"%d" % (turn % self._keys) if self._keys else None
        invoked = time.monotonic_ns()

        def delivered(error: KafkaError | None, message: Message) -> None:
            outcome, offset = ("ok", message.offset()) if error is None else ("info", None)
            known = offset if offset is not None and self._told else -1
            times = (invoked, time.monotonic_ns())
            self.sent.append(
                Sent(self.name, sequence, self._topic, partition, value, outcome, known, key, *times)
            )

        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value,
                    key=key,
                    partition=partition,
                    on_delivery=delivered,
                )
            except BufferError:  # the client's own queue is full: the cluster is away
                self._producer.poll(0.1)
            else:
                return

    @property
    def explained(self) -> int:
        """How many records the client says it reported as delivered without an offset."""
        return self._librdkafka.unplaced

    def stop(self) -> None:
        """Send no more, wait for the answers of what was sent."""
        self._halt.set()
        self.join(FLUSH_SECONDS_MAX + 10)
        assert not self.is_alive(), f"{self.name} is stuck"


class Reader(threading.Thread):
    """Reads its partitions from the start, on and on, and keeps what it was given in order."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: Sequence[int]) -> None:
        super().__init__(name=name, daemon=True)
        self.seen: list[Seen] = []
        self._halt = threading.Event()
        self._consumer = consumer(bootstrap)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])

    def run(self) -> None:
        while not self._halt.is_set():
            messages, at = self._consumer.consume(500, POLL_SECONDS), time.monotonic_ns()
            for message in messages:
                if message.error() is None:
                    self.seen.append(_seen(self.name, message, at))
        self._consumer.close()

    def stop(self) -> None:
        """Read no more."""
        self._halt.set()
        self.join(30)
        assert not self.is_alive(), f"{self.name} is stuck"


def consumer(bootstrap: str, **more: object) -> Consumer:
    """A consumer for assigned partitions; its group is a name only."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "torture", "enable.auto.commit": False}
    return Consumer({**BASE, **settings, "auto.offset.reset": "error", "fetch.wait.max.ms": 100, **more})


def _seen(reader: str, message: Message, at_ns: int) -> Seen:
    return Seen(reader, message.topic(), message.partition(), message.offset(), message.value(), at_ns)


def _end(client: Consumer, topic: str, partition: int) -> int:
    """The high watermark. librdkafka gives a question up when its broker leaves Metadata: ask again."""
    deadline = time.monotonic() + FINAL_READ_SECONDS_MAX
    while True:
        try:
            place = TopicPartition(topic, partition)
            return int(client.get_watermark_offsets(place, timeout=30, cached=False)[1])
        except KafkaException as error:
            if error.args[0].code() != KafkaError._DESTROY_BROKER or time.monotonic() > deadline:
                raise


def read_all(bootstrap: str, topic: str, partitions: Sequence[int]) -> dict[Place, list[tuple[int, bytes]]]:
    """Every partition from its start to the high watermark of now, by a fresh client."""
    client = consumer(bootstrap, **{"enable.partition.eof": True})
    ends = {partition: _end(client, topic, partition) for partition in partitions}
    found: dict[Place, list[tuple[int, bytes]]] = {(topic, partition): [] for partition in partitions}
    client.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    deadline = time.monotonic() + FINAL_READ_SECONDS_MAX
    waiting = {partition for partition, end in ends.items() if end > 0}
    while waiting:
        assert time.monotonic() < deadline, f"the final read is stuck before the ends of {sorted(waiting)}"
        for message in client.consume(2_000, POLL_SECONDS):
            error = message.error()
            if error is None:
                found[topic, message.partition()].append((message.offset(), message.value()))
            elif error.code() != KafkaError._PARTITION_EOF:
                continue
            # Behind the last record there may be offsets without one: markers, and what was set aside.
            if message.offset() + (error is None) >= ends[message.partition()]:
                waiting.discard(message.partition())
    client.close()
    return found
