"""Offsets by time inside a slice."""

from __future__ import annotations

from agent.kafka.fetch.timestamps import Found, first_at_or_after, highest
from objectstore.batch import NewRecord, build, patch_all, peek, seal
from objectstore.compression import Compression
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, offsets, produce
from tests.unit.agent.kafka.transactions_rig import Txn
from tests.unit.agent.rig import Agent, batch


def slice_of(*batches: bytes, base_offset: int = 100) -> memoryview:
    stored = bytearray(b"".join(batches))
    patch_all(stored, base_offset)
    return memoryview(stored)


async def test_the_first_record_at_or_after_a_time_may_stand_inside_a_batch() -> None:
    view = slice_of(
        build([NewRecord(10, None, b"a"), NewRecord(30, None, b"b")]), build([NewRecord(20, None, b"c")])
    )
    assert await first_at_or_after(view, 11) == Found(101, 30)
    assert await first_at_or_after(view, 31) is None
    assert await highest(view) == Found(101, 30)


async def test_a_batch_that_nobody_can_open_is_answered_by_its_header() -> None:
    """Garbage under a good CRC must not make every question of time fail for ever."""
    sound = peek(build([NewRecord(10, None, b"a"), NewRecord(30, None, b"b")]))
    garbage = seal(sound._replace(attributes=int(Compression.GZIP)), b"\x55" * 100)
    view = slice_of(garbage, build([NewRecord(20, None, b"c")]))
    assert await first_at_or_after(view, 11) == Found(100, 30)
    assert await highest(view) == Found(100, 30)


async def test_a_time_is_answered_by_records_below_the_last_stable_offset_only(agent: Agent) -> None:
    """The first record of an open transaction lies at the last stable offset, and is not below it."""
    await create(agent)
    await produce(agent, batch(b"plain", timestamp=5))
    producer = Txn(agent)
    await producer.init()
    await producer.send(b"open")
    for timestamp in (6, -3):
        (found,) = await offsets(agent, timestamp, isolation=0)
        assert found[1] == 1, "who reads everything gets the open transaction's record"
        assert await offsets(agent, timestamp, isolation=1) == [(0, -1, -1)]
    assert await offsets(agent, 5, isolation=1) == [(0, 0, 5)]
    await producer.end(commit=True)
    assert (await offsets(agent, 6, isolation=1))[0][1] == 1
