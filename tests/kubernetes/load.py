"""The load of an experiment, on a topic of its own, and its verdict: errors, losses, doubles, longest pauses.

Two idempotent producers, a producer of transactions and two members of a group, all librdkafka's, by the
Service's name-less address as any application of the cluster; they read committed records.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from deploy.kubernetes.namespaces import PATIENCE
from tests.torture.rolling import GroupMember, IdempotentProducer, Observed, Rdkafka
from tests.torture.workload import consumer, read_all

PARTITIONS = 6
RATE = 20
"""Records a second of each producer: two cores have to have room for agents that start, and for what
Kubernetes does for them; a wait is seen to a twentieth of a second."""
LIGHT_RATE = 10
"""Where the cores are for something else: an autoscaler's burst, Spark."""
IN_A_TRANSACTION = 10
ATTEMPT_SECONDS_MAX = 60
BEGIN_SECONDS_MAX = 120 * PATIENCE
END_SECONDS_MAX = 120 * PATIENCE
BURST_BYTES = 100
IN_FLIGHT = 50
SETTLE_S = 2.0
ERRORS_SHOWN = 5
READ_AT_ONCE = 10_000
LONG_S = 0.4


@dataclass(slots=True)
class Result:
    """What one experiment did to its clients. Pauses and waits in seconds, by kind of client."""

    name: str
    seconds: float = 0.0
    rate: int = RATE
    """Records a second of each producer."""
    acknowledged: int = 0
    stored: int = 0
    """What a reader of its whole topic found."""
    lost: int = 0
    doubled: int = 0
    unread: int = 0
    """Stored records that the group never saw."""
    errors: int = 0
    """Told to an application, beyond transactions that had to be aborted and were repeated."""
    aborted: int = 0
    pauses: dict[str, float] = field(default_factory=dict)
    """The longest time in which one client had no sign of life."""
    waits_p99: dict[str, float] = field(default_factory=dict)
    """Over all that was due in the experiment."""
    waits_longest: dict[str, float] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)
    """The first errors, in the client's words."""
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """For results.json."""
        return asdict(self)

    @property
    def clean(self) -> bool:
        """Nothing lost, doubled or unread, no error told."""
        return not (self.lost or self.doubled or self.unread or self.errors)


class Transactor(Rdkafka):
    """IN_A_TRANSACTION records, then a commit, `rate` of them a second; what is to be aborted comes again."""

    def __init__(self, name: str, bootstrap: str, topic: str, rate: int = RATE, **more: Any) -> None:
        """`more`: settings of the client."""
        super().__init__(name)
        self._topic, self._rate = topic, rate
        self.aborted = 0
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{name}-{topic}",
            "linger.ms": 5,
            "error_cb": self._event,
            "log_level": 0,
        }
        self._producer = Producer(settings | more)

    def run(self) -> None:
        try:
            self._again(lambda: self._producer.init_transactions(ATTEMPT_SECONDS_MAX))
            begun, number = time.monotonic(), 0
            while not self._halt.is_set():
                time.sleep(max(0.0, number / self._rate - (time.monotonic() - begun)))
                due = time.monotonic()  # one after another: one that waits holds up the next ones
                values = [f"{self.name}-{number + n}".encode() for n in range(IN_A_TRANSACTION)]
                while not self._committed(values):
                    self.aborted += 1
                now = time.monotonic()
                self.seen.times.append(now)
                self.seen.waits.append((due, now - due))
                self.seen.values.extend(values)
                number += IN_A_TRANSACTION
        except KafkaException as error:
            self.seen.errors.append(f"fatal: {error}")

    def _committed(self, values: list[bytes]) -> bool:
        try:
            self._producer.begin_transaction()
            for value in values:
                self._producer.produce(self._topic, value, key=value)
            self._again(lambda: self._producer.commit_transaction(ATTEMPT_SECONDS_MAX))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._again(lambda: self._producer.abort_transaction(ATTEMPT_SECONDS_MAX))
            return False
        return True

    def _again(self, step: Callable[[], object]) -> None:
        """As the client's manual asks: a retriable error means to call again."""
        deadline = time.monotonic() + END_SECONDS_MAX
        while True:
            try:
                step()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
            else:
                return


