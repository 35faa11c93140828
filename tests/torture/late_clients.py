"""Transactional clients of v1 behind one shape: librdkafka, aiokafka, kafka-python, each with a reader.

All are impatient: a request that is not answered in GIVES_UP_MS is given up. librdkafka and aiokafka ask
again by a new connection; kafka-python ends there, and its successor begins with InitProducerId.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import aiokafka
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.compat.kafka_python import KafkaConsumer, KafkaProducer, OffsetAndMetadata
from tests.compat.kafka_python import KafkaError as PyError
from tests.compat.kafka_python import TopicPartition as PyTopicPartition

GIVES_UP_MS = 1_500
TRANSACTION_MS = 20_000
DELIVERY_MS = 10_000
CALL_S_MAX = 30.0
POLL_MS = 100
RECORDS_MAX = 500

Records = dict[int, list[tuple[int, str]]]
"""By partition: (offset, value)."""
ERRORS = (AioError, PyError, KafkaException, OSError, TimeoutError, AssertionError, RuntimeError)
"""What ends a client's life. Clients of Python assert on answers that they did not expect."""


class Transacting(Protocol):
    """A producer with a transactional id and a consumer of committed records. Everything may raise ERRORS."""

    def start(self) -> None:
        """InitProducerId."""

    def assign(self, partitions: Sequence[int]) -> None:
        """Read these from the group's positions on, or from the start."""

    def seek(self, places: Mapping[int, int]) -> None:
        """Read from there on."""

    def poll(self) -> Records:
        """Committed records."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, partition: int, value: str) -> int | None:
        """One record, acknowledged; its offset where the client is told."""

    def positions(self, following: Mapping[int, int]) -> None:
        """Commit positions with the transaction."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""

    def stop(self) -> None:
        """Leave, whatever state it is in. Raises nothing."""


class RdKafka:
    """librdkafka."""

    gives_up_ms, transaction_ms, delivery_ms = GIVES_UP_MS, TRANSACTION_MS, DELIVERY_MS

    def __init__(self, bootstrap: str, name: str, group: str, topic: str) -> None:
        base = {
            "bootstrap.servers": bootstrap,
            "socket.timeout.ms": self.gives_up_ms,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            # A re-bootstrap ends the broker that it remembers as the group's coordinator, and
            # send_offsets_to_transaction waits for that one past its timeout (librdkafka #5511, #5456).
            "metadata.recovery.strategy": "none",
            "log_level": 0,
        }
        self._topic = topic
        self._producer = Producer(
            {
                **base,
                "transactional.id": name,
                "transaction.timeout.ms": self.transaction_ms,
                "delivery.timeout.ms": self.delivery_ms,
                "request.timeout.ms": self.gives_up_ms,
                "linger.ms": 0,
            }
        )
        self._consumer = Consumer(
            {
                **base,
                "group.id": group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": POLL_MS,
            }
        )

    def start(self) -> None:
        """See Transacting."""
        self._producer.init_transactions(CALL_S_MAX)

    def assign(self, partitions: Sequence[int]) -> None:
        """See Transacting."""
        self._consumer.assign([TopicPartition(self._topic, each) for each in partitions])

    def seek(self, places: Mapping[int, int]) -> None:
        """See Transacting."""
        for partition, offset in places.items():
            self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def poll(self) -> Records:
        """See Transacting."""
        found: Records = {}
        for message in self._consumer.consume(RECORDS_MAX, POLL_MS / 1000):
            if message.error() is None:
                row = (message.offset(), message.value().decode())
                found.setdefault(message.partition(), []).append(row)
        return found

    def begin(self) -> None:
        """See Transacting."""
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> int | None:
        """See Transacting."""
        told: list[int] = []
        wrong: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                wrong.append(error)
            else:
                told.append(message.offset())

        self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=delivered)
        try:
            left = self._producer.flush(CALL_S_MAX)
        except SystemError as error:  # a fatal one is raised inside of `delivered`
            raise KafkaException(KafkaError(KafkaError._FATAL)) from error
        if left or wrong:
            raise KafkaException(wrong[0] if wrong else KafkaError(KafkaError._TIMED_OUT))
        return told[0] if told[0] >= 0 else None

    def positions(self, following: Mapping[int, int]) -> None:
        """See Transacting."""
        places = [TopicPartition(self._topic, partition, offset) for partition, offset in following.items()]
        self._producer.send_offsets_to_transaction(
            places, self._consumer.consumer_group_metadata(), CALL_S_MAX
        )

    def end(self, *, commit: bool) -> None:
        """See Transacting."""
        call = self._producer.commit_transaction if commit else self._producer.abort_transaction
        call(CALL_S_MAX)

    def stop(self) -> None:
        """See Transacting."""
        with contextlib.suppress(*ERRORS):
            self._consumer.close()
        self._producer.purge()
        del self._producer


