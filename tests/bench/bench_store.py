"""The room's hot paths one by one, and the two S3 servers' share: what a produce and a fetch are made of."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from statistics import median

from deploy.services import Minio, VersityGw
from deploy.services.s3 import S3Service
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, check_crc, patch, peek, records
from objectstore.chunk import ChunkWriter
from objectstore.flush import ChunkPutter
from objectstore.naming import ChunkId, SliceRef, chunk_key
from objectstore.open import open_store
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore
from tests.bench.figure import Figure

MIB = 1 << 20
ROUNDS = 5
CLUSTER = bytes(16)
BATCH = build([NewRecord(1_000, None, os.urandom(1_000)) for _ in range(16)])  # 16 KB, as librdkafka sends
PARTITIONS = 16
CHUNK_BATCHES = 256


def seconds_per_call(work: Callable[[], object], calls: int) -> float:
    """Median over ROUNDS of the mean of `calls` calls."""
    means = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(calls):
            work()
        means.append((time.perf_counter() - started) / calls)
    return median(means)


def chunk(number: int) -> tuple[ChunkId, list[bytes | bytearray | memoryview], list[SliceRef]]:
    """A 4 MiB chunk of 16 partitions and its slices."""
    writer = ChunkWriter()
    for index in range(CHUNK_BATCHES):
        writer.add(index % PARTITIONS, BATCH)
    encoded = writer.finish(CLUSTER, ChunkId(1, number))
    per_partition = CHUNK_BATCHES // PARTITIONS
    slices = [
        SliceRef(0, 16 * per_partition, encoded.chunk, position, per_partition * len(BATCH), 1_000)
        for position in list(encoded.positions)[::per_partition]
    ]
    return encoded.chunk, list(encoded.parts), slices


def in_memory() -> Iterator[Figure]:
    """What needs no server."""
    view, buffer = memoryview(BATCH), bytearray(BATCH)
    yield Figure(
        "batch header peek", seconds_per_call(lambda: peek(view), 50_000) * 1e6, "µs", goal=1.0, better="less"
    )
    yield Figure(
        "batch CRC check, 16 KB", seconds_per_call(lambda: check_crc(view, 0, len(view)), 20_000) * 1e6, "µs"
    )
    yield Figure("batch offset patch", seconds_per_call(lambda: patch(buffer, 0, 7), 50_000) * 1e6, "µs")
    per_batch = seconds_per_call(lambda: sum(1 for _ in records(view)), 2_000)
    yield Figure("records decoded, 1 kB", 16 / per_batch / 1e6, "M/s")
    encode_s = seconds_per_call(lambda: chunk(1), 20)
    yield Figure("chunk encode, 4 MiB of 16 KB batches", 4 / encode_s, "MiB/s")


async def cached() -> Iterable[Figure]:
    """A tail read: one slice, then the 16 of a fetch, from memory."""
    name, parts, slices = chunk(1)
    reader = ChunkReader(MemoryStore(), 64 * MIB)
    data = b"".join(parts)
    own_s = seconds_per_call(lambda: reader.put_own(name, 64, [data[64 : 64 + len(BATCH)]], 0), 2_000)
    for wanted in slices:
        batches = data[wanted.position : wanted.position + wanted.length]
        pieces = [batches[at : at + len(BATCH)] for at in range(0, len(batches), len(BATCH))]
        reader.put_own(name, wanted.position, pieces, wanted.base_offset)
    one_s = seconds_per_call(lambda: reader.cached(slices[0]), 50_000)
    started, rounds = time.perf_counter(), 2_000
    for _ in range(rounds):
        await reader.read_many(slices)
    many_s = (time.perf_counter() - started) / rounds
    return [
        Figure("own flush into the cache, 16 KB", own_s * 1e6, "µs"),
        Figure("cached read, one slice", one_s * 1e6, "µs"),
        Figure("cached read, 16 slices of a fetch", many_s * 1e6, "µs"),
    ]


async def _timed(works: Iterable[Callable[[], Awaitable[object]]], width: int) -> tuple[float, float]:
    """Wall and CPU seconds for all, `width` at a time."""
    queue = iter(works)

    async def worker() -> None:
        for work in queue:
            await work()

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(width)))
    return time.perf_counter() - wall, time.process_time() - cpu


async def on_server(server: S3Service) -> Iterable[Figure]:
    """PUTs of chunks, quiet small PUTs, cold reads through the reader."""
    bucket = server.make_bucket("bench-store")
    store: ObjectStore = open_store(
        f"s3://{bucket}/bench",
        endpoint=server.endpoint,
        access_key=server.access_key,
        secret_key=server.secret_key,
        allow_http=True,
    )
    putter, count = ChunkPutter(store), 48
    chunks = [chunk(number) for number in range(count)]
    puts = [partial(putter.put, each[0], each[1]) for each in chunks]
    put_s, put_cpu_s = await _timed(puts, 4)
    small = []
    for number in range(100):
        started = time.perf_counter()
        await putter.put(ChunkId(2, number), [BATCH])
        small.append(time.perf_counter() - started)
    reader = ChunkReader(store, 0)
    reads = [lambda each=each: reader.read_many(each[2]) for each in chunks]
    read_s, read_cpu_s = await _timed(reads, 4)
    read_mb = sum(wanted.length for _, _, slices in chunks for wanted in slices) / 1e6
    put_mb = putter.stats.put_bytes / 1e6
    await reader.close()
    return [
        Figure(f"PUT of 4 MiB chunks, 4 at a time, {server.name}", count * 4 * MIB / 1e6 / put_s, "MB/s"),
        Figure(f"PUT, own CPU, {server.name}", put_cpu_s / put_mb * 1000, "CPU-s/GB"),
        Figure(f"PUT of 16 KB, p50, {server.name}", median(small) * 1000, "ms"),
        Figure(f"cold read, 4 at a time, {server.name}", read_mb / read_s, "MB/s", goal=80.0),
        Figure(f"cold read, own CPU, {server.name}", read_cpu_s / read_mb * 1000, "CPU-s/GB"),
    ]


async def in_folder(path: str) -> Iterable[Figure]:
    """The embedded default's store."""
    store = open_store(f"file://{path}")
    putter, small = ChunkPutter(store), []
    for number in range(100):
        started = time.perf_counter()
        await putter.put(ChunkId(2, number), [BATCH])
        small.append(time.perf_counter() - started)
    chunks = [chunk(number) for number in range(24)]
    put_s, _ = await _timed([partial(putter.put, each[0], each[1]) for each in chunks], 4)
    await store.delete([chunk_key(each[0]) for each in chunks])
    await store.close()
    return [
        Figure("PUT of 16 KB, p50, synced folder", median(small) * 1000, "ms"),
        Figure("PUT of 4 MiB chunks, 4 at a time, synced folder", 24 * 4 * MIB / 1e6 / put_s, "MB/s"),
    ]


def figures() -> Iterator[Figure]:
    """Everything, servers one after the other."""
    yield from in_memory()
    yield from asyncio.run(cached())
    with tempfile.TemporaryDirectory(prefix="floe-bench-") as path:
        yield from asyncio.run(in_folder(path))
    for service in (Minio, VersityGw):
        with service() as server:
            yield from asyncio.run(on_server(server))