class Burst:
    """`with Burst(…)`: a producer of small requests to a topic of its own, `rate` a second where so many are
    taken; no other verdict than how many records were acknowledged, and how many were not, `lost`."""

    def __init__(self, bootstrap: str, topic: str, rate: int) -> None:
        self._bootstrap, self._topic, self._rate = bootstrap, topic, rate
        self.acknowledged = self.sent = 0
        self.told = Counter[str]()
        self._halt = threading.Event()
        self._thread = threading.Thread(target=self._run, name=topic, daemon=True)

    @property
    def lost(self) -> int:
        """Records that were sent and never acknowledged."""
        return self.sent - self.acknowledged

    def __enter__(self) -> Self:
        _made(self._bootstrap, self._topic)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._halt.set()
        self._thread.join(END_SECONDS_MAX)

    def _run(self) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self._bootstrap,
            "queue.buffering.max.messages": 1_000,
            "batch.num.messages": 1,  # many small requests side by side are what costs agents
            "linger.ms": 0,
            "max.in.flight.requests.per.connection": IN_FLIGHT,
            "log_level": 0,
        }
        producer, value = Producer(settings), bytes(BURST_BYTES)
        begun = time.monotonic()
        while not self._halt.is_set():
            ahead = self.sent / self._rate - (time.monotonic() - begun)
            if ahead > 0:
                producer.poll(min(ahead, 0.01))
                continue
            try:
                producer.produce(self._topic, value, on_delivery=self._delivered)
                self.sent += 1
            except BufferError:
                producer.poll(0.05)
            producer.poll(0)
        producer.flush(END_SECONDS_MAX)

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        self.acknowledged += error is None
        if error is not None:
            self.told[str(error)] += 1


