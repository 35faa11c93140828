"""Batches of clients are opened within bounds that say what they decode to."""

from __future__ import annotations

import asyncio
import threading
import tracemalloc

import pytest

from objectstore.batch import Compression, CorruptBatch, NewRecord, build, look_through, records
from objectstore.opening import INLINE_DECODED_MAX, SHARED_DECODED_MAX, opened


def constant(size: int, compression: Compression = Compression.ZSTD) -> memoryview:
    return memoryview(build([NewRecord(0, None, bytes(size))], compression=compression))


class Opener:
    """Notes in which thread a batch was opened at last."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def work(self, batch: memoryview, decoded_bytes_max: int) -> int:
        found = sum(len(each.value or b"") for each in records(batch, decoded_bytes_max))
        self.threads.append(threading.current_thread().name)
        return found


async def test_few_bytes_that_decode_to_many_are_not_opened_on_the_event_loop() -> None:
    here = threading.current_thread().name
    opener, small, large = Opener(), constant(100), constant(INLINE_DECODED_MAX)
    assert len(large) < 200
    assert await opened(opener.work, small, 16_384) == 100
    assert await opened(opener.work, large, 16_384) == INLINE_DECODED_MAX
    assert await opened(opener.work, small, 0) == 100
    assert [name == here for name in opener.threads] == [True, False, False]


async def test_batches_that_decode_to_very_many_bytes_go_one_by_one() -> None:
    """A hundred small requests must not hold a hundred times what one batch may be."""
    opener, huge = Opener(), constant(SHARED_DECODED_MAX)
    assert len(huge) < 2_000
    found = await asyncio.gather(*(opened(opener.work, huge, 16_384) for _ in range(6)))
    assert found == [SHARED_DECODED_MAX] * 6
    assert len(set(opener.threads)) == 1


@pytest.mark.parametrize("inline_bytes_max", [0, 16_384])
async def test_a_broken_batch_is_said_to_be_broken(inline_bytes_max: int) -> None:
    broken = memoryview(bytes(constant(1_000))[:-3])
    with pytest.raises(CorruptBatch):
        await opened(look_through, broken, inline_bytes_max)


def test_looking_through_a_batch_of_very_many_records_takes_no_memory_for_each() -> None:
    count = 100_000
    batch = memoryview(build([NewRecord(0, None, b"")] * count, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        look_through(batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 * count, "a number for every record's offset are 32 bytes and its place in a list"
