"""Jepsen's mixes over a cluster that suffers: queue by subscribe, transactions, aborts, lists.

The clients live in threads; what they did is one history (tests/checker). Sends, polls and transactions are
those of tests/torture; here is what they lack: members of one group, lists, and the life around them.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.checker.findings import Finding
from tests.checker.operations import Micro, Outcome, Send
from tests.torture.cluster import Cluster
from tests.torture.faults import Step, act
from tests.torture.late_clients import RdKafka, Transacting, hush
from tests.torture.late_ends import ended, read_all
from tests.torture.late_work import PARTITIONS, Done, Places, Recorder, Worker
from tests.torture.run import create_topic
from tests.torture.workload import BASE

POLL_S, POLL_MAX = 0.1, 500
SENDS_MAX = 4
DELIVERY_MS = 120_000  # long enough that no client gives up by itself and sends again under new numbers
ANSWER_S_MAX = 130.0
PAUSE_S = 0.02
LIST_S_MAX = 30.0
LIST_KEYS = 4


class Client(Protocol):
    """A thread that works until it is told to stop."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """After what is under way."""

    def joined(self) -> None:
        """Wait for its end. Raises AssertionError when it is stuck."""


class Member(threading.Thread):
    """Sends idempotently, and reads as a member of the one group that commits behind each poll."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str, recorder: Recorder) -> None:
        super().__init__(name=name, daemon=True)
        self._topic, self._recorder, self._random = topic, recorder, random.Random(name)
        self._halt, self._moved, self._sent = threading.Event(), set[int](), 0
        self._process = recorder.process()
        own = {**BASE, "bootstrap.servers": bootstrap}
        settings = {"enable.idempotence": True, "delivery.timeout.ms": DELIVERY_MS, "linger.ms": 0}
        self._producer = Producer({**own, **settings})
        reads = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        timing = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 300, "fetch.wait.max.ms": 100}
        self._consumer = Consumer({**own, **reads, **timing})

    def run(self) -> None:
        every = tuple(range(PARTITIONS))
        self._consumer.subscribe(
            [self._topic], on_assign=self._moves, on_revoke=self._moves, on_lost=self._moves
        )
        self._recorder.note(self._process, "subscribe", "ok", time.monotonic_ns(), partitions=every)
        while not self._halt.is_set():
            self._halt.wait(self._random.expovariate(1 / PAUSE_S))
            (self._send if self._random.random() < 0.5 else self._poll)()
        self._consumer.close()

    def stop(self) -> None:
        """See Client."""
        self._halt.set()

    def joined(self) -> None:
        """See Client."""
        self.join(ANSWER_S_MAX)
        assert not self.is_alive(), f"{self.name} is stuck"

    def _moves(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._moved |= {each.partition for each in partitions}

    def _send(self) -> None:
        invoked, told = time.monotonic_ns(), dict[str, int | None]()
        sends: list[tuple[int, str]] = []
        for _ in range(self._random.randint(1, SENDS_MAX)):
            self._sent += 1
            sends.append((self._random.randrange(PARTITIONS), f"{self.name}.{self._sent}"))

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                told[message.value().decode()] = message.offset() if message.offset() >= 0 else None

        for partition, value in sends:
            self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=delivered)
        self._producer.flush(ANSWER_S_MAX)
        micro = tuple(Send(self._recorder.key(p), value, told.get(value)) for p, value in sends)
        outcome: Outcome = "ok" if len(told) == len(sends) else "info"
        self._recorder.note(self._process, "send", outcome, invoked, micro)

    def _poll(self) -> None:
        invoked, found = time.monotonic_ns(), dict[int, list[tuple[int, str]]]()
        self._moved.clear()
        for message in self._consumer.consume(POLL_MAX, POLL_S):
            if message.error() is None:
                row = (message.offset(), message.value().decode())
                found.setdefault(message.partition(), []).append(row)
        poll = self._recorder.poll(found)
        self._recorder.note(self._process, "poll", "ok", invoked, (poll,), moved=self._moved)
        try:
            self._consumer.commit(asynchronous=True)
        except KafkaException as error:  # nothing to commit; whether a commit arrives is the group's matter
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise


class Aborting(Worker):
    """Transactions of which most are aborted, its reader set back (KAFKA-17582)."""

    aborted_of = 0.3


class Brief(RdKafka):
    """A client whose transactions time out after a second."""

    gives_up_ms, transaction_ms, delivery_ms = 900, 1_000, 1_000


