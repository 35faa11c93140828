"""What one task of a replay does: records of one partition of a quarantine, into the topic, by transactions.

Each transaction holds records and the position behind them, that of group GROUP and the topic's name; its id
is GROUP, the topic and the quarantine's partition, all as `floe quarantine replay` has them. So whoever takes
the partition up later, another attempt of the task or that command, ends what was left open, goes on where
the last transaction ended, and keeps the earlier one from writing any more. Runs on the executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

GROUP = "floe-replay."
"""Behind it, the topic: the group whose position says how far a quarantine was replayed."""

HEADER = "floe.replayed-from"
"""Key of the header that names a replayed record's origin: quarantine/partition/offset."""

TRANSACTION_MS = 60_000
ANSWER_S_MAX = 60.0
"""Seconds that an agent may take for one request of a transaction, with the retries of the client."""

RECORD_BYTES_MAX = 100_000_000
"""Bytes of one record that the client sends; which ones are too large is the topic's to say."""

BUFFERED_KIB_MAX = 64 << 10
"""KiB of records that are under way at once, per task."""

FULL_S, FULL_TRIES_MAX = 0.1, 600
"""Seconds between tries while they are, and how many of them."""

FAILURES_KEPT = 3


class ReplayFailed(RuntimeError):
    """A record or a transaction was refused; what was committed before stays."""


class Row(NamedTuple):
    """A record to be written, and its offset in the quarantine."""

    offset: int
    partition: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Task:
    """Of one partition of `quarantine`, the records below `end`; `batch` of them in a transaction."""

    bootstrap: str
    topic: str
    partitions: int
    quarantine: str
    partition: int
    end: int
    batch: int
    properties: Mapping[str, str]

    @property
    def group(self) -> str:
        """Whose position it is."""
        return GROUP + self.topic

    def consumer(self) -> Consumer:
        """Of that group; it joins nothing."""
        return Consumer({**clients(self.bootstrap, self.properties), "group.id": self.group})

    def producer(self) -> Producer:
        """Whose transactional id is the quarantine's partition's."""
        own = {
            "transactional.id": f"{self.group}.{self.partition}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "message.max.bytes": RECORD_BYTES_MAX,
            "queue.buffering.max.kbytes": BUFFERED_KIB_MAX,
        }
        return Producer({"linger.ms": 20, **clients(self.bootstrap, self.properties), **own})


def clients(bootstrap: str, properties: Mapping[str, str]) -> dict[str, Any]:
    """Properties of any client: those given (security, as a rule), and what they cannot change."""
    own = {"bootstrap.servers": bootstrap, "enable.auto.commit": False, "log_level": 2}
    return {"client.id": "floe-replay", **properties, **own}


@dataclass(slots=True)
class _Writer:
    """The task's own producer, once it has fenced all earlier ones."""

    task: Task
    producer: Producer
    consumer: Consumer
    failures: list[str] = field(default_factory=list)
    open: int = 0

    def begin_at(self) -> int:
        """The first offset that no transaction is behind."""
        where = TopicPartition(self.task.quarantine, self.task.partition)
        (found,) = self.consumer.committed([where], timeout=ANSWER_S_MAX)
        if found.error is not None:
            raise ReplayFailed(f"position of group {self.task.group}: {found.error}")
        return max(0, int(found.offset))

    def write(self, row: Row) -> None:
        if not self.open:
            self.producer.begin_transaction()
        self.open += 1
        task, more = self.task, {}
        if row.partition < task.partitions:
            more["partition"] = row.partition
        if row.timestamp_ms >= 0:
            more["timestamp"] = row.timestamp_ms
        origin = f"{task.quarantine}/{task.partition}/{row.offset}"
        headers = [*row.headers, (HEADER, origin.encode())]
        for _ in range(FULL_TRIES_MAX):
            try:
                self.producer.produce(
                    task.topic, row.value, row.key, headers=headers, on_delivery=self._delivered, **more
                )
                return
            except BufferError:
                self.producer.poll(FULL_S)
        raise ReplayFailed(f"{origin}: nothing is acknowledged for {FULL_S * FULL_TRIES_MAX:.0f} s")

    def _delivered(self, error: Any, message: Message) -> None:
        if error is not None and len(self.failures) < FAILURES_KEPT:
            origin = dict(message.headers() or ()).get(HEADER, b"")
            self.failures.append(f"{origin.decode()}: {error.str()}")

    def commit(self, position: int) -> None:
        """End the transaction with this position, or one that has nothing else."""
        if not self.open:
            self.producer.begin_transaction()
        where = TopicPartition(self.task.quarantine, self.task.partition, position)
        self.producer.send_offsets_to_transaction(
            [where], self.consumer.consumer_group_metadata(), ANSWER_S_MAX
        )
        self.producer.commit_transaction(ANSWER_S_MAX)
        self.open = 0


def write(task: Task, rows: Iterable[Row]) -> int:
    """Write the rows, whose offsets rise, from where the last transaction ended; how many were written.

    Raises ReplayFailed; the task may be run again, also while it still runs.
    """
    consumer, producer = task.consumer(), task.producer()
    writer = _Writer(task, producer, consumer)
    try:
        producer.init_transactions(ANSWER_S_MAX)  # first: no earlier attempt commits anything from here on
        return _all(writer, rows)
    except KafkaException as error:
        why = "; ".join(writer.failures) or error.args[0].str()
        place = f"{task.quarantine}/{task.partition}"
        raise ReplayFailed(f"{place}: {why}; what was committed before stays") from error
    finally:
        producer.purge()
        consumer.close()


def _all(writer: _Writer, rows: Iterable[Row]) -> int:
    task, begin = writer.task, writer.begin_at()
    written, last, committed = 0, -1, begin
    for row in rows:
        if row.offset <= last:
            raise ReplayFailed(
                f"{task.quarantine}/{task.partition}/{row.offset} comes twice: a repair gives each row once"
            )
        last = row.offset
        if row.offset < begin:
            continue
        writer.write(row)
        written += 1
        if writer.open >= task.batch:
            committed = row.offset + 1
            writer.commit(committed)
    if writer.open or committed < task.end:
        writer.commit(max(task.end, begin))
    return written


def of_columns(columns: Mapping[str, Sequence[Any]]) -> Iterator[Row]:
    """The rows of one Arrow batch, by the names in `replay.COLUMNS`."""
    names = ("quarantine_offset", "partition", "timestamp_ms", "key", "value", "headers")
    for offset, partition, timestamp, key, value, headers in zip(
        *(columns[name] for name in names), strict=True
    ):
        pairs = [(each["key"], each["value"]) for each in headers or ()]
        yield Row(offset, partition, timestamp, key, value, pairs)
