"""A rolling restart under load, and what its clients saw: errors, losses, doubles, and how long they waited.

Clients: librdkafka's idempotent producers and a consumer group, Java's VerifiableProducer and
VerifiableConsumer. A client's pause in a restart is the longest time that passed between two acknowledgements
(or two records), from the moment the agent is told to stop until it is back and `SETTLE_S` have passed.
"""

from __future__ import annotations

import itertools
import json
import logging
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer

from deploy.services.floe import FloeAgent
from deploy.services.kafka import TOOLS, java_command
from tests.equipment.zoned import Zoned
from tests.torture.workload import read_all

SETTLE_S = 3.0
RATE = 100  # records a second of each producer
END_SECONDS_MAX = 180
STANDS_STILL_S = 0.8
INFORMATION = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
"""What librdkafka tells of connections by itself: its client goes on, no call of the application fails."""


@dataclass(slots=True)
class Observed:
    """What one client saw. Times are the monotonic clock's, seconds."""

    name: str
    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    values: list[bytes] = field(default_factory=list)
    waits: list[tuple[float, float]] = field(default_factory=list)
    """When each record was due, and how long after that its producer was told that it is there, or its reader
    had it; of transactions, until they were committed."""

    def waited(self, begun: float, ended: float) -> list[float]:
        """Of what was due in the interval, seconds."""
        return [seconds for due, seconds in self.waits if begun <= due <= ended]

    def pause(self, begun: float, ended: float) -> float:
        """The longest time without a sign of life that touches the interval."""
        times = [begun, *(t for t in self.times if begun <= t <= ended), ended]
        times[0] = max((t for t in self.times if t < begun), default=begun)
        return max(after - before for before, after in itertools.pairwise(times))


class Rdkafka(threading.Thread):
    """A librdkafka client in a thread of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.seen = Observed(name)
        self._halt = threading.Event()

    def _event(self, error: KafkaError) -> None:
        if error.code() not in INFORMATION:
            self.seen.errors.append(str(error))

    def stop(self) -> None:
        """Come to an end."""
        self._halt.set()
        self.join(END_SECONDS_MAX)
        assert not self.is_alive(), f"{self.name} is stuck"


class IdempotentProducer(Rdkafka):
    """acks=all, idempotent, `rate` records a second; the values it was told are stored are `values`."""

    def __init__(self, name: str, bootstrap: str, topic: str, rate: int = RATE, **more: Any) -> None:
        """`more`: settings of the client."""
        super().__init__(name)
        self._topic, self._rate = topic, rate
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "error_cb": self._event,
            "log_level": 0,
        }
        self._producer = Producer(settings | more)

    def run(self) -> None:
        begun, number = time.monotonic(), 0
        while not self._halt.is_set():
            ahead = number / self._rate - (time.monotonic() - begun)
            if ahead > 0:
                self._producer.poll(min(ahead, 0.01))
                continue
            value = f"{self.name}-{number}".encode()
            told = partial(self._delivered, begun + number / self._rate)
            self._producer.produce(self._topic, value, key=value, on_delivery=told)
            number += 1
        if left := self._producer.flush(END_SECONDS_MAX):
            self.seen.errors.append(f"{left} records were never answered for")

    def _delivered(self, due: float, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.seen.errors.append(str(error))
            return
        now = time.monotonic()
        self.seen.times.append(now)
        self.seen.waits.append((due, now - due))
        self.seen.values.append(message.value() or b"")


class GroupMember(Rdkafka):
    """Subscribes, reads, commits by itself as most applications do."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        group: str,
        protocol: str,
        log: logging.Logger | None = None,
        **more: Any,
    ) -> None:
        """`more`: settings of the client. `log`: of where it reads what, and why it goes elsewhere."""
        super().__init__(name)
        if log is not None:
            more |= {"debug": "topic,metadata,fetch,cgrp", "log_level": 7, "logger": log}
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "fetch.wait.max.ms": 100,
            "error_cb": self._event,
            "log_level": 0,
        }
        self.revoked = 0
        self._consumer = Consumer(settings | more)
        self._consumer.subscribe([topic], on_revoke=self._revoked)

    def _revoked(self, _consumer: Consumer, _partitions: object) -> None:
        self.revoked += 1

    def run(self) -> None:
        while not self._halt.is_set():
            for message in self._consumer.consume(200, 0.1):
                error = message.error()
                if error is not None:
                    self.seen.errors.append(str(error))
                    continue
                now = time.monotonic()
                wait = time.time() - message.timestamp()[1] / 1000  # which the producer wrote, here
                self.seen.times.append(now)
                self.seen.waits.append((now - wait, wait))
                self.seen.values.append(message.value() or b"")
        self._consumer.close()


