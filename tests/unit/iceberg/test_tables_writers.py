"""Files from the helper process are those of a thread; its end harms nothing."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from iceberg import layout, writer
from iceberg.partitioning import By
from iceberg.writer import FileContent
from iceberg.writers import ProcessWriter
from iceberg.writing import ThreadWriter, WriterDied
from objectstore import batch
from objectstore.batch import CorruptBatch
from tests.unit.schema import samples

FLIGHT = samples.message_type(samples.FLIGHTS, "nyc.Flight").message_class
TABLE = layout.build(None, samples.bound(samples.FLIGHTS, "nyc.Flight"))


@pytest.fixture
async def helper() -> AsyncIterator[ProcessWriter]:
    """A writer with a process of its own."""
    found = ProcessWriter()
    yield found
    await found.close()
    assert found.pid is None


def slices(count: int = 3, rows: int = 100) -> list[memoryview]:
    """`count` slices of one batch each."""
    values = [FLIGHT(year=number, carrier="UA").SerializeToString() for number in range(rows)]
    return [
        memoryview(
            batch.build([batch.NewRecord(1000, b"k", value) for value in values], base_offset=number * rows)
        )
        for number in range(count)
    ]


def plain(file: FileContent) -> FileContent:
    """The file with its bytes as they compare."""
    return replace(file, parts=[memoryview(bytes(file.content))])


async def test_a_process_writes_what_a_thread_writes(helper: ProcessWriter) -> None:
    (here,) = await ThreadWriter().write(TABLE, 3, slices(), 10, 290)
    (there,) = await helper.write(TABLE, 3, slices(), 10, 290)
    assert plain(here) == plain(there)
    assert (here.rows, here.bounds[3]) == (280, writer.Bounds(10, 289))
    assert await helper.write(TABLE, 3, slices(), 500, 600) == []


async def test_a_process_writes_a_file_for_each_partition_value_too(helper: ProcessWriter) -> None:
    columns = TABLE.fields[2]["type"]["fields"]
    year = next(each["id"] for each in columns if each["name"] == "year")
    table = TABLE.partitioned((By(year, "bucket[3]"),))
    here = await ThreadWriter().write(table, 3, slices(), 0, 300)
    there = await helper.write(table, 3, slices(), 0, 300)
    assert [*map(plain, here)] == [*map(plain, there)]
    assert len({each.values for each in here}) == len(here) > 1
    assert sum(each.rows for each in here) == 300


async def test_a_killed_helper_is_an_error_once_and_replaced(helper: ProcessWriter) -> None:
    await helper.write(TABLE, 0, slices(), 0, 300)
    assert helper.pid is not None
    os.kill(helper.pid, signal.SIGKILL)
    with pytest.raises(WriterDied):
        await helper.write(TABLE, 0, slices(), 0, 300)
    (again,) = await helper.write(TABLE, 0, slices(), 0, 300)
    assert again.rows == 300


async def test_a_cancelled_write_ends_the_helper(helper: ProcessWriter) -> None:
    await helper.write(TABLE, 0, slices(), 0, 300)
    task = asyncio.create_task(helper.write(TABLE, 0, slices(20, 500), 0, 10_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert helper.pid is None


async def test_corrupt_records_are_told_apart_from_a_broken_helper(helper: ProcessWriter) -> None:
    damaged = bytearray(slices(1)[0])
    damaged[57:61] = (500).to_bytes(4, "big")
    with pytest.raises(CorruptBatch):
        await helper.write(TABLE, 0, [memoryview(damaged)], 0, 300)
    assert await helper.write(TABLE, 0, slices(), 0, 300)
