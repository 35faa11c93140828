"""MirrorMaker 2's worker of docs/migration.md, and a load whose every acknowledged record is remembered."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from deploy.services.service import Service, answers
from deploy.setup.jars import ensure
from deploy.setup.java import java_home
from tests.compat.clients import Placed, Rec

HEAP = "256m"
WAIT_S_MAX = 300
ORDERS, CUSTOMERS, PAYMENTS = "shop.orders", "shop.customers", "shop.payments"
PARTITIONS = {ORDERS: 4, CUSTOMERS: 2, PAYMENTS: 2}
ABORTED_EACH = 3  # of so many transactions one is aborted

Part = tuple[str, int]
Ledger = dict[Part, list[Placed]]


class MirrorWorker(Service):
    """A worker of Connect in distributed mode with MirrorMaker's connectors, of a file of properties."""

    name = "mirror"
    ready_seconds_max = 240  # it joins its group first

    def __init__(self, directory: Path, properties: Path, port: int) -> None:
        """`port`: of the REST server that the file names."""
        super().__init__(directory)
        self._properties = properties
        self.url = f"http://127.0.0.1:{port}"

    def command(self) -> list[str]:
        """What connect-distributed.sh runs."""
        classpath = os.pathsep.join(str(jar) for jar in ensure("mirror"))
        options = [f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        main = "org.apache.kafka.connect.cli.ConnectDistributed"
        return [str(java_home() / "bin" / "java"), *options, "-cp", classpath, main, str(self._properties)]

    def ready(self) -> bool:
        """Whether it has joined its group and answers."""
        return answers(f"{self.url}/connectors")


class Load:
    """Writers of the three topics, a thread each, within `with`; the ledger has what was acknowledged and, of
    transactions, what was committed, by the offsets of that cluster."""

    def __init__(self, bootstrap: str, name: str) -> None:
        """`name`: in every value, so that loads tell apart."""
        self.ledger: Ledger = {
            (topic, index): [] for topic, count in PARTITIONS.items() for index in range(count)
        }
        self.failures: list[BaseException] = []
        self._bootstrap, self._name = bootstrap, name
        self._stopping = threading.Event()
        writers = (self._orders, self._customers, self._payments)
        self._threads = [threading.Thread(target=self._guarded, args=(each,)) for each in writers]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """All is acknowledged then. Raises what a writer failed of."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(WAIT_S_MAX)
            assert not thread.is_alive()
        if self.failures:
            raise self.failures[0]

    @property
    def count(self) -> int:
        """Records acknowledged so far."""
        return sum(map(len, self.ledger.values()))

    def reach(self, more: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = self.count + more
        until(lambda: self.count >= goal or bool(self.failures), f"{more} more records")
        assert not self.failures, self.failures

    def _guarded(self, writer: Callable[[], None]) -> None:
        try:
            writer()
        except BaseException as error:
            self.failures.append(error)

    def _send(self, producer: Producer, into: Ledger, topic: str, partition: int, rec: Rec) -> None:
        def report(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(AssertionError(str(error)))
            else:
                into[topic, partition].append(Placed(message.offset(), rec))

        producer.produce(
            topic,
            rec.value,
            rec.key,
            partition,
            timestamp=rec.timestamp,
            headers=list(rec.headers),
            on_delivery=report,
        )
        producer.poll(0)

    def _producer(self, **more: str) -> Producer:
        base = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5}
        return Producer({**base, **{key.replace("_", "."): value for key, value in more.items()}})

    def _numbers(self, pause_s: float) -> Iterator[tuple[int, int]]:
        """A number and a time in ms, at a steady pace."""
        began = int(time.time() * 1000) - 3_600_000
        for number in itertools.count():
            if self._stopping.wait(pause_s):
                return
            yield number, began + number

    def _orders(self) -> None:
        producer = self._producer(compression_type="zstd")
        for number, when in self._numbers(0.02):
            value = f"{self._name} order {number}".encode()
            headers = (("source", b"shop"), ("empty", b""), ("none", None), ("source", b"\xff\x00twice"))
            rec = Rec(when, None if number % 5 == 0 else b"k%d" % (number % 97), value, headers[: number % 5])
            self._send(producer, self.ledger, ORDERS, number % PARTITIONS[ORDERS], rec)
        assert producer.flush(WAIT_S_MAX) == 0

    def _customers(self) -> None:
        producer = self._producer()
        for number, when in self._numbers(0.03):
            key = number % 20
            value = None if number % 11 == 10 else f"{self._name} state {number}".encode()
            rec = Rec(when, b"c%d" % key, value)
            self._send(producer, self.ledger, CUSTOMERS, key % PARTITIONS[CUSTOMERS], rec)
        assert producer.flush(WAIT_S_MAX) == 0

    def _payments(self) -> None:
        producer = self._producer(transactional_id=f"payments-{self._name}")
        producer.init_transactions(WAIT_S_MAX)
        for number, when in self._numbers(0.2):
            sent: Ledger = {(PAYMENTS, index): [] for index in range(PARTITIONS[PAYMENTS])}
            producer.begin_transaction()
            for part in range(6):
                value = f"{self._name} payment {number}.{part}".encode()
                self._send(
                    producer, sent, PAYMENTS, part % PARTITIONS[PAYMENTS], Rec(when, b"p%d" % part, value)
                )
            if number % ABORTED_EACH == 1:
                assert producer.flush(WAIT_S_MAX) == 0
                producer.abort_transaction(WAIT_S_MAX)
                continue
            producer.commit_transaction(WAIT_S_MAX)
            for part, placed in sent.items():
                self.ledger[part] += placed


def until(reached: Callable[[], bool], what: str) -> None:
    """Wait until it is so."""
    end = time.monotonic() + WAIT_S_MAX
    while not reached():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


def standing(bootstrap: str) -> Ledger:
    """What read_committed sees of the three topics now."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "standing", "enable.auto.commit": False}
    settings |= {"isolation.level": "read_committed", "fetch.wait.max.ms": 50}
    reader = Consumer({**settings, "enable.partition.eof": True})
    found: Ledger = {}
    try:
        for topic, count in PARTITIONS.items():
            for index in range(count):
                found[topic, index] = _partition(reader, topic, index)
    finally:
        reader.close()
    return found


def _partition(reader: Consumer, topic: str, index: int) -> list[Placed]:
    reader.assign([TopicPartition(topic, index, 0)])
    found: list[Placed] = []
    while True:
        message = reader.poll(WAIT_S_MAX)
        assert message is not None, f"the end of {topic}-{index} did not come"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found
        found.append(placed(message))


def placed(message: Message) -> Placed:
    """A message as the ledger has it."""
    headers = tuple(message.headers() or ())
    return Placed(message.offset(), Rec(message.timestamp()[1], message.key(), message.value(), headers))


def differences(ledgers: Sequence[Ledger], found: Ledger) -> list[str]:
    """Where a cluster has not what was acknowledged, one ledger behind the other: each record once, in order
    in its partition. Of a compacted topic earlier states of a key may be gone, the last one not."""
    told: list[str] = []
    for part, placed in found.items():
        wanted = [each.rec for ledger in ledgers for each in sorted(ledger[part], key=lambda one: one.offset)]
        there = [each.rec for each in placed]
        if part[0] == CUSTOMERS:
            told += _states(part, wanted, there)
        elif wanted != there:
            pairs = zip(wanted, there, strict=False)
            at = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), -1)
            told.append(
                f"{part}: {len(wanted)} acknowledged, {len(there)} there; the first that differs is {at}: "
                f"{wanted[at : at + 1]} is {there[at : at + 1]}"
            )
    return told


