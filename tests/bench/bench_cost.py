"""CPU of a gigabyte in and out, Floe's agent and Apache Kafka in turns: what `floe cost` reckons cores from.

The same raw frames for both: Produce with batches of two sizes, Fetch as the Java consumer asks. One node
without replicas: what replicas add, the model derives (agent/costs/kafka.py).
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka
from tests.bench import bench_fetch
from tests.bench.agents import on_services
from tests.bench.figure import ROUNDS, Figure, interleaved
from tests.bench.load import (
    RECORD_BYTES,
    Wire,
    batch_of,
    codes_of,
    cpu_seconds,
    create_topic,
    produce_all,
    produce_frame,
)
from tests.bench.scrape import metric

PARTITIONS, WINDOW, RUN_BYTES = 16, 5, 100_000_000
RECORDS = {"16 kB": 16, "256 kB": 256}
"""Of a batch, each of 1 kB."""
PEER = "Apache Kafka 4.3.1"
WARM_RUNS = 25
"""Of Kafka: Java's compilers take CPU until they have seen enough, and have in a server that runs long."""
TRIES = 100
_topics = itertools.count(1)
FETCHED = bench_fetch.REQUESTS * bench_fetch.PARTITIONS * bench_fetch.RECORDS_PER_BATCH * RECORD_BYTES


def _cpu(pid: int, work: Callable[[], object], size: int) -> float:
    """CPU seconds of a server per 10^9 bytes of some work."""
    before = cpu_seconds(pid)
    work()
    return (cpu_seconds(pid) - before) / size * 1e9


def _beside(name: str, agent: FloeAgent, kafka: Kafka, work: Callable[[str], object], size: int) -> Figure:
    """The same work at both, in turns."""
    turns = [
        lambda: _cpu(agent.pid, lambda: work(agent.bootstrap), size),
        lambda: _cpu(kafka.pid, lambda: work(kafka.bootstrap), size),
    ]
    ours, theirs = interleaved(turns, ROUNDS)
    return Figure(name, ours, "CPU-s/GB", PEER, theirs, better="less")


def _produce(bootstrap: str, records: int) -> str:
    """RUN_BYTES in batches of so many records, to a fresh topic, which is returned."""
    topic = f"cost-{next(_topics)}"
    asyncio.run(_filled(bootstrap, topic, records, RUN_BYTES // (records * RECORD_BYTES * PARTITIONS)))
    return topic


async def _filled(bootstrap: str, topic: str, records: int, requests: int) -> None:
    """All partitions in each request, once each has a leader."""
    await create_topic(bootstrap, topic, PARTITIONS)
    first, frame = (produce_frame(topic, batch_of(each), range(PARTITIONS)) for each in (1, records))
    wire = await Wire.open(bootstrap)
    for _ in range(TRIES):
        await wire.send(first)
        if not any(codes_of(await wire.receive())):
            break
        await asyncio.sleep(0.1)
    await wire.close()
    await produce_all(bootstrap, frame, requests, WINDOW)


def _written(agent: FloeAgent, kafka: Kafka) -> Iterable[Figure]:
    """Large batches, and Java's default."""
    for name, records in RECORDS.items():
        work = partial(_produce, records=records)
        work(agent.bootstrap)
        for _ in range(WARM_RUNS):
            work(kafka.bootstrap)
        size = RUN_BYTES // (records * RECORD_BYTES * PARTITIONS) * records * RECORD_BYTES * PARTITIONS
        yield _beside(f"server's CPU of produce, batches of {name}", agent, kafka, work, size)


def _read(agent: FloeAgent, kafka: Kafka) -> Iterable[Figure]:
    """The tail, from memory; and what the log has of each batch."""
    before = metric(agent.http, "floe_append_bytes_total")
    topics = {where: f"read-{number}" for number, where in enumerate((agent.bootstrap, kafka.bootstrap))}
    for where, topic in topics.items():
        asyncio.run(_filled(where, topic, bench_fetch.RECORDS_PER_BATCH, bench_fetch.REQUESTS))
    appended = metric(agent.http, "floe_append_bytes_total") - before
    for where, topic in topics.items():
        for _ in range(WARM_RUNS):
            bench_fetch.read(where, topic)
    title = "server's CPU of fetching the tail"
    yield _beside(title, agent, kafka, lambda where: bench_fetch.read(where, topics[where]), FETCHED)
    batches = (bench_fetch.REQUESTS + 1) * PARTITIONS
    yield Figure("bytes of the log per batch, batches of 16 kB", appended / batches, "B", better="less")


def _cold() -> Figure:
    """Old data out of MinIO, of an agent that has nothing in memory."""
    with TemporaryDirectory() as folder, Minio() as minio:
        chosen = bench_fetch.settings(folder, minio)
        with FloeAgent("bench", chosen, Path(folder)) as agent:
            topic = asyncio.run(bench_fetch.fill(agent.bootstrap))
        with FloeAgent("bench", chosen, Path(folder)) as agent:
            taken = [
                _cpu(agent.pid, lambda: bench_fetch.read(agent.bootstrap, topic), FETCHED)
                for _ in range(ROUNDS)
            ]
    return Figure("agent CPU of fetching old data", statistics.median(taken), "CPU-s/GB", better="less")


def figures() -> Iterable[Figure]:
    """Written, read at the tail, read cold."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("bench"))
        agent = stack.enter_context(FloeAgent("agent", settings))
        kafka = stack.enter_context(Kafka())
        yield from _written(agent, kafka)
        yield from _read(agent, kafka)
    yield _cold()
