"""Many producers of few small records: 200 librdkafka producers of 100 records a second of 200 bytes each.

An agent on etcd and MinIO, and one Kafka node without replicas, in turns on the same two cores, clients among
them. A record is due at its time whatever has become of those before; what a producer cannot hold any more is
not sent. 20,000 records a second are offered: who cannot take them is told by how many were acknowledged in
the seconds that are measured, who can by what the server spends for them.

Twice: as librdkafka's defaults are, with any number of requests under way, and idempotent, with five of them,
as Java's producers are without being told. Then what waits in the client becomes larger batches.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import count
from multiprocessing import get_context
from typing import NamedTuple

from confluent_kafka import Producer

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka
from tests.bench.agents import on_services
from tests.bench.figure import Figure
from tests.bench.load import cpu_seconds
from tests.torture.run import create_topic

PRODUCERS, RATE, SIZE, PARTITIONS = 200, 100, 200, 16
THREADS = 4
STARTS_S, SETTLE_S, SECONDS = 3.0, 5.0, 10.0
ROUNDS = 5
HELD_MAX = 1_000  # records of one producer that wait: ten seconds of them
TICK_S = 0.005
PEER = "Apache Kafka 4.3.1"
KINDS = ("librdkafka", "librdkafka, idempotent")
RECORD = bytes(SIZE)
GOAL = 0.995
"""Of what the peer takes. Where both take all, they differ by what is under way at the ends of the window."""
_topics = count(1)


class Taken(NamedTuple):
    """Of one run: acknowledged records a second, and the server's CPU seconds for a million of them."""

    per_s: float
    cpu_s: float


class Crowd(threading.Thread):
    """Some of the producers, all driven by one thread."""

    def __init__(self, bootstrap: str, topic: str, idempotent: bool, begun: float) -> None:
        super().__init__(daemon=True)
        settings = {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "enable.idempotence": idempotent,
            "log_level": 0,
            "queue.buffering.max.messages": HELD_MAX,
        }
        self._producers = [Producer(settings) for _ in range(PRODUCERS // THREADS)]
        self._topic, self._begun, self._last = topic, begun, SETTLE_S + SECONDS
        self.acknowledged = 0
        """In the seconds that are measured."""
        self.failed = 0

    def run(self) -> None:
        """Send until the time is over."""
        time.sleep(max(0.0, self._begun - time.monotonic()))
        sent = [0] * len(self._producers)
        while (now := time.monotonic() - self._begun) < self._last:
            for number, producer in enumerate(self._producers):
                self._due(producer, now, sent, number)
                producer.poll(0)
            time.sleep(TICK_S)
        for producer in self._producers:
            producer.purge()

    def _due(self, producer: Producer, now: float, sent: list[int], number: int) -> None:
        begins = number / len(self._producers) / RATE  # they do not all send at one moment
        while begins + sent[number] / RATE <= now:
            sent[number] += 1
            try:
                producer.produce(self._topic, RECORD, on_delivery=self._told)
            except BufferError:
                return

    def _told(self, error: object, _: object) -> None:
        if SETTLE_S <= time.monotonic() - self._begun < self._last:
            self.acknowledged += error is None
            self.failed += error is not None


def crowded(bootstrap: str, topic: str, idempotent: bool, begun: float) -> int:
    """How many records were acknowledged in the seconds that are measured; in a process of its own."""
    crowds = [Crowd(bootstrap, topic, idempotent, begun) for _ in range(THREADS)]
    for each in crowds:
        each.start()
    for each in crowds:
        each.join()
    assert not any(each.failed for each in crowds), "records were refused"
    return sum(each.acknowledged for each in crowds)


def taken(bootstrap: str, pid: int, idempotent: bool) -> Taken:
    """One run, on a topic of its own."""
    topic = f"small-{next(_topics)}"
    create_topic(bootstrap, topic, PARTITIONS)
    begun = time.monotonic() + STARTS_S
    with ProcessPoolExecutor(1, get_context("spawn")) as child:  # its 600 threads end with it
        told = child.submit(crowded, bootstrap, topic, idempotent, begun)
        time.sleep(max(0.0, begun + SETTLE_S - time.monotonic()))
        cpu = cpu_seconds(pid)
        time.sleep(max(0.0, begun + SETTLE_S + SECONDS - time.monotonic()))
        cpu = cpu_seconds(pid) - cpu
        acknowledged = told.result()
    assert acknowledged, f"nothing was acknowledged of {topic} at {bootstrap}, idempotent: {idempotent}"
    return Taken(acknowledged / SECONDS, cpu / acknowledged * 1e6)


def figures() -> Iterable[Figure]:
    """Throughput and what it costs."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        agent = stack.enter_context(FloeAgent("small", on_services(etcd, minio, minio.make_bucket("small"))))
        kafka = stack.enter_context(Kafka())
        both = [(agent.bootstrap, agent.pid), (kafka.bootstrap, kafka.pid)]
        for each in both:
            taken(*each, idempotent=False)  # warm
        for idempotent, kind in enumerate(KINDS):
            yield from compared(kind, both, bool(idempotent))


def compared(kind: str, both: list[tuple[str, int]], idempotent: bool) -> Iterable[Figure]:
    """One kind of producer at both, in turns; medians."""
    runs: list[list[Taken]] = [[], []]
    for turn in range(ROUNDS):
        for index in (0, 1) if turn % 2 == 0 else (1, 0):
            runs[index].append(taken(*both[index], idempotent))
    (floe, floe_cpu), (peer, peer_cpu) = (map(statistics.median, zip(*each, strict=True)) for each in runs)
    title = f"{PRODUCERS} producers of {RATE} records/s of {SIZE} B, {kind}"
    yield Figure(f"{title}: acknowledged", floe, "records/s", PEER, peer, GOAL)
    yield Figure(f"{title}: server's CPU of a million", floe_cpu, "CPU-s", PEER, peer_cpu, better="less")