class Java:
    """One of Kafka's verifiable clients as a process; its lines are read as they come."""

    def __init__(self, name: str, kind: str, directory: Path, *arguments: str) -> None:
        self.seen = Observed(name)
        self._log = (directory / f"{name}.log").open("wb")
        self._process = subprocess.Popen(
            java_command(TOOLS[kind], *arguments), stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._reading = threading.Thread(target=self._read, name=name, daemon=True)

    def start(self) -> None:
        """Begin to listen to it."""
        self._reading.start()

    def stop(self) -> None:
        """SIGTERM: the client finishes and says what it did."""
        self._process.terminate()
        self._process.wait(END_SECONDS_MAX)
        self._reading.join(END_SECONDS_MAX)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """Leave no process behind, whatever failed."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                told = json.loads(line)
            except ValueError:
                continue
            self._note(told.get("name", ""), told)

    def _note(self, name: str, told: dict[str, Any]) -> None:
        if name in ("producer_send_success", "record_data"):
            self.seen.times.append(time.monotonic())
            self.seen.values.append(str(told["value"]).encode())
        elif name == "producer_send_error" or (name == "offsets_committed" and not told.get("success")):
            self.seen.errors.append(json.dumps(told))


@dataclass(slots=True)
class Outcome:
    """What a rolling restart did to its clients."""

    findings: list[str]
    pauses: list[tuple[str, float]]
    acknowledged: int
    stored: int
    revocations: int

    def percentile(self, share: float) -> float:
        """Of all pauses, one per client and restart, seconds."""
        ordered = sorted(seconds for _, seconds in self.pauses)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

    def report(self) -> str:
        """Figures, then the findings."""
        worst = ", ".join(f"{name} {seconds:.2f}" for name, seconds in sorted(self.pauses, key=_size)[-4:])
        head = (
            f"acknowledged {self.acknowledged} · stored {self.stored} · revocations {self.revocations} · "
            f"pauses: median {self.percentile(0.5):.2f} s, p99 {self.percentile(0.99):.2f} s ({worst})"
        )
        return "\n".join([head, *self.findings[:20]])


def _size(pause: tuple[str, float]) -> float:
    return pause[1]


def clients(
    cluster: Zoned, topic: str, directory: Path
) -> tuple[Sequence[IdempotentProducer | Java], Mapping[str, Sequence[GroupMember | Java]]]:
    """The producers, and the members of three groups: classic, KIP-848, Java's."""
    at = cluster.bootstrap
    common = ("--bootstrap-server", at, "--topic", topic)
    usual = directory / "usual.properties"  # the tool itself turns retries off, which no application does
    usual.write_text("enable.idempotence=true\nretries=2147483647\n")
    paced = ("--throughput", str(RATE), "--value-prefix", "7", "--command-config", str(usual))
    producers: list[IdempotentProducer | Java] = [
        IdempotentProducer("rdkafka-0", at, topic),
        IdempotentProducer("rdkafka-1", at, topic),
        Java("java-producer", "verifiable-producer", directory, *common, *paced),
    ]
    members: dict[str, list[GroupMember | Java]] = {
        "classic": [GroupMember(f"classic-{n}", at, topic, "classic", "classic") for n in range(2)],
        "kip848": [GroupMember("kip848", at, topic, "kip848", "consumer")],
        "java": [
            Java("java-member", "verifiable-consumer", directory, *common, "--group-id", "java", "--verbose")
        ],
    }
    return producers, members


def _unread(stored: Counter[bytes], mates: Sequence[GroupMember | Java]) -> set[bytes]:
    return set(stored).difference(*(mate.seen.values for mate in mates))


def roll(cluster: Zoned, rounds: int, *, moving: bool) -> Iterator[tuple[float, float]]:
    """Restart one agent after another; the time of each, from SIGTERM until it has settled. `moving`: every
    other one comes back under another address, as pods do, and the one before it stands still as one leaves,
    which therefore serves for a while though Metadata does not have it any more."""
    for _ in range(rounds):
        for number, agent in enumerate(cluster.agents):
            begun = time.monotonic()
            with _stands_still(cluster.agents[number - 1]) if moving else nullcontext():
                agent.terminate()
            if moving and number % 2 == 0:
                agent.move()
            agent.start()
            time.sleep(SETTLE_S)
            yield begun, time.monotonic()


@contextmanager
def _stands_still(agent: FloeAgent) -> Iterator[None]:
    """For a moment from now on: less than others need to miss it."""
    agent.pause()
    again = threading.Timer(STANDS_STILL_S, agent.resume)
    again.start()
    try:
        yield
    finally:
        again.join()


def rolling_restart(
    cluster: Zoned, topic: str, directory: Path, *, rounds: int = 1, partitions: int = 6, moving: bool = False
) -> Outcome:
    """Run all clients through restarts of every agent, and judge."""
    return disturbed(cluster, topic, directory, roll(cluster, rounds, moving=moving), partitions)


def disturbed(
    cluster: Zoned, topic: str, directory: Path, disturbances: Iterator[tuple[float, float]], partitions: int
) -> Outcome:
    """Run all clients while `disturbances` does what it does and tells when; then judge."""
    producers, groups = clients(cluster, topic, directory)
    try:
        return _gone_through(cluster, topic, producers, groups, disturbances, partitions)
    finally:
        for client in (*producers, *itertools.chain.from_iterable(groups.values())):
            if isinstance(client, Java):
                client.kill()


def _gone_through(
    cluster: Zoned,
    topic: str,
    producers: Sequence[IdempotentProducer | Java],
    groups: Mapping[str, Sequence[GroupMember | Java]],
    disturbances: Iterator[tuple[float, float]],
    partitions: int,
) -> Outcome:
    members = [member for mates in groups.values() for member in mates]
    everybody = [*producers, *members]
    for client in everybody:
        client.start()
    for client in everybody:
        _until(lambda client=client: client.seen.values, f"{client.seen.name} did not begin")
    time.sleep(SETTLE_S)
    windows = list(disturbances)
    for producer in producers:
        producer.stop()
    stored = Counter(
        value
        for records in read_all(cluster.bootstrap, topic, range(partitions)).values()
        for _, value in records
    )
    for group, mates in groups.items():
        _until(lambda mates=mates: not _unread(stored, mates), f"group {group} does not read to the end")
    for member in members:
        member.stop()
    told = [value for producer in producers for value in producer.seen.values]
    findings = [f"{client.seen.name}: error {error}" for client in everybody for error in client.seen.errors]
    findings += [f"lost: {value!r}" for value in told if value not in stored]
    findings += [
        f"doubled: {value!r} is stored {count} times" for value, count in stored.items() if count > 1
    ]
    pauses = [(client.seen.name, client.seen.pause(*window)) for client in everybody for window in windows]
    revocations = sum(member.revoked for member in members if isinstance(member, GroupMember))
    return Outcome(findings, pauses, len(told), sum(stored.values()), revocations)


def _until(holds: Any, otherwise: str) -> None:
    deadline = time.monotonic() + END_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)