class AioKafka:
    """aiokafka, in an event loop of its own."""

    def __init__(self, bootstrap: str, name: str, group: str, topic: str) -> None:
        self._topic = topic
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._made: tuple[Any, Any] = self._call(self._make(bootstrap.split(","), name, group))
        self._producer, self._consumer = self._made

    async def _make(self, bootstrap: list[str], name: str, group: str) -> tuple[Any, Any]:
        base = {"bootstrap_servers": bootstrap, "request_timeout_ms": GIVES_UP_MS, "retry_backoff_ms": 20}
        producer = aiokafka.AIOKafkaProducer(
            transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, **base
        )
        consumer = aiokafka.AIOKafkaConsumer(
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=POLL_MS,
            **base,
        )
        return producer, consumer

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S_MAX)

    def _places(self, offsets: Mapping[int, int]) -> dict[Any, int]:
        return {aiokafka.TopicPartition(self._topic, each): offset for each, offset in offsets.items()}

    def start(self) -> None:
        """See Transacting."""
        self._call(self._producer.start())
        self._call(self._consumer.start())

    def assign(self, partitions: Sequence[int]) -> None:
        """See Transacting."""

        async def assign() -> None:
            self._consumer.assign(list(self._places(dict.fromkeys(partitions, 0))))

        self._call(assign())

    def seek(self, places: Mapping[int, int]) -> None:
        """See Transacting."""

        async def seek() -> None:
            for place, offset in self._places(places).items():
                self._consumer.seek(place, offset)

        self._call(seek())

    def poll(self) -> Records:
        """See Transacting."""
        found = self._call(self._consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX))
        return {
            place.partition: [(each.offset, each.value.decode()) for each in rows]
            for place, rows in found.items()
        }

    def begin(self) -> None:
        """See Transacting."""
        self._call(self._producer.begin_transaction())

    def send(self, partition: int, value: str) -> int | None:
        """See Transacting."""
        told = self._call(
            self._producer.send_and_wait(self._topic, value.encode(), partition=partition)
        ).offset
        return int(told) if told >= 0 else None

    def positions(self, following: Mapping[int, int]) -> None:
        """See Transacting."""
        group = self._consumer._group_id
        self._call(self._producer.send_offsets_to_transaction(self._places(following), group))

    def end(self, *, commit: bool) -> None:
        """See Transacting."""
        self._call(self._producer.commit_transaction() if commit else self._producer.abort_transaction())

    def stop(self) -> None:
        """See Transacting."""

        async def stop() -> None:
            for client in self._made:
                # Its stop waits for tasks of its own, which may have been cancelled: that comes out of it.
                with contextlib.suppress(*ERRORS, asyncio.CancelledError):
                    async with asyncio.timeout(5):
                        await client.stop()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        self._call(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S_MAX)
        self._loop.close()


class KafkaPython:
    """kafka-python."""

    def __init__(self, bootstrap: str, name: str, group: str, topic: str) -> None:
        self._topic, self._group = topic, group
        base = {
            "bootstrap_servers": bootstrap.split(","),
            "retry_backoff_ms": 20,
            "reconnect_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            "metrics_enabled": False,
        }
        self._producer = KafkaProducer(
            transactional_id=name,
            transaction_timeout_ms=TRANSACTION_MS,
            request_timeout_ms=GIVES_UP_MS,
            delivery_timeout_ms=DELIVERY_MS,
            max_block_ms=int(CALL_S_MAX * 1000),
            **base,
        )
        self._consumer = KafkaConsumer(
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=2_000,
            request_timeout_ms=7_000,
            fetch_max_wait_ms=POLL_MS,
            **base,
        )

    def start(self) -> None:
        """See Transacting."""
        self._producer.init_transactions()

    def assign(self, partitions: Sequence[int]) -> None:
        """See Transacting."""
        self._consumer.assign([PyTopicPartition(self._topic, each) for each in partitions])

    def seek(self, places: Mapping[int, int]) -> None:
        """See Transacting."""
        for partition, offset in places.items():
            self._consumer.seek(PyTopicPartition(self._topic, partition), offset)

    def poll(self) -> Records:
        """See Transacting."""
        found = self._consumer.poll(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
        return {
            place.partition: [(each.offset, each.value.decode()) for each in rows]
            for place, rows in found.items()
        }

    def begin(self) -> None:
        """See Transacting."""
        self._producer.begin_transaction()

    def send(self, partition: int, value: str) -> int | None:
        """See Transacting."""
        told = self._producer.send(self._topic, value.encode(), partition=partition).get(CALL_S_MAX).offset
        return int(told) if told >= 0 else None

    def positions(self, following: Mapping[int, int]) -> None:
        """See Transacting."""
        places = {
            PyTopicPartition(self._topic, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in following.items()
        }
        self._producer.send_offsets_to_transaction(places, self._group)

    def end(self, *, commit: bool) -> None:
        """See Transacting."""
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def stop(self) -> None:
        """See Transacting."""
        with contextlib.suppress(*ERRORS):
            self._consumer.close()
        with contextlib.suppress(*ERRORS):
            self._producer.close(timeout=0)


CLIENTS: Mapping[str, type[RdKafka] | type[AioKafka] | type[KafkaPython]] = {
    "librdkafka": RdKafka,
    "aiokafka": AioKafka,
    "kafka-python": KafkaPython,
}


def hush() -> None:
    """Clients that are made to fail say so at length."""
    for name in ("aiokafka", "kafka", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
