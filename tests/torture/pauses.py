"""How long clients wait while one agent of three is not well: a table of their longest pauses.

    python -m tests.torture.pauses --repeats 4 [--only "without etcd"] [--seconds 8]

Each case makes one agent sick for some seconds, another one each time, then well again. A pause is the
longest time between two records acknowledged (or read) of one partition, from the fault until after the agent
is back; the table tells how they are spread over partitions and repeats. Clients and Floe have their makers'
settings. What lasts longer than GOAL_S is a finding, but for cases where all are sick or no broker could do
better.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from pydantic import BaseModel

from agent.config.limits import HealthConfig
from agent.config.sections import LogConfig, StoreConfig
from tests.torture.cluster import FAST, Cluster, Member
from tests.torture.jumping_agent import JumpingAgent
from tests.torture.links import StoreProxy
from tests.torture.run import create_topic

GOAL_S = 5.0
TOPIC = "pauses"
PARTITIONS = tuple(range(6))
SLEEP_S = 0.05  # between two records of a partition and producer
SLOW_S = 1.5  # of each piece of data to and from the slow store
BACK_SECONDS_MAX = 90
WORDS_SECONDS_MAX = 60
RESULTS = Path(__file__).parent / "results" / "pauses.json"

Times = dict[int, list[float]]  # by partition: when something went well


def as_configured() -> dict[str, dict[str, Any]]:
    """What a cluster for torture hurries, as the makers of Floe have it."""
    made: dict[str, type[BaseModel]] = {"log": LogConfig, "store": StoreConfig}
    return {
        name: {each: section.model_fields[each].default for each in FAST[name]}
        for name, section in made.items()
    }


class Client(threading.Thread):
    """One client. `went_well`: when, by partition; `failures`: what reached the application."""

    def __init__(self, name: str, bootstrap: str) -> None:
        super().__init__(name=name, daemon=True)
        self.went_well: Times = {each: [] for each in PARTITIONS}
        self.failures: list[str] = []
        self.servers = bootstrap
        self.halt = threading.Event()

    def noted(self, partition: int) -> None:
        """A record was acknowledged, or read."""
        self.went_well[partition].append(time.monotonic())

    def stop(self) -> None:
        """Come to an end."""
        self.halt.set()
        self.join(WORDS_SECONDS_MAX)
        assert not self.is_alive(), f"{self.name} is stuck"

    def pauses_s(self, begun: float, ended: float) -> list[float]:
        """The longest pause of each partition in this time."""
        found = []
        for times in self.went_well.values():
            inside = [begun, *(at for at in list(times) if begun < at < ended), ended]
            found.append(max(after - before for before, after in pairwise(inside)))
        return found


class RdProducer(Client):
    """librdkafka: idempotent, one record a partition each SLEEP_S."""

    def run(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        while not self.halt.is_set():
            for partition in PARTITIONS:
                with suppress(BufferError):
                    producer.produce(TOPIC, b"r", partition=partition, on_delivery=self._delivered)
            until = time.monotonic() + SLEEP_S
            while (left := until - time.monotonic()) > 0:
                producer.poll(left)
        producer.flush(WORDS_SECONDS_MAX)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.noted(int(message.partition() or 0))
        else:
            self.failures.append(str(error))


class RdConsumer(Client):
    """librdkafka: reads all partitions from their ends."""

    def run(self) -> None:
        settings = {"bootstrap.servers": self.servers, "group.id": "pauses", "log_level": 0}
        consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "latest"})
        consumer.assign([TopicPartition(TOPIC, partition) for partition in PARTITIONS])
        while not self.halt.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    self.noted(int(message.partition() or 0))
        consumer.close()


class AioProducer(Client):
    """aiokafka: idempotent, the next record of a partition once the one before is acknowledged."""

    def run(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self.servers, enable_idempotence=True)
        await producer.start()
        await asyncio.gather(*(self._send(producer, partition) for partition in PARTITIONS))
        await producer.stop()

    async def _send(self, producer: Any, partition: int) -> None:
        while not self.halt.is_set():
            try:
                await producer.send_and_wait(TOPIC, b"a", partition=partition)
            except Exception as error:  # whatever reaches an application is told
                self.failures.append(repr(error))
            else:
                self.noted(partition)
            await asyncio.sleep(SLEEP_S)


class AioConsumer(Client):
    """aiokafka: reads all partitions from their ends."""

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.servers, enable_auto_commit=False, auto_offset_reset="latest"
        )
        await consumer.start()
        consumer.assign([AioPartition(TOPIC, partition) for partition in PARTITIONS])
        while not self.halt.is_set():
            for place, records in (await consumer.getmany(timeout_ms=100)).items():
                if records:
                    self.noted(place.partition)
        await consumer.stop()


CLIENTS: dict[str, type[Client]] = {
    "librdkafka produces": RdProducer,
    "librdkafka reads": RdConsumer,
    "aiokafka produces": AioProducer,
    "aiokafka reads": AioConsumer,
}


@dataclass(frozen=True, slots=True)
class Case:
    """A way to be sick. `goal`: whether clients should hardly notice."""

    begin: Callable[[Cluster, Member], None]
    end: Callable[[Cluster, Member], None]
    goal: bool = True


def _on_links(*links: str, cut: bool) -> Callable[[Cluster, Member], None]:
    def act(cluster: Cluster, sick: Member) -> None:
        for name in links:
            link = getattr(sick, name)
            cluster.links.do((lambda each: setattr(each.requests, "cut", True)) if cut else _heal, link)

    return act


def _heal(link: Any) -> None:
    link.heal()


def _slow(cluster: Cluster, sick: Member) -> None:
    cluster.links.do(setattr, sick.store.answers, "delay_s", SLOW_S)


def _busy(busy: bool, everyone: bool) -> Callable[[Cluster, Member], None]:
    def act(cluster: Cluster, sick: Member) -> None:
        for member in cluster.members if everyone else [sick]:
            assert isinstance(member.store, StoreProxy)
            cluster.links.do(member.store.set_busy, busy)

    return act


def _two_of_three(do: Callable[[Cluster, Member], None]) -> Callable[[Cluster, Member], None]:
    def act(cluster: Cluster, sick: Member) -> None:
        for member in cluster.members:
            if member is not sick:
                do(cluster, member)

    return act


def _file_bytes(most: int) -> Callable[[Cluster, Member], None]:
    """As on a full disk: whatever the agent writes to a file fails, its own log lines too."""

    def act(cluster: Cluster, sick: Member) -> None:
        resource.prlimit(sick.agent.pid, resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))

    return act


def _jump(cluster: Cluster, sick: Member) -> None:
    assert isinstance(sick.agent, JumpingAgent)
    sick.agent.jump()


def _land(cluster: Cluster, sick: Member) -> None:
    assert isinstance(sick.agent, JumpingAgent)
    sick.agent.land()


CASES: dict[str, Case] = {
    "without the bucket": Case(_on_links("store", cut=True), _on_links("store", cut=False)),
    "refused by the bucket": Case(_busy(True, False), _busy(False, False)),
    "slow store": Case(_slow, _on_links("store", cut=False)),
    "without etcd": Case(_on_links("etcd", cut=True), _on_links("etcd", cut=False)),
    "two without etcd": Case(
        _two_of_three(_on_links("etcd", cut=True)), _two_of_three(_on_links("etcd", cut=False))
    ),
    "clock an hour ahead": Case(_jump, _land),
    "disk full": Case(_file_bytes(0), _file_bytes(resource.RLIM_INFINITY)),
    "paused": Case(lambda _, sick: sick.agent.pause(), lambda _, sick: sick.agent.resume(), goal=False),
    "bucket full for all": Case(_busy(True, True), _busy(False, True), goal=False),
}


def named(member: Member) -> list[str]:
    """Whom it sends clients to."""
    try:
        return [each["name"] for each in member.status()["brokers"] if not each["unwell"]]
    except OSError:
        return []


def until_back(cluster: Cluster) -> None:
    """All agents name all agents again."""
    deadline = time.monotonic() + BACK_SECONDS_MAX
    while not all(len(named(member)) == len(cluster.members) for member in cluster.members):
        assert time.monotonic() < deadline, f"not all are back within {BACK_SECONDS_MAX} s"
        time.sleep(0.2)


def measure(case: Case, repeats: int, seconds: float) -> dict[str, list[float]]:
    """The pauses of each client, one for each partition and repeat, seconds."""
    found: dict[str, list[float]] = {name: [] for name in CLIENTS}
    with Cluster(3, as_configured(), agent=JumpingAgent) as cluster:
        create_topic(cluster.bootstrap, TOPIC, len(PARTITIONS))
        clients = {name: make(name, cluster.bootstrap) for name, make in CLIENTS.items()}
        for client in clients.values():
            client.start()
        until_back(cluster)
        _until_all_move(clients.values())
        for repeat in range(repeats):
            sick = cluster.members[repeat % len(cluster.members)]
            begun = time.monotonic()
            case.begin(cluster, sick)
            time.sleep(seconds)
            case.end(cluster, sick)
            until_back(cluster)
            _until_all_move(clients.values())
            for name, client in clients.items():
                found[name] += client.pauses_s(begun, time.monotonic())
        for client in clients.values():
            client.stop()
            for failure in sorted(set(client.failures)):
                print(f"    {client.name}: {failure}")
    return found


def _until_all_move(clients: Any) -> None:
    """Every partition of every client has gone on."""
    begun = time.monotonic()
    while not all(times and times[-1] > begun for each in clients for times in each.went_well.values()):
        assert time.monotonic() < begun + BACK_SECONDS_MAX, "a partition stands still"
        time.sleep(0.1)


def at(share: float, pauses_s: Sequence[float]) -> float:
    """The pause that this share of them does not exceed."""
    ordered = sorted(pauses_s)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)


def main() -> int:
    """Measure, print, keep; 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.pauses", description=__doc__)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=8.0, help="how long the agent is sick")
    parser.add_argument("--only", choices=sorted(CASES), action="append")
    given = parser.parse_args()
    kept: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    missed = 0
    print(f"sick for {given.seconds:g} s, {given.repeats} times, {len(PARTITIONS)} partitions", flush=True)
    for name in given.only or CASES:
        case = CASES[name]
        rows = {}
        for client, pauses_s in measure(case, given.repeats, given.seconds).items():
            p50, p99, most = at(0.5, pauses_s), at(0.99, pauses_s), round(max(pauses_s), 2)
            missed += case.goal and p99 > GOAL_S
            rows[client] = {"p50": p50, "p99": p99, "longest": most}
            print(
                f"{name:24} {client:20} p50 {p50:6.2f} s  p99 {p99:6.2f} s  longest {most:6.2f} s", flush=True
            )
        day, load = datetime.now(UTC).date().isoformat(), round(os.getloadavg()[0], 1)
        kept[name] = {"day": day, "repeats": given.repeats, "sick_s": given.seconds, "load": load, **rows}
    RESULTS.write_text(json.dumps(kept, indent=2) + "\n")
    print(f"{missed} missed {GOAL_S:g} s; silence_ms_max {HealthConfig().silence_ms_max}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
