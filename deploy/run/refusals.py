"""Sends records that must be refused, each through two clients, and tells what the clients were told.

librdkafka shows its Python users the error code alone; kafka-python shows the record's own reason too.
A refused batch is refused whole, so each record travels in a batch of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import kafka
from confluent_kafka import KafkaError, Message, Producer
from kafka.errors import InvalidRecordError

from deploy.run.broken import Broken
from deploy.run.children import tell
from iceberg.spark.history import (
    NO_HEADERS,
    REJECTED,
    UNKNOWN,
    HistoryRow,
    HistoryWriter,
    bytes_hash,
)

CLIENTS = ("librdkafka", "kafka-python")
ANSWER_SECONDS_MAX = 120


class Refusals:
    """Both producers: `settings` are librdkafka's, `login` what kafka-python logs in with. Rejections go to
    `history` and to the parent as `rejection` events."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, Any], login: Mapping[str, Any], history: HistoryWriter
    ) -> None:
        self._history = history
        self._librdkafka = Producer({**settings, "batch.num.messages": 1, "linger.ms": 0})
        # An idempotent kafka-python answers everything after its first refusal with that same refusal.
        self._kafka_python = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            acks="all",
            linger_ms=0,
            enable_idempotence=False,
            **login,
        )

    def send(self, record: Broken) -> None:
        """Send through each client and wait for the answers."""
        self._by_librdkafka(record)
        self._by_kafka_python(record)

    def close(self) -> None:
        """End the producer that has threads of its own."""
        self._kafka_python.close(ANSWER_SECONDS_MAX)

    def _by_librdkafka(self, record: Broken) -> None:
        def delivered(error: KafkaError | None, _message: Message) -> None:
            refused = error is not None and error.code() == KafkaError.INVALID_RECORD
            self._note(CLIENTS[0], record, refused, "accepted" if error is None else error.str(), refused)

        self._librdkafka.produce(record.topic, record.value, record.key, on_delivery=delivered)
        if self._librdkafka.flush(ANSWER_SECONDS_MAX):
            raise TimeoutError(f"a broken record was not answered within {ANSWER_SECONDS_MAX} s")

    def _by_kafka_python(self, record: Broken) -> None:
        try:
            sent = self._kafka_python.send(record.topic, value=record.value, key=record.key)
            sent.get(ANSWER_SECONDS_MAX)
        except InvalidRecordError as error:
            reason = str(error)
            self._note(CLIENTS[1], record, True, reason, record.named in reason)
        except kafka.errors.KafkaError as error:
            self._note(CLIENTS[1], record, False, repr(error), False)
        else:
            self._note(CLIENTS[1], record, False, "accepted", False)

    def _note(self, client: str, record: Broken, refused: bool, reason: str, as_expected: bool) -> None:
        hashes = bytes_hash(record.key), bytes_hash(record.value), NO_HEADERS
        outcome = REJECTED if refused else UNKNOWN
        self._history.add(HistoryRow(record.topic, None, None, *hashes, None, outcome, reason))
        tell(
            "rejection",
            client=client,
            topic=record.topic,
            what=record.what,
            reason=reason,
            as_expected=as_expected,
        )