class Hasty(Worker):
    """Works with such clients."""

    @staticmethod
    def client_of(kind: str) -> Callable[[str, str, str, str], Transacting]:
        """See Worker."""
        return Brief


class Lists(Worker):
    """List-append: a key is a list, appended to and read whole inside of transactions, each key once."""

    def _micro(self, client: Transacting, done: Done) -> bool:
        for partition in self._random.sample(range(LIST_KEYS), self._random.randint(1, LIST_KEYS)):
            if self._random.random() < self.aborted_of:
                return False
            if self._random.random() < self.polls_of:
                done.micro.append(self._whole(partition))
            else:
                self._send_to(client, done, partition)
        return self._random.random() > self.aborted_of

    def _whole(self, partition: int) -> Micro:
        """The list as a fresh reader of committed records finds it."""
        settings = {"group.id": f"{self.name}-list", "isolation.level": "read_committed"}
        eof = {"enable.partition.eof": True, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        reader = Consumer({**BASE, "bootstrap.servers": self._places.bootstrap, **settings, **eof})
        rows: list[tuple[int, str]] = []
        deadline = time.monotonic() + LIST_S_MAX
        try:
            reader.assign([TopicPartition(self._places.topic, partition, 0)])
            while time.monotonic() < deadline:
                for message in reader.consume(POLL_MAX, POLL_S):
                    if message.error() is None:
                        rows.append((message.offset(), message.value().decode()))
                    elif message.error().code() == KafkaError._PARTITION_EOF:
                        return self._recorder.poll({partition: rows} if rows else {})
        finally:
            reader.close()
        raise TimeoutError(f"the list of partition {partition} does not end")

    def _assign(self, client: Transacting, process: int) -> None:
        """Lists have no place where a reader stands."""

    def _note(self, process: int, done: Done, outcome: Outcome, invoked: int, error: str) -> None:
        """Each transaction is a process of its own: its reads begin anew."""
        super()._note(self._recorder.process(), done, outcome, invoked, error)


@dataclass
class Mixed:
    """What a mix left."""

    recorder: Recorder
    clients: list[Client]
    happened: list[tuple[str, int, int]] = field(default_factory=list)
    """Each fault, from when to when (the monotonic clock's ns)."""
    healed_ns: int = 0
    hanging: list[Finding] = field(default_factory=list)
    """Transactions that nobody ended in time."""


def noted(steps: Iterable[Step], happened: list[tuple[str, int, int]]) -> Iterable[Step]:
    """The steps, each written down when the next one is asked for."""
    for step in steps:
        begun = time.monotonic_ns()
        yield step
        happened.append((str(step).split(" for ")[0], begun, begun + int(step.seconds * 1e9)))


def live(cluster: Cluster, topic: str, made: Mixed, steps: Iterable[Step], settle_s: float) -> None:
    """The clients through all steps, then `settle_s` in peace; then everything is read by a fresh client.

    Whatever ends it, no client goes on: the runs behind it would have its load.
    """
    try:
        for client in made.clients:
            client.start()
        for step in noted(steps, made.happened):
            print(f"  {time.strftime('%H:%M:%S')} {step}", flush=True)
            act(cluster, step)
        cluster.heal()
        made.healed_ns = time.monotonic_ns()
        time.sleep(settle_s)
    finally:
        for client in made.clients:
            client.stop()
    for client in made.clients:
        client.joined()
    made.hanging = ended(cluster.bootstrap, topic)  # what dead clients left open hides what stands behind it
    read_all(cluster.bootstrap, made.recorder, topic)


def members(cluster: Cluster, topic: str, count: int) -> Mixed:
    """Queue by subscribe: all are one group."""
    create_topic(cluster.bootstrap, topic, PARTITIONS)
    recorder = Recorder(topic)
    made = [Member(f"m{n}", cluster.bootstrap, f"{topic}-group", topic, recorder) for n in range(count)]
    return Mixed(recorder, list(made))


def workers(
    cluster: Cluster, topic: str, kinds: Sequence[str], seed: int, worker: type[Worker] = Worker
) -> Mixed:
    """Transactions: each client with a transactional id and a group of its own."""
    hush()
    create_topic(cluster.bootstrap, topic, PARTITIONS)
    recorder = Recorder(topic)
    made = Mixed(recorder, [])
    for number, kind in enumerate(kinds):
        name = f"{topic}-{kind}-{number}"
        places = Places(cluster.bootstrap, cluster.bootstrap, name, f"{name}-group", topic)
        made.clients.append(worker(kind, places, recorder, seed * 1000 + number))
    return made
