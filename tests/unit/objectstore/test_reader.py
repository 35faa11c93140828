"""The chunk reader: right bytes, read once, checked, and the tail stays in memory."""

from __future__ import annotations

import asyncio

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, peek, records, split
from objectstore.cache import ENTRY_BYTES
from objectstore.chunk import ChunkWriter
from objectstore.faulty import Fault, FaultyStore
from objectstore.naming import ChunkId, SliceRef, chunk_key
from objectstore.reader import ChunkMissing, ChunkReader, CorruptSlice
from objectstore.store import Retryable, StoreError

CLUSTER = bytes(16)
MIB = 1 << 20


class Stage:
    """A store with chunks of known content and a reader over it."""

    def __init__(self, cache: int = 8 * MIB, cold: int = 8 * MIB, concurrency: int = 8) -> None:
        self.memory = MemoryStore()
        self.faulty = FaultyStore(self.memory)
        self.reader = ChunkReader(self.faulty, cache, cold_bytes_max=cold, concurrency_max=concurrency)
        self.next_number = 1

    async def chunk(self, *batches: tuple[int, int], size: int = 50, base: int = 100) -> list[SliceRef]:
        """Store a chunk with a batch per (partition, record count); its slices, one per batch."""
        writer = ChunkWriter()
        for number, (partition, count) in enumerate(batches):
            text = b"%d-%d " % (partition, number)
            writer.add(partition, build([NewRecord(5, None, text.ljust(size, b"."))] * count))
        chunk = ChunkId(0xA, self.next_number)
        self.next_number += 1
        encoded = writer.finish(CLUSTER, chunk)
        await self.memory.put(chunk_key(chunk), encoded.parts)
        data = await self.memory.get(chunk_key(chunk))
        slices = []
        for position in encoded.positions:
            header = peek(data, position)
            slices.append(SliceRef(base, base + header.record_count, chunk, position, header.size, 5))
            base += header.record_count
        return slices

    @property
    def gets(self) -> int:
        return self.faulty.calls.get("get_range", 0)


@pytest.fixture
async def stage():
    found = Stage()
    yield found
    await found.reader.close()


def offsets(data: memoryview) -> list[int]:
    return [record.offset for record in records(data)]


async def test_offsets_are_patched_and_the_rest_is_as_stored(stage: Stage) -> None:
    [first, second] = await stage.chunk((3, 2), (3, 4))
    both = SliceRef(
        first.base_offset, second.end_offset, first.chunk, first.position, first.length + second.length, 5
    )
    data = await stage.reader.read(both)
    assert offsets(data) == [100, 101, 102, 103, 104, 105]
    assert {peek(data, position).partition_leader_epoch for position, _ in split(data)} == {0}
    stored = await stage.memory.get_range(chunk_key(first.chunk), both.position, both.length)
    assert data[16 : first.length] == stored[16 : first.length]
    assert data.readonly
    assert isinstance(data, memoryview)


async def test_a_slice_is_read_once_and_then_from_memory(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 1))
    first = await stage.reader.read(wanted)
    assert await stage.reader.read(wanted) == first
    assert stage.reader.cached(wanted) == first
    assert stage.gets == 1
    assert stage.reader.stats.cold_hits == 2


async def test_all_who_ask_at_once_share_one_read(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 3))
    found = await asyncio.gather(*(stage.reader.read(wanted) for _ in range(50)))
    assert stage.gets == 1
    assert {bytes(data) for data in found} == {bytes(found[0])}
    assert stage.reader.stats.joined == 49
    assert await stage.reader.read_many([wanted] * 3) == found[:3]


async def test_a_reader_that_gives_up_does_not_spoil_it_for_others(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 3))
    one, other = (
        asyncio.create_task(stage.reader.read(wanted)),
        asyncio.create_task(stage.reader.read(wanted)),
    )
    await asyncio.sleep(0)
    one.cancel()
    assert offsets(await other) == [100, 101, 102]
    assert one.cancelled()
    assert stage.gets == 1


async def test_neighbours_in_a_chunk_are_one_request_and_strangers_are_not(stage: Stage) -> None:
    near = await stage.chunk((1, 2), (2, 2), (3, 2), (4, 2))
    far = await stage.chunk((1, 1), (2, 200), (3, 1), size=2_000)
    wanted = [near[3], far[0], near[0], near[1], far[2]]
    found = await stage.reader.read_many(wanted)
    assert [offsets(data)[0] for data in found] == [each.base_offset for each in wanted]
    assert stage.gets == 3
    assert stage.reader.stats.get_bytes < 64 * 1024


async def test_own_flushes_are_read_from_memory(stage: Stage) -> None:
    [first, second] = await stage.chunk((3, 2), (3, 4))
    data = await stage.memory.get(chunk_key(first.chunk))
    parts = [memoryview(data)[each.position : each.position + each.length] for each in (first, second)]
    stage.reader.put_own(first.chunk, first.position, parts, 100)
    both = SliceRef(100, 106, first.chunk, first.position, first.length + second.length, 5)
    own = await stage.reader.read(both)
    assert stage.gets == 0
    assert await ChunkReader(stage.memory, 0).read(both) == own
    assert await stage.reader.read(first) == own[: first.length]
    assert stage.reader.stats.tail_hits == 2


async def test_own_flushes_are_copied(stage: Stage) -> None:
    """The producer's buffer may be used again, and a hedged PUT may still be reading it."""
    buffer = bytearray(build([NewRecord(1, None, b"x")]))
    before = bytes(buffer)
    wanted = SliceRef(9, 10, ChunkId(1, 1), 64, len(buffer), 1)
    stage.reader.put_own(wanted.chunk, 64, [buffer], 9)
    assert buffer == before
    buffer[:] = bytes(len(buffer))
    assert offsets(await stage.reader.read(wanted)) == [9]