def _states(part: Part, wanted: list[Rec], there: list[Rec]) -> Iterator[str]:
    rest = iter(wanted)
    strange = next((rec for rec in there if rec not in rest), None)  # consumes: an ordered part of it
    if strange is not None:
        yield f"{part}: {strange} was not sent, or not in that order, or is there twice"
    last = [{rec.key: rec for rec in each} for each in (wanted, there)]
    if last[0] != last[1]:
        yield f"{part}: the last states differ: {set(last[0].values()) ^ set(last[1].values())}"


def member_reads(bootstrap: str, group: str, topics: Sequence[str], count: int) -> list[Placed]:
    """A member of the group that reads so many records of the topics, commits and leaves. It begins at the
    group's positions; where there are none, at the start."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    member = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    found: list[Message] = []
    try:
        member.subscribe(list(topics))
        end = time.monotonic() + WAIT_S_MAX
        while len(found) < count:
            assert time.monotonic() < end, f"{group} got {len(found)} of {count} records"
            for message in member.consume(count - len(found), 0.2):
                assert message.error() is None, message.error()
                found.append(message)
        if found:
            member.commit(asynchronous=False)
    finally:
        member.close()
    return [placed(message) for message in found]


def positions(bootstrap: str, group: str) -> dict[Part, int]:
    """Where a group stands."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = asked[group].result(WAIT_S_MAX).topic_partitions or []
    return {(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def rest(group: dict[Part, int], of: Ledger) -> dict[Part, list[Rec]]:
    """What the group has still to read."""
    return {
        part: [each.rec for each in sorted(of[part], key=lambda one: one.offset) if each.offset >= offset]
        for part, offset in group.items()
    }
