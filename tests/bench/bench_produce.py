"""The produce path alone: raw frames on several connections to one embedded agent.

The load costs its own process next to nothing, so the figures are the agent's.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.services.floe import FloeAgent
from tests.bench.figure import Figure, median
from tests.bench.load import Wire, batch_of, check, cpu_seconds, create_topic, produce_all, produce_frame
from tests.bench.scrape import metric

PARTITIONS, RECORDS_PER_BATCH = 16, 16  # batches of 16 kB, Java's default batch.size
CONNECTIONS, WINDOW = 4, 5
REQUESTS = 300  # per connection; 315 MB in all
_topics = itertools.count(1)


def embedded(folder: str) -> dict[str, object]:
    """Settings of an agent on SQLite and a local folder."""
    return {
        "log": {"url": f"sqlite://{folder}/log.sqlite"},
        "store": {"url": f"file://{folder}/store"},
        "tables": {"enabled": False},
        "logging": {"level": "warning"},
    }


async def load(bootstrap: str, requests: int = REQUESTS) -> tuple[float, int]:
    """(seconds, record bytes) of one run on a fresh topic."""
    topic = f"load-{next(_topics)}"
    await create_topic(bootstrap, topic, PARTITIONS)
    batch = batch_of(RECORDS_PER_BATCH)
    frame = produce_frame(topic, batch, range(PARTITIONS))
    begin = time.perf_counter()
    await asyncio.gather(*[produce_all(bootstrap, frame, requests, WINDOW) for _ in range(CONNECTIONS)])
    return time.perf_counter() - begin, CONNECTIONS * requests * PARTITIONS * len(batch)


async def one_at_a_time(bootstrap: str, count: int = 300) -> float:
    """The median time of a small Produce, ms."""
    topic = f"quiet-{next(_topics)}"
    await create_topic(bootstrap, topic, 1)
    frame = produce_frame(topic, batch_of(1), [0])
    wire = await Wire.open(bootstrap)
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        await wire.send(frame)
        check(await wire.receive())
        taken.append(time.perf_counter() - begin)
    await wire.close()
    return sorted(taken)[len(taken) // 2] * 1000


def figures() -> Iterable[Figure]:
    """Throughput, CPU and PUTs at full load; latency when quiet."""
    with TemporaryDirectory() as folder, FloeAgent("bench", embedded(folder), Path(folder)) as agent:
        asyncio.run(load(agent.bootstrap, 20))
        cpu: list[float] = []
        puts: list[float] = []

        def full() -> float:
            spent, put = cpu_seconds(agent.pid), metric(agent.http, "floe_put_seconds_count")
            seconds, size = asyncio.run(load(agent.bootstrap))
            cpu.append((cpu_seconds(agent.pid) - spent) / size * 1e9)
            puts.append((metric(agent.http, "floe_put_seconds_count") - put) / size * 2**20)
            return size / seconds / 1e6

        speed = median(full)
        quiet = median(lambda: asyncio.run(one_at_a_time(agent.bootstrap)))
    yield Figure("embedded produce, raw frames, 16 partitions", speed, "MB/s")
    yield Figure("agent CPU of embedded produce", sorted(cpu)[1], "CPU-s/GB", goal=2.5, better="less")
    yield Figure("PUTs of embedded produce", sorted(puts)[1], "PUTs/MiB", goal=0.3, better="less")
    yield Figure("embedded produce, one small record at a time", quiet, "ms", better="less")
