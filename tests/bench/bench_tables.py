"""Cost of the committer's CPU work: record batches → Parquet bytes, per core (CPU seconds, all threads)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

import pyarrow as pa

from iceberg import layout, writer
from iceberg.layout import Layout
from objectstore import batch
from objectstore.compression import Compression
from tests.bench.bench_schema import BATCH_RECORDS, flight_values, median_rate
from tests.unit.schema import samples

FLIGHTS = 100_000
RAW_RECORDS = 40_000
RAW_BYTES = 1_000


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


def flights_layout() -> Layout:
    """A topic bound to the 19-column message."""
    return layout.build(None, samples.bound(samples.FLIGHTS, "nyc.Flight"))


async def loop_stall_ms(table: Layout, slices: list[memoryview], rows: int) -> float:
    """The longest the event loop was held up while a file was written in a thread, milliseconds."""
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, writer.write_file, table, 0, slices, 0, rows)
    worst = 0.0
    while not work.done():
        before = loop.time()
        await asyncio.sleep(0.001)
        worst = max(worst, loop.time() - before - 0.001)
    await work
    return worst * 1000


def run() -> list[dict[str, object]]:
    """Throughput of both kinds of topic, and what the event loop feels of it."""
    pa.set_cpu_count(1)
    flights, raw = flights_layout(), layout.build(None, None)
    flight_slices = slices_of(flight_values(FLIGHTS), Compression.NONE)
    raw_slices = slices_of(raw_values(RAW_RECORDS), Compression.NONE)
    rows = median_rate(lambda: writer.write_file(flights, 0, flight_slices, 0, FLIGHTS), FLIGHTS)
    megabytes = RAW_RECORDS * RAW_BYTES / 1e6
    rate = median_rate(lambda: writer.write_file(raw, 0, raw_slices, 0, RAW_RECORDS), megabytes)
    stall = asyncio.run(loop_stall_ms(flights, flight_slices, FLIGHTS))
    return [
        {"name": "committer, flights", "value": round(rows), "unit": "rows/s/core", "goal": 200_000},
        {"name": "committer, 1 kB raw", "value": round(rate, 1), "unit": "MB/s/core", "goal": 60},
        {"name": "event loop held by a writing thread", "value": round(stall, 1), "unit": "ms"},
    ]


if __name__ == "__main__":
    for figure in run():
        print(figure)
