"""The loader: a helper process that writes every row and every broken record through librdkafka.

Its history (iceberg/spark/history.py) holds what each delivery report said. Plan: `bootstrap`, `access`,
`schema_ids`, `key_schema_ids` by topic, `history` folder, `limit` of rows per topic (0: all).
Events: `progress` (topic, acknowledged, bytes, at), `rejection` (client, topic, what, reason,
as_expected), `done` (carriers: what the source says of each airline).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from deploy.run.access import Access
from deploy.run.broken import broken_records, confluent
from deploy.run.children import run, tell, told
from deploy.run.refusals import Refusals
from deploy.run.source import TOPICS, Headers, Row, Topic, encoder, rows
from deploy.run.source import Message as SourceMessage
from deploy.services.patience import Patience
from iceberg.spark.history import (
    NO_HEADERS,
    REJECTED,
    UNKNOWN,
    HistoryRow,
    HistoryWriter,
    bytes_hash,
    headers_hash,
)

TELL_SECONDS = 0.2
FLUSH_PATIENCE_S, FLUSH_LOOK_S = 180, 5
POLL_EVERY_ROWS = 500
FLIGHTS = TOPICS[-1]

PRODUCER: Mapping[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "compression.type": "zstd",
    "linger.ms": 20,
    "batch.size": 262_144,
    "queue.buffering.max.messages": 100_000,
    "delivery.timeout.ms": 150_000,
    "reconnect.backoff.max.ms": 1_000,
}


@dataclass
class Carrier:
    """What the source file itself says of one airline: the pipeline's result must agree."""

    flights: int = 0
    cancelled: int = 0
    departure_delay: int = 0

    def add(self, row: Row) -> None:
        """Count one flight; `departure_delay` sums minutes."""
        self.flights += 1
        if row["dep_delay"] == "NA":
            self.cancelled += 1
        else:
            self.departure_delay += int(row["dep_delay"])


@dataclass
class Reports:
    """Delivery reports of both producers, written to the history as they come."""

    history: HistoryWriter
    acknowledged: int = 0
    sent_bytes: int = 0
    told_at: float = 0.0

    def delivered(self, error: KafkaError | None, message: Message, headers: bytes = NO_HEADERS) -> None:
        """librdkafka's callback. It gives key and value back, but no headers: `headers` is their hash."""
        topic = str(message.topic())
        key, value = message.key(), message.value()
        key_hash, value_hash, timestamp_ms = bytes_hash(key), bytes_hash(value), message.timestamp()[1]
        if error is None:
            partition, offset = message.partition(), message.offset()
            row = HistoryRow(topic, partition, offset, key_hash, value_hash, headers, timestamp_ms)
            self.history.add(row)
            self.acknowledged += 1
            self.sent_bytes += len(key or b"") + len(value or b"")
            if time.time() - self.told_at > TELL_SECONDS:
                self.tell(topic)
            return
        outcome = REJECTED if error.code() == KafkaError.INVALID_RECORD else UNKNOWN
        unplaced = HistoryRow(topic, None, None, key_hash, value_hash, headers, timestamp_ms)
        self.history.add(unplaced._replace(outcome=outcome, reason=error.str()))

    def tell(self, topic: str) -> None:
        """Report progress."""
        self.told_at = time.time()
        tell("progress", topic=topic, acknowledged=self.acknowledged, bytes=self.sent_bytes, at=self.told_at)


class Load:
    """One run of the loader over its plan."""

    def __init__(self, plan: Mapping[str, Any], reports: Reports) -> None:
        self._reports = reports
        self._schema_ids: Mapping[str, int] = plan["schema_ids"]
        self._key_schema_ids: Mapping[str, int] = plan["key_schema_ids"]
        self._limit: int = plan["limit"] or max(topic.rows for topic in TOPICS)
        access = Access.of(plan)
        settings = {**PRODUCER, "bootstrap.servers": plan["bootstrap"], **access.librdkafka()}
        self._producer = Producer({**settings, "on_delivery": reports.delivered})
        self._refusals = Refusals(plan["bootstrap"], settings, access.python(), reports.history)
        self._written = 0
        self.carriers: dict[str, Carrier] = {}

    def run(self) -> None:
        """Write everything; the broken records come evenly spread between the flights."""
        for topic in TOPICS:
            if topic is not FLIGHTS:
                for row, message in self._messages(topic):
                    self._write(topic, row, message)
        broken = broken_records(self._schema_ids, self._key_schema_ids)
        every = max(1, min(FLIGHTS.rows, self._limit) // (len(broken) + 1))
        for number, (row, message) in enumerate(self._messages(FLIGHTS), start=1):
            self._write(FLIGHTS, row, message)
            if number % every == 0 and broken:
                self._refusals.send(broken.pop(0))
        for record in broken:
            self._refusals.send(record)
        self._refusals.close()
        _flush(self._producer)
        self._reports.tell(FLIGHTS.name)

    def _messages(self, topic: Topic) -> Iterator[tuple[Row, SourceMessage]]:
        encode = encoder(topic)
        return ((row, encode(row)) for row in islice(rows(topic), self._limit))

    def _write(self, topic: Topic, row: Row, message: SourceMessage) -> None:
        key, value, headers = message
        if topic.confluent:
            value = confluent(self._schema_ids[topic.name], value, topic.indexes)
            if topic.key_message and key is not None:
                key = confluent(self._key_schema_ids[topic.name], key)
        while True:
            try:
                self._produce(topic.name, value, key, headers)
                break
            except BufferError:
                self._producer.poll(0.1)
        if topic is FLIGHTS:
            self.carriers.setdefault(row["carrier"], Carrier()).add(row)
        self._written += 1
        if self._written % POLL_EVERY_ROWS == 0:
            self._producer.poll(0)

    def _produce(self, topic: str, value: bytes, key: bytes | None, headers: Headers) -> None:
        if not headers:
            self._producer.produce(topic, value, key)
            return
        delivered = partial(self._reports.delivered, headers=headers_hash(headers))
        self._producer.produce(topic, value, key, headers=headers, on_delivery=delivered)


def _flush(producer: Producer) -> None:
    patience = Patience(FLUSH_PATIENCE_S)
    while left := producer.flush(FLUSH_LOOK_S):
        if patience.over(left):
            raise TimeoutError(f"{left} records wait for an answer, and none came for {FLUSH_PATIENCE_S} s")


def main() -> None:
    """Run the plan given on standard input."""
    plan = told()
    with HistoryWriter(Path(plan["history"]) / "sent.parquet") as history:
        load = Load(plan, Reports(history))
        load.run()
    tell("done", carriers={name: asdict(carrier) for name, carrier in sorted(load.carriers.items())})


if __name__ == "__main__":
    run(main)
