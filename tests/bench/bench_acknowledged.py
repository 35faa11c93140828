"""How long librdkafka's producers wait for an acknowledgement, at a steady rate, beside Apache Kafka.

Two producers of 1 kB records with `linger.ms` 5, one agent over etcd and MinIO without added delays, one
Kafka node without replicas. Open loop: a record is due at its time whatever has become of those before, and
its wait begins there.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack

from confluent_kafka import Producer

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka
from tests.bench.agents import on_services
from tests.bench.figure import ROUNDS, Figure
from tests.torture.run import create_topic

RECORD = bytes(1_000)
SETTLE_S, SECONDS = 2.0, 8.0
PRODUCERS = 2
SHAPES = ((2, 1), (2, 16), (10, 1), (10, 16))
"""MB/s in all, partitions."""
GOALS_MS = {"p50": 12.0, "p99": 40.0}
TICK_S = 0.002
_topics = itertools.count(1)


def waits_ms(bootstrap: str, rate: int, partitions: int) -> list[float]:
    """Of each record that was due after the first seconds, ms."""
    topic = f"waits-{next(_topics)}"
    create_topic(bootstrap, topic, partitions)
    taken: list[list[float]] = [[] for _ in range(PRODUCERS)]
    threads = [
        threading.Thread(target=_produce, args=(bootstrap, topic, rate / PRODUCERS, partitions, each))
        for each in taken
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [wait for each in taken for wait in each]


def _produce(bootstrap: str, topic: str, rate: float, partitions: int, taken: list[float]) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 5,
            "log_level": 0,
            "queue.buffering.max.kbytes": 131_072,
        }
    )
    begun = time.perf_counter()

    def told(due: float) -> Callable[..., None]:
        def noted(error: object, _: object) -> None:
            assert error is None, error
            if due > SETTLE_S:
                taken.append((time.perf_counter() - begun - due) * 1000)

        return noted

    sent, last = 0, SETTLE_S + SECONDS
    while (now := time.perf_counter() - begun) < last:
        while (due := sent / (rate * 1000)) <= now:
            producer.produce(topic, RECORD, partition=sent % partitions, on_delivery=told(due))
            sent += 1
        producer.poll(TICK_S)
    assert producer.flush(60) == 0


def percentiles(waits: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cut = statistics.quantiles(waits, n=100)
    return cut[49], cut[98]


def figures() -> Iterable[Figure]:
    """Every shape, Floe and Kafka in turns."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        agent = stack.enter_context(FloeAgent("waits", on_services(etcd, minio, minio.make_bucket("waits"))))
        kafka = stack.enter_context(Kafka())
        both = {"floe": agent.bootstrap, "kafka": kafka.bootstrap}
        for bootstrap in both.values():
            waits_ms(bootstrap, 10, 16)  # warm
        for rate, partitions in SHAPES:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in both}
            for _ in range(ROUNDS):
                for name, bootstrap in both.items():
                    found[name].append(percentiles(waits_ms(bootstrap, rate, partitions)))
            for index, (which, goal) in enumerate(GOALS_MS.items()):
                ours, theirs = (statistics.median(each[index] for each in found[name]) for name in both)
                title = f"acknowledged, librdkafka, {rate} MB/s in {partitions} partitions: {which}"
                yield Figure(title, ours, "ms", goal=goal, better="less")
                yield Figure(f"{title}, Apache Kafka", theirs, "ms", better="less")
