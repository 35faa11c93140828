"""The reader over a store that fails and lies at random: what it returns is right, or it says why not."""

from __future__ import annotations

import asyncio

import pytest

from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, peek, records
from objectstore.chunk import ChunkWriter
from objectstore.faulty import Dice, FaultRates, FaultyStore
from objectstore.naming import ChunkId, SliceRef, chunk_key
from objectstore.reader import ChunkReader
from objectstore.store import StoreError

RATES = FaultRates(refused=0.1, truncated=0.1, corrupt=0.2, slow=0.1, slow_s_max=0.0005)
CHUNKS, PARTITIONS, BATCHES = 6, 3, 5


async def committed(store: MemoryStore, dice: Dice) -> dict[SliceRef, list[bytes]]:
    """Chunks of several partitions, offsets dense per partition; the values of each slice's records."""
    truth: dict[SliceRef, list[bytes]] = {}
    ends = [0] * PARTITIONS
    for number in range(CHUNKS):
        writer, values = ChunkWriter(), []
        for index in range(PARTITIONS * BATCHES):
            count = 1 + int(dice.random() * 4)
            values.append([b"%d-%d-%d" % (number, index, n) for n in range(count)])
            writer.add(index % PARTITIONS, build([NewRecord(1, None, value) for value in values[-1]]))
        encoded = writer.finish(bytes(16), ChunkId(1, number))
        await store.put(chunk_key(encoded.chunk), encoded.parts)
        data = await store.get(chunk_key(encoded.chunk))
        for ticket, position in zip(writer.order(), encoded.positions, strict=True):
            partition = ticket % PARTITIONS
            base, size = ends[partition], peek(data, position).size
            ends[partition] += len(values[ticket])
            truth[SliceRef(base, ends[partition], encoded.chunk, position, size, 1)] = values[ticket]
    return truth


@pytest.mark.parametrize("seed", range(15))
async def test_whatever_is_returned_is_what_was_committed(seed: int) -> None:
    dice, memory = Dice(seed), MemoryStore()
    truth = await committed(memory, dice)
    slices = list(truth)
    reader = ChunkReader(FaultyStore(memory, seed, RATES), 4_000, cold_bytes_max=3_000, concurrency_max=3)
    told = {"read": 0, "failed": 0}

    async def consumer() -> None:
        for _ in range(30):
            start = int(dice.random() * len(slices))
            wanted = slices[start : start + 1 + int(dice.random() * 6)]
            if dice.random() < 0.2:
                own = wanted[0]
                assert isinstance(own.chunk, ChunkId), "nothing is merged here"
                whole = await memory.get_range(chunk_key(own.chunk), own.position, own.length)
                reader.put_own(own.chunk, own.position, [whole], own.base_offset)
            try:
                found = await reader.read_many(wanted)
            except StoreError:
                told["failed"] += 1
                continue
            told["read"] += 1
            for each, data in zip(wanted, found, strict=True):
                read = list(records(data))
                assert [record.value for record in read] == truth[each]
                assert [record.offset for record in read] == list(range(each.base_offset, each.end_offset))

    await asyncio.gather(*(consumer() for _ in range(4)))
    await reader.close()
    assert told["read"] > 20
    assert told["failed"] > 0
    assert reader.stats.corrupt > 0
    assert reader.cached_bytes <= 7_000
