"""Scrub: bytes checked per second of CPU time, of chunks, segments and Parquet, from a store in memory.

What one core gives: reading from the memory store, the checks of names, footers and checksums, and the
scrubber's own bookkeeping. A store over the network costs CPU besides, as any reader's does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from agent.background.scrub.damage import Counts
from agent.background.scrub.needs import Need
from agent.background.scrub.reading import Reader
from agent.background.scrub.scrubber import checked
from iceberg.sealed import sealed
from objectstore.adapters.memory import MemoryStore
from objectstore.chunk import PartitionBatches, encode
from objectstore.naming import ChunkId, SegmentId, chunk_key, segment_key
from objectstore.segment import SegmentWriter
from objectstore.steady import Steady
from tests.bench.figure import Figure, median
from tests.bench.load import batch_of

GOAL_MB_S = 200.0
OBJECTS = 48
PARTITIONS, RECORDS = 64, 64  # of a chunk: 64 batches of 64 kB
SEGMENT_BATCHES = 250


async def _chunks(store: MemoryStore) -> list[Need]:
    raw, needs = batch_of(RECORDS), []
    for number in range(OBJECTS):
        slices = [PartitionBatches(partition, [raw]) for partition in range(PARTITIONS)]
        made = encode(bytes(16), ChunkId(1, number), slices)
        key = chunk_key(ChunkId(1, number))
        await store.put(key, made.parts)
        needs.append(Need(key, lambda: True, made.size))
    return needs


async def _segments(store: MemoryStore) -> list[Need]:
    raw, needs = batch_of(RECORDS), []
    for number in range(OBJECTS // 4):
        writer, named = SegmentWriter(bytes(16), SegmentId(1, 0, number)), SegmentId(1, 0, number)
        for at in range(SEGMENT_BATCHES):
            batch = bytearray(raw)
            batch[:8] = (at * RECORDS).to_bytes(8, "big")
            writer.add(memoryview(batch))
        made = writer.finish()
        await store.put(segment_key(named), made.parts)
        needs.append(Need(segment_key(named), lambda: True, made.info.size))
    return needs


async def _files(store: MemoryStore) -> list[Need]:
    needs = []
    for number in range(OBJECTS // 4):
        content = b"PAR1" + bytes([number]) * (16 << 20) + b"PAR1"
        key = sealed(f"tables/t/data/{number}.parquet", content)
        await store.put(key, [content])
        needs.append(Need(key, lambda: True, len(content)))
    return needs


async def _rate(kind: str) -> float:
    """MB per second of CPU time."""
    store = MemoryStore()
    needs = await {"chunks": _chunks, "segments": _segments, "Parquet": _files}[kind](store)
    counts = Counts()
    reader = Reader(store, Steady(1e15, time.monotonic, asyncio.sleep), lambda: counts)
    before = time.process_time()
    for need in needs:
        problem, _ = await checked(reader, need)
        assert not problem, problem
    return counts.bytes / 1e6 / (time.process_time() - before)


def figures() -> Iterable[Figure]:
    """One for each kind of large object."""
    for kind in ("chunks", "segments", "Parquet"):

        def measure(kind: str = kind) -> float:
            return asyncio.run(_rate(kind))

        yield Figure(f"scrub: {kind}", median(measure), "MB/s of CPU", goal=GOAL_MB_S)