def _made(bootstrap: str, topic: str, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = NewTopic(topic, PARTITIONS, config=dict(config or {}))
    made = admin.create_topics([wanted], operation_timeout=BEGIN_SECONDS_MAX)
    made[topic].result(BEGIN_SECONDS_MAX)


class UtcTimes(logging.Formatter):
    """As the agents' logs have them."""

    converter = staticmethod(time.gmtime)


class Load:
    """Clients that run from `begin` to `judge`."""

    def __init__(
        self,
        bootstrap: str,
        name: str,
        kept: Path,
        rate: int = RATE,
        settings: Mapping[str, str] | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """`kept`: the folder for what it writes of waits that were long. `rate`: records a second of each
        producer. `settings`: of clients that come by another way; who makes the topic, with `config`, and
        reads it all comes by `bootstrap`."""
        self._bootstrap, self._kept = bootstrap, kept
        self._rate, self._settings, self._config = rate, dict(settings or {}), config
        self.topic = f"load-{name}"
        self._producers: list[IdempotentProducer | Transactor] = []
        self._members: list[GroupMember] = []

    def begin(self) -> None:
        """Make the topic, start everybody, wait until each has done something."""
        _made(self._bootstrap, self.topic, self._config)
        at, topic, rate, more = self._bootstrap, self.topic, self._rate, self._settings
        self._producers = [
            IdempotentProducer("idempotent-0", at, topic, rate, **more),
            IdempotentProducer("idempotent-1", at, topic, rate, **more),
            Transactor("transactions", at, topic, rate, **more),
        ]
        protocols = ("classic", "consumer")
        self._members = [
            GroupMember(f"group-{kind}", at, topic, f"{topic}-{kind}", kind, self._log(kind), **more)
            for kind in protocols
        ]
        for client in (*self._producers, *self._members):
            client.start()
        for client in (*self._producers, *self._members):
            _until(partial(_has_begun, client), f"{client.seen.name} did not begin")

    def _log(self, kind: str) -> logging.Logger:
        """A file for what a member's client says of where it reads: who waits long is asked there why."""
        log = logging.Logger(kind, logging.DEBUG)
        handler = logging.FileHandler(self._kept / f"client-{self.topic}-{kind}.log", "w", delay=True)
        handler.setFormatter(UtcTimes("%(asctime)s.%(msecs)03d %(message)s", "%H:%M:%S"))
        log.addHandler(handler)
        return log

    def judge(self, name: str, begun: float, ended: float, note: str) -> Result:
        """Stop, read everything, compare; the pauses between the two times."""
        for producer in self._producers:
            producer.stop()
        found = read_all(self._bootstrap, self.topic, range(PARTITIONS))
        stored = Counter(value for records in found.values() for _, value in records)
        told = [value for producer in self._producers for value in producer.seen.values]
        result = Result(name, round(ended - begun, 1), self._rate, len(told), note=note)
        result.stored = sum(stored.values())
        result.lost, result.doubled = compared(told, stored)
        for member in self._members:
            try:
                _until(partial(_has_read, member, stored), "")
            except AssertionError:
                result.unread += len(unread(member.seen.values, stored))
            member.stop()
        everybody = [*self._producers, *self._members]
        errors = [f"{client.seen.name}: {error}" for client in everybody for error in client.seen.errors]
        result.errors, result.told = len(errors), errors[:ERRORS_SHOWN]
        result.aborted = sum(each.aborted for each in self._producers if isinstance(each, Transactor))
        seen = [client.seen for client in everybody]
        _time(result, seen, begun, ended)
        (self._kept / f"waits-{self.topic}.txt").write_text("\n".join(slow(seen, begun, ended)) + "\n")
        return result


def stored(bootstrap: str, topics: Iterable[str]) -> int:
    """How many records there are, by one reader of all partitions that stops at the end of each: nobody
    writes them any more."""
    client = consumer(bootstrap, **{"enable.partition.eof": True})
    places = {(topic, partition) for topic in topics for partition in range(PARTITIONS)}
    client.assign([TopicPartition(topic, partition, 0) for topic, partition in places])
    count, deadline = 0, time.monotonic() + END_SECONDS_MAX
    while places:
        assert time.monotonic() < deadline, f"the last read is stuck before the ends of {sorted(places)}"
        for message in client.consume(READ_AT_ONCE, 0.1):
            error = message.error()
            count += error is None
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                places.discard((message.topic(), message.partition()))
    client.close()
    return count


def _time(result: Result, everybody: Sequence[Observed], begun: float, ended: float) -> None:
    """Pauses and waits of each kind of client between the two times."""
    for kind in dict.fromkeys(_kind(seen) for seen in everybody):
        of_kind = [seen for seen in everybody if _kind(seen) == kind]
        result.pauses[kind] = round(max(seen.pause(begun, ended) for seen in of_kind), 2)
        waits = sorted(wait for seen in of_kind for wait in seen.waited(begun, ended))
        result.waits_p99[kind] = round(percentile(waits, 0.99), 2)
        result.waits_longest[kind] = round(waits[-1], 2)


def slow(everybody: Sequence[Observed], begun: float, ended: float) -> list[str]:
    """Of each client, runs of records that waited LONG_S or more: when the first of them was due by the
    clock that the agents' logs have, how many they are, and how long the slowest waited."""
    told = [f"from {_clock(begun)} to {_clock(ended)}"]
    for seen in everybody:
        long = sorted((due, wait) for due, wait in seen.waits if begun <= due <= ended and wait >= LONG_S)
        runs = list[list[tuple[float, float]]]()
        for each in long:
            if not runs or each[0] - runs[-1][-1][0] > LONG_S:
                runs.append([])
            runs[-1].append(each)
        for run in runs:
            longest = max(wait for _, wait in run)
            told.append(f"{_clock(run[0][0])} {seen.name}: {len(run)} records, {longest:.2f} s the slowest")
    return told


def _clock(monotonic: float) -> str:
    """A time of the monotonic clock as UTC."""
    at = datetime.fromtimestamp(time.time() - (time.monotonic() - monotonic), UTC)
    return at.strftime("%H:%M:%S.%f")[:-3]


def _kind(seen: Observed) -> str:
    return seen.name.partition("-")[0]


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest of these, which are in order, that at least this share of them does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def _has_begun(client: Rdkafka) -> bool:
    return bool(client.seen.values)


def _has_read(member: GroupMember, stored: Mapping[bytes, int]) -> bool:
    return not unread(member.seen.values, stored)


def compared(told: Iterable[bytes], stored: Mapping[bytes, int]) -> tuple[int, int]:
    """How many acknowledged values are not stored, and how many are stored more than once."""
    return sum(value not in stored for value in told), sum(count > 1 for count in stored.values())


def unread(values: Iterable[bytes], stored: Mapping[bytes, int]) -> set[bytes]:
    """What is stored, and was never among these values of a reader."""
    return set(stored).difference(values)


def _until(holds: Callable[[], object], otherwise: str) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