async def test_memory_under_another_offset_is_not_used(stage: Stage) -> None:
    """A chunk's batch that apply refused and that was later written again must not be mistaken."""
    [wanted] = await stage.chunk((1, 2))
    data = await stage.memory.get_range(chunk_key(wanted.chunk), wanted.position, wanted.length)
    stage.reader.put_own(wanted.chunk, wanted.position, [data], 7)
    assert offsets(await stage.reader.read(wanted)) == [100, 101]
    assert stage.gets == 1


async def test_cold_reads_never_push_out_the_tail() -> None:
    stage = Stage(cache=64 * 1024, cold=32 * 1024)
    batch = build([NewRecord(1, None, bytes(1_000))])
    own = [SliceRef(n, n + 1, ChunkId(1, n + 1), 64, len(batch), 1) for n in range(40)]
    for each in own:
        stage.reader.put_own(each.chunk, each.position, [batch], each.base_offset)
    for _ in range(30):
        for each in await stage.chunk((1, 1), size=5_000):
            await stage.reader.read(each)
    gets = stage.gets
    assert gets == 30
    for each in own:
        await stage.reader.read(each)
    assert stage.gets == gets
    assert stage.reader.cached_bytes <= (64 + 32) * 1024


async def test_the_tail_is_bounded_and_forgets_the_oldest() -> None:
    batch = build([NewRecord(1, None, bytes(1_000))])
    stage = Stage(cache=10 * (len(batch) + ENTRY_BYTES))
    own = [SliceRef(n, n + 1, ChunkId(1, n + 1), 64, len(batch), 1) for n in range(30)]
    for each in own:
        stage.reader.put_own(each.chunk, each.position, [batch], each.base_offset)
    assert [each.base_offset for each in own if stage.reader.cached(each) is not None] == list(range(20, 30))
    assert stage.reader.cached_bytes == 10 * (len(batch) + ENTRY_BYTES)


async def test_a_missing_chunk_is_named(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 1))
    [other] = await stage.chunk((1, 1))
    await stage.memory.delete([chunk_key(wanted.chunk)])
    with pytest.raises(ChunkMissing) as caught:
        await stage.reader.read_many([other, wanted])
    assert caught.value.chunk == wanted.chunk
    assert offsets(await stage.reader.read(other)) == [100]


async def test_a_store_that_fails_is_asked_again_next_time(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 1))
    stage.faulty.order("get_range", Fault.REFUSED)
    with pytest.raises(Retryable):
        await stage.reader.read(wanted)
    assert offsets(await stage.reader.read(wanted)) == [100]


async def test_damage_on_the_way_is_read_again(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 5))
    stage.faulty.order("get_range", Fault.CORRUPT)
    assert offsets(await stage.reader.read(wanted)) == [100, 101, 102, 103, 104]
    assert (stage.gets, stage.reader.stats.corrupt) == (2, 1)


async def test_damage_at_rest_is_reported_with_its_place(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 5))
    data = bytearray(await stage.memory.get(chunk_key(wanted.chunk)))
    data[wanted.position + 100] ^= 1
    await stage.memory.put(chunk_key(wanted.chunk), [data])
    with pytest.raises(CorruptSlice, match=rf"{chunk_key(wanted.chunk)} bytes {wanted.position}"):
        await stage.reader.read(wanted)
    assert stage.reader.cached(wanted) is None


async def test_batches_that_take_other_offsets_than_committed_are_corrupt(stage: Stage) -> None:
    [wanted] = await stage.chunk((1, 5))
    with pytest.raises(CorruptSlice, match="committed were offsets to 106"):
        await stage.reader.read(wanted._replace(end_offset=106))


async def test_large_spans_take_the_same_way_through_a_thread(stage: Stage) -> None:
    slices = await stage.chunk((1, 100), (2, 100), (3, 1), size=4_000)
    found = await stage.reader.read_many(slices)
    assert [len(offsets(data)) for data in found] == [100, 100, 1]


async def test_reads_of_the_store_are_bounded() -> None:
    stage = Stage(concurrency=3)
    running = peak = 0

    class Counting(MemoryStore):
        async def get_range(self, key: str, start: int, length: int) -> bytes:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.001)
            running -= 1
            return await stage.memory.get_range(key, start, length)

    reader = ChunkReader(Counting(), MIB, concurrency_max=3)
    slices = [each for _ in range(20) for each in await stage.chunk((1, 1))]
    await reader.read_many(slices)
    assert peak == 3


async def test_close_ends_reads_under_way(stage: Stage) -> None:
    [one] = await stage.chunk((1, 1))
    [two] = await stage.chunk((1, 1))
    waiting = asyncio.create_task(stage.reader.read(one))
    await asyncio.sleep(0)
    never_begun = asyncio.create_task(stage.reader.read(two))
    await asyncio.sleep(0)
    await stage.reader.close()
    with pytest.raises(StoreError, match="closing"):
        await waiting
    with pytest.raises(StoreError, match="closing"):
        await never_begun


async def test_two_lengths_at_one_place_are_both_answered(stage: Stage) -> None:
    [first, second] = await stage.chunk((3, 2), (3, 4))
    both = first._replace(end_offset=second.end_offset, length=first.length + second.length)
    short, long = await stage.reader.read_many([first, both])
    assert (offsets(short), offsets(long)) == ([100, 101], [100, 101, 102, 103, 104, 105])
    assert long[: first.length] == short
