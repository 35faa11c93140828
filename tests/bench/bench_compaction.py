"""Compaction of one partition: bytes per CPU second, and how long the whole of it takes.

A partition is filled and compacted as an agent does it: state, log and store in memory, records opened and
rewritten in the helper process. CPU time is the agent's and the helper's together, the helper's start and the
store in memory included, so a figure is what one core gives. Half of the keys come again, so that about half
of the records go.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Iterable
from dataclasses import dataclass

from agent.background.rewriting.compaction.choice import Rules
from agent.background.rewriting.compaction.partition import PartitionCompaction
from agent.background.rewriting.compaction.worker import HelperWorker
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.compression import Compression
from tests.bench.figure import ROUNDS, Figure
from tests.unit.agent.background.compaction_rig import NOW, At, compaction, partition_of
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.kafka.test_handlers_retention import send
from tests.unit.agent.rig import Agent, start_agent

PLAIN_BYTES = 96 << 20  # of records before compression
BATCH_BYTES = 64 << 10  # likewise: a Java producer's batch.size under load
SEGMENT_BYTES = 64 << 20  # merging.segment_bytes
DAY_MS = 86_400_000
GOAL_MB_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """Records of `value_bytes` with keys of 16 bytes."""

    value_bytes: int
    codec: Compression
    goal: float | None = None

    @property
    def name(self) -> str:
        """As the figure spells it."""
        return f"{self.value_bytes} B values, {self.codec.name.lower()}"


LOADS = (
    Load(1000, Compression.NONE, GOAL_MB_S),
    Load(1000, Compression.LZ4, GOAL_MB_S),
    Load(1000, Compression.ZSTD),
    Load(100, Compression.NONE, GOAL_MB_S),
    Load(100, Compression.LZ4),
)


def figures() -> Iterable[Figure]:
    """One figure per kind of records: MB of stored batches read, per CPU second."""
    for load in LOADS:
        rates = sorted(asyncio.run(_rates(load)))
        yield Figure(f"compaction, per core: {load.name}", rates[len(rates) // 2], "MB/s", goal=load.goal)


async def _rates(load: Load) -> list[float]:
    batches = _batches(load)
    return [await _rate(batches) for _ in range(ROUNDS)]


def _batches(load: Load) -> list[bytes]:
    draw = random.Random(1)
    per_batch = max(1, BATCH_BYTES // (load.value_bytes + 24))
    count = PLAIN_BYTES // (load.value_bytes + 24) // per_batch
    keys = count * per_batch // 2
    half = load.value_bytes // 2  # hexadecimal digits: text that a codec halves
    return [
        build(
            [
                NewRecord(NOW, b"%016d" % draw.randrange(keys), draw.randbytes(half).hex().encode())
                for _ in range(per_batch)
            ],
            compression=load.codec,
        )
        for _ in range(count)
    ]


async def _rate(batches: list[bytes]) -> float:
    store = MemoryStore()
    agent = await start_agent(MemoryServer(), store)
    try:
        await create(agent, topic("bench", cleanup_policy="compact"))
        for batch in batches:
            assert (await send(agent, "bench", batch)).error_code == 0
        return await _compacted(agent, store, sum(map(len, batches)))
    finally:
        await agent.stop()


async def _compacted(agent: Agent, store: MemoryStore, size: int) -> float:
    """MB of batches per CPU second of this process and the helper's, which is started and ended within."""
    worker = HelperWorker()
    parts = compaction(agent, store, At(NOW + 1), segment_bytes=SEGMENT_BYTES, worker=worker)._parts
    rules = Rules(0, 1, 0, 1 << 60, DAY_MS)
    incarnation = agent.services.replica.incarnation
    begun = _cpu_s()
    done = await PartitionCompaction(
        parts, partition_of(agent, "bench"), rules, incarnation, 10_000_000
    ).run()
    await worker.close()
    spent = _cpu_s() - begun
    assert done is not None
    assert done.swapped
    assert done.counts.bytes_in == size, (done.counts, size)
    return size / spent / 1e6


def _cpu_s() -> float:
    """CPU seconds of this process and of the children that have ended."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
