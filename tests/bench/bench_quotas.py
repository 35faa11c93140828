"""Quotas: whether a rate is kept over a minute, and what ten modest clients have of a greedy one's quota.

The rate is what the agent stored or sent in a minute, after the first burst of eleven seconds that Kafka's
windows allow. The modest ones produce a record of 1 kB twenty times a second each, one after the other.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import TOOLS, java_command
from tests.bench.agents import on_services
from tests.bench.figure import Figure
from tests.bench.load import Wire, batch_of, check, create_topic, produce_frame, set_quota
from tests.bench.scrape import metric

QUOTA = 1_000_000  # bytes per second
WARM_S, MINUTE_S = 25, 60
MODEST, PER_S, MODEST_S = 10, 20, 20
GREEDY_QUOTA = 2_000_000

PRODUCER = """
import sys
from confluent_kafka import Producer
settings = {"bootstrap.servers": sys.argv[1], "client.id": "greedy", "queue.buffering.max.kbytes": 65536}
producer = Producer(settings)
value = bytes(1000)
while True:
    try:
        producer.produce(sys.argv[2], value)
        producer.poll(0)
    except BufferError:
        producer.poll(0.05)
"""
CONSUMER = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "client.id": "greedy", "group.id": "g"})
while True:
    consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
    for _ in range(500):
        consumer.consume(1000, 1)
"""


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    """A client that goes on until it is ended."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def script(text: str, agent: FloeAgent, topic: str) -> list[str]:
    """A Python client."""
    return [sys.executable, "-c", text, agent.bootstrap, topic]


def java(agent: FloeAgent, topic: str) -> list[str]:
    """Kafka's own producer, as fast as it may."""
    properties = ("--command-property", f"bootstrap.servers={agent.bootstrap}", "client.id=greedy")
    return java_command(
        TOOLS["producer-perf-test"],
        *("--topic", topic, "--num-records", "100000000", "--record-size", "1000", "--throughput", "-1"),
        *properties,
    )


def limit(agent: FloeAgent, quota: str, value: int | None) -> None:
    """Set or remove a quota of the client id `greedy`."""
    asyncio.run(set_quota(agent.bootstrap, "greedy", quota, value))


def off_percent(agent: FloeAgent, command: list[str], name: str) -> float:
    """How far from the quota a minute's bytes are, percent: the mean of all minutes of two.

    Windows of eleven seconds let a client burst about as often, so that a single minute has one burst more or
    less.
    """
    with running(command):
        time.sleep(WARM_S)
        read = []
        for _ in range(2 * MINUTE_S + 1):
            read.append((time.monotonic(), metric(agent.http, name)))
            time.sleep(1)
    minutes = zip(read, read[MINUTE_S:], strict=False)
    rates = [(after[1] - before[1]) / (after[0] - before[0]) for before, after in minutes]
    return abs(statistics.mean(rates) / QUOTA - 1) * 100


def kept(agent: FloeAgent) -> Iterable[Figure]:
    """Rates over a minute, by client."""
    limit(agent, "producer_byte_rate", QUOTA)
    stored = "floe_produce_bytes_total"
    for who, command in (("librdkafka", script(PRODUCER, agent, "rate")), ("Java", java(agent, "rate"))):
        off = off_percent(agent, command, stored)
        yield Figure(
            f"producer_byte_rate 1 MB/s over a minute, off by, {who}", off, "%", goal=5, better="less"
        )
        time.sleep(12)  # what this one took is forgotten
    limit(agent, "producer_byte_rate", None)
    limit(agent, "consumer_byte_rate", QUOTA)
    off = off_percent(agent, script(CONSUMER, agent, "rate"), "floe_fetch_bytes_total")
    limit(agent, "consumer_byte_rate", None)
    yield Figure(
        "consumer_byte_rate 1 MB/s over a minute, off by, librdkafka", off, "%", goal=5, better="less"
    )


async def modest(bootstrap: str) -> list[float]:
    """How long each of the modest ones' records took, ms."""

    async def one() -> list[float]:
        wire, frame = await Wire.open(bootstrap), produce_frame("modest", batch_of(1), [0])
        taken, end = [], time.monotonic() + MODEST_S
        while (begun := time.monotonic()) < end:
            await wire.send(frame)
            check(await wire.receive())
            taken.append((time.monotonic() - begun) * 1000)
            await asyncio.sleep(max(begun + 1 / PER_S - time.monotonic(), 0))
        await wire.close()
        return taken

    return [each for many in await asyncio.gather(*(one() for _ in range(MODEST))) for each in many]


def p99(agent: FloeAgent) -> float:
    """Of the modest ones' records, ms."""
    taken = sorted(asyncio.run(modest(agent.bootstrap)))
    return taken[len(taken) * 99 // 100]


def beside(agent: FloeAgent) -> Iterable[Figure]:
    """The modest ones alone, beside a greedy one without, and with a quota."""
    alone = p99(agent)
    with running(script(PRODUCER, agent, "greedy")):
        time.sleep(10)
        without = p99(agent)
    limit(agent, "producer_byte_rate", GREEDY_QUOTA)
    with running(script(PRODUCER, agent, "greedy")):
        time.sleep(15)
        with_quota = p99(agent)
    name = "p99 of ten modest producers beside a greedy one"
    yield Figure(f"{name}, no quota", without, "ms", "without it", alone, better="less")
    yield Figure(f"{name} with 2 MB/s", with_quota, "ms", "no quota", without, 0.5, better="less")


def figures() -> Iterable[Figure]:
    """One agent on etcd and MinIO."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        agent = stack.enter_context(FloeAgent("agent", on_services(etcd, minio, minio.make_bucket("bench"))))
        for topic in ("rate", "greedy", "modest"):
            asyncio.run(create_topic(agent.bootstrap, topic, 1))
        yield from beside(agent)
        limit(agent, "producer_byte_rate", None)
        yield from kept(agent)
