"""Merging: bytes per CPU second, how long the event loop waits for it, and what a cold reader has of it.

Partitions are filled and merged as an agent does it: state, log and store in memory, bytes checked and put
together in the helper process. CPU time is the agent's and the helper's together, the store in memory and the
swap included, so a figure is what one core gives. The readers' figures are over SQLite and MinIO.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agent.background.rewriting.merging.planner import RANGE
from agent.background.rewriting.merging.worker import Worker
from coordination.memory_server import MemoryServer
from deploy.services import Minio
from deploy.services.floe import FloeAgent
from objectstore.adapters.memory import MemoryStore
from tests.bench.bench_fetch import settings as fetch_settings
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import batch_of, cpu_seconds, create_topic, fetch_all, produce_all, produce_frame
from tests.bench.scrape import metric
from tests.equipment.zoned import bucket_reads, reads
from tests.unit.agent.background.merging_rig import EAGER, job_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, start_agent

GOAL_MB_S = 80.0
MERGED_BYTES = 96 << 20
SEGMENT_BYTES = 64 << 20  # merging.segment_bytes
RECORD_BYTES = 1_000
SIZES = (64, 16, 4, 1)  # records of a slice: 64 kB is a busy partition, 1 kB a quiet one in a large cluster
GOALS = {64: GOAL_MB_S, 16: GOAL_MB_S}
TICK_S = 0.001
READ_PARTITIONS, FLUSHES, FLUSHED = 64, 300, 4  # the last: records of one partition in a flush


async def _filled(server: MemoryServer, store: MemoryStore, records: int) -> tuple[Agent, int]:
    """An agent with one range of partitions whose slices are of so many records; their bytes in all."""
    agent = await start_agent(server, store, produce={"linger_ms": 200, "quiet_ms": 50})
    await create(agent, partitions=RANGE)
    raw = batch_of(records)
    count = max(8, MERGED_BYTES // len(raw) // RANGE)
    for _ in range(count):
        answers = await asyncio.gather(*(produce(agent, raw, index=index) for index in range(RANGE)))
        assert {each.error_code for each in answers} == {0}
    return agent, count * RANGE * len(raw)


async def _merged(records: int) -> tuple[float, float, float]:
    """MB per CPU second, reads of the store per MB, and the longest that the event loop was late, ms."""
    store = MemoryStore()
    agent, size = await _filled(MemoryServer(), store, records)
    job = job_of(agent, store, replace(EAGER, segment_bytes=SEGMENT_BYTES, age_s=0))
    worker = Worker()
    job._parts = replace(job._parts, worker=worker)
    await worker.clear()  # started: it lives as long as the agent does
    gc.collect()
    gc.freeze()  # as an agent's process does once it has started
    late: list[float] = []
    watching = asyncio.create_task(_watch(late))
    begun = _cpu_s(worker)
    await job._look()
    spent = _cpu_s(worker) - begun
    await job.stop()
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    metrics = job._metrics
    merged, gets = (each._value.get() for each in (metrics.merge_bytes, metrics.merge_gets))
    assert merged == size, (merged, size)
    await agent.stop()
    gc.unfreeze()
    return size / spent / 1e6, gets / size * 1e6, max(late) * 1e3


async def _watch(late: list[float]) -> None:
    """How late the event loop comes back, seconds."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(TICK_S)
        late.append(loop.time() - before - TICK_S)


def _cpu_s(worker: Worker) -> float:
    """CPU seconds of this process and of the helper so far."""
    helper: Any = worker._asking
    return time.process_time() + cpu_seconds(helper.pid)


def _settings(folder: str, minio: Minio) -> dict[str, object]:
    """An agent that remembers little, and merges whatever there is within a second."""
    return {
        **fetch_settings(folder, minio),
        "merging": {"interval_ms": 100, "min_slices": 8, "keep_slices": 0, "age_s": 1},
    }


def _cold(chosen: dict[str, object], folder: str, topic: str) -> tuple[float, float]:
    """Reads of the store, and ms, until a consumer has one partition, of an agent with empty caches."""
    settings = {**chosen, "merging": {"enabled": False}}
    with FloeAgent("bench", settings, Path(folder)) as agent:
        before, begun = _gets(agent), time.perf_counter()
        size = fetch_all(agent.bootstrap, topic, [FLUSHES * FLUSHED], 1 << 20, 50 << 20)
        spent = time.perf_counter() - begun
        assert size >= FLUSHES * FLUSHED * RECORD_BYTES * 0.9, size
        return _gets(agent) - before, spent * 1e3


def _gets(agent: FloeAgent) -> float:
    """Reads of the store so far, those of manifests and indexes too."""
    counts = reads(agent)
    return bucket_reads(counts) + counts["index_gets"]


def _readers() -> Iterable[Figure]:
    """A consumer of one of many partitions that reads it from the start, before and after merging."""
    with TemporaryDirectory() as folder, Minio() as minio:
        chosen, topic = _settings(folder, minio), "t"
        with FloeAgent("bench", {**chosen, "merging": {"enabled": False}}, Path(folder)) as agent:
            asyncio.run(create_topic(agent.bootstrap, topic, READ_PARTITIONS))
            frame = produce_frame(topic, batch_of(FLUSHED), range(READ_PARTITIONS))
            asyncio.run(produce_all(agent.bootstrap, frame, FLUSHES, 1))
        before = [_cold(chosen, folder, topic) for _ in range(ROUNDS)]
        with FloeAgent("bench", chosen, Path(folder)) as agent:
            while metric(agent.http, "floe_merge_rows_total") < FLUSHES * READ_PARTITIONS:
                time.sleep(0.1)
        after = [_cold(chosen, folder, topic) for _ in range(ROUNDS)]
    title = f"cold reader of one of {READ_PARTITIONS} partitions, {FLUSHES} flushes of {FLUSHED} kB in it"
    for number, (what, unit) in enumerate((("reads of the store", "GETs"), ("time", "ms"))):
        peer, own = (statistics.median(each[number] for each in taken) for taken in (before, after))
        yield Figure(f"{title}: {what}", own, unit, peer="unmerged", peer_value=peer, better="less")


def figures() -> Iterable[Figure]:
    """Throughput by size of slices; then readers."""
    for records in SIZES:
        taken = [asyncio.run(_merged(records)) for _ in range(ROUNDS)]
        rate, gets, late = (statistics.median(column) for column in zip(*taken, strict=True))
        title = f"merging, {RANGE} partitions, slices of {records} kB"
        yield Figure(f"{title}: per core", rate, "MB/s", goal=GOALS.get(records))
        yield Figure(f"{title}: reads of the store", gets, "GETs/MB", better="less")
        yield Figure(f"{title}: event loop late, longest", late, "ms", better="less")
    yield from _readers()
