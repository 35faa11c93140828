"""Cost of the committer's CPU work: record batches → Parquet bytes, per core (CPU seconds, all threads)."""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from iceberg import layout, writer
from iceberg.layout import Layout
from iceberg.writers import ProcessWriter
from iceberg.writing import FileWriter, ThreadWriter
from objectstore import batch
from objectstore.compression import Compression
from tests.bench.bench_schema import BATCH_RECORDS, flight_values, median_rate
from tests.bench.figure import Figure
from tests.unit.iceberg import rig as rigs
from tests.unit.schema import samples

FLIGHTS = 100_000
WIDE = b"""
syntax = "proto3";
package wide;
message Row {
  int64 id = 1; int64 user = 2; string session = 3; string page = 4; string referrer = 5; string country = 6;
  double price = 7; double tax = 8; int32 quantity = 9; bool paid = 10; fixed64 at_us = 11; string note = 12;
}
"""
WIDE_BYTES = 141
RAW_RECORDS = 40_000
RAW_BYTES = 1_000
COMMITS = 250


def slices_of(values: Sequence[bytes], compression: Compression) -> list[memoryview]:
    """The values as slices of batches at consecutive offsets."""
    return [
        memoryview(
            batch.build(
                [
                    batch.NewRecord(1_700_000_000_000 + at, b"N%05d" % (at % 4000), value)
                    for at, value in enumerate(values[start : start + BATCH_RECORDS])
                ],
                base_offset=start,
                compression=compression,
            )
        )
        for start in range(0, len(values), BATCH_RECORDS)
    ]


def raw_values(count: int) -> list[bytes]:
    """Half random, half text: compresses about two to one."""
    draw = random.Random(7)
    text = b"the quick brown fox jumps over the lazy dog " * 12
    return [draw.randbytes(RAW_BYTES // 2) + text[: RAW_BYTES // 2] for _ in range(count)]


def wide_values(count: int) -> list[bytes]:
    """Rows of 12 columns, 141 bytes each on average."""
    row = samples.message_type(WIDE, "wide.Row").message_class
    draw = random.Random(3)
    values = [
        row(
            id=at,
            user=draw.randrange(10**9),
            session=f"{draw.getrandbits(64):016x}",
            page=f"/shop/item/{draw.randrange(10_000)}",
            referrer=draw.choice(("https://example.com/", "https://search.example/", "")),
            country=draw.choice(("IT", "FR", "DE", "JP")),
            price=draw.random() * 100,
            tax=draw.random(),
            quantity=draw.randrange(1, 9),
            paid=draw.random() < 0.5,
            at_us=1_700_000_000_000_000 + at,
            note="".join(draw.choices("abcdefgh ", k=40)),
        ).SerializeToString()
        for at in range(count)
    ]
    assert abs(sum(map(len, values)) / count - WIDE_BYTES) < 5, sum(map(len, values)) / count
    return values


def flights_layout() -> Layout:
    """A topic bound to the 19-column message."""
    return layout.build(None, samples.bound(samples.FLIGHTS, "nyc.Flight"))


async def loop_delays(table: Layout, slices: list[memoryview], process: bool) -> tuple[float, float]:
    """How late the event loop ran while a file was written: p99 and longest, milliseconds."""
    loop = asyncio.get_running_loop()
    helper = ProcessWriter()
    files: FileWriter = helper if process else ThreadWriter()
    await files.write(table, 0, slices[:1], 0, BATCH_RECORDS)
    work = asyncio.create_task(files.write(table, 0, slices, 0, FLIGHTS))
    delays = []
    while not work.done():
        before = loop.time()
        await asyncio.sleep(0.001)
        delays.append((loop.time() - before - 0.001) * 1000)
    await work
    await helper.close()
    return statistics.quantiles(delays, n=100)[98], max(delays)


def figures() -> Iterable[Figure]:
    """Throughput of both kinds of topic, what the event loop feels of it, and one small commit."""
    pa.set_cpu_count(1)
    flights, raw = flights_layout(), layout.build(None, None)
    flight_slices = slices_of(flight_values(FLIGHTS), Compression.NONE)
    raw_slices = slices_of(raw_values(RAW_RECORDS), Compression.NONE)
    rows = median_rate(lambda: writer.write_file(flights, 0, flight_slices, 0, FLIGHTS), FLIGHTS)
    yield Figure("committer, flights", rows, "rows/s/core", goal=200_000)
    wide, wide_slices = (
        layout.build(None, samples.bound(WIDE, "wide.Row")),
        slices_of(wide_values(FLIGHTS), Compression.NONE),
    )
    rows = median_rate(lambda: writer.write_file(wide, 0, wide_slices, 0, FLIGHTS), FLIGHTS)
    yield Figure(f"committer, rows of 12 columns and {WIDE_BYTES} B", rows, "rows/s/core", goal=250_000)
    megabytes = RAW_RECORDS * RAW_BYTES / 1e6
    rate = median_rate(lambda: writer.write_file(raw, 0, raw_slices, 0, RAW_RECORDS), megabytes)
    yield Figure("committer, 1 kB raw records", rate, "MB/s/core", goal=60)
    for name, process in (("thread", False), ("process", True)):
        late, latest = asyncio.run(loop_delays(flights, flight_slices, process))
        title = f"event loop late while a {name} writes"
        yield Figure(f"{title}, p99", late, "ms", better="less")
        yield Figure(f"{title}, longest", latest, "ms", better="less")
    typical = asyncio.run(commit_ms())
    yield Figure(f"one commit of one record, after {COMMITS} of them", typical, "ms", better="less")


async def commit_ms() -> float:
    """Time of one commit of one record to a table that has COMMITS snapshots behind it, log in memory."""
    with tempfile.TemporaryDirectory() as folder:
        async with rigs.running(Path(folder, "rig")) as rig:
            await rig.create_topic()
            committer = rig.committer()
            times = []
            for _ in range(COMMITS):
                await rig.produce([b"x"])
                start = time.perf_counter()
                await committer.run_once()
                times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times[-COMMITS // 5 :])
