"""Offsets by time inside a slice."""

from __future__ import annotations

import pytest

from agent.kafka.fetch.timestamps import Found, first_at_or_after, highest
from coordination.commands import MoveLogStart
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import HEADER_BYTES, NewRecord, build, patch_all, peek, seal
from objectstore.compression import Compression
from tests.unit.agent.background.merging_rig import merge_rows, partition_of
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


async def test_the_highest_of_a_batch_across_the_log_start_is_of_a_record_behind_it() -> None:
    view = slice_of(
        build([NewRecord(at, None, b"a") for at in (90, 10, 30, 20)]), build([NewRecord(25, None, b"b")])
    )
    assert await highest(view) == Found(100, 90)
    assert await highest(view, 101) == Found(102, 30)
    assert await highest(view, 103) == Found(104, 25)
    assert await highest(view, 104) == Found(104, 25)
    assert await highest(view, 105) is None


@pytest.mark.parametrize("merged", [False, True])
async def test_a_deleted_record_answers_no_question_of_time(
    agent: Agent, memory_store: MemoryStore, *, merged: bool
) -> None:
    """The log start lies inside a slice whose newest time is that of a record before it."""
    await create(agent)
    for stamps in ((1000, 10, 11, 12), (600, 601), (5,)):
        await produce(agent, build([NewRecord(at, None, b"v") for at in stamps]))
    if merged:
        await merge_rows(agent, memory_store, 2)
    partition = partition_of(agent, "t")
    for start, answers in (
        (0, {500: (0, 1000), 700: (0, 1000), 12: (0, 1000), -3: (0, 1000)}),
        (1, {500: (4, 600), 700: (-1, -1), 12: (3, 12), -3: (5, 601)}),
        (5, {500: (5, 601), 601: (5, 601), 602: (-1, -1), -3: (5, 601)}),
        (6, {5: (6, 5), 6: (-1, -1), -3: (6, 5)}),
    ):
        await agent.services.replica.propose(MoveLogStart(partition=[partition.handle], offset=[start]))
        found = {asked: (await offsets(agent, asked))[0][1:] for asked in answers}
        assert found == answers, start


async def test_the_newest_may_be_what_is_left_of_a_slice_across_the_log_start(agent: Agent) -> None:
    await create(agent)
    for stamps in ((1000, 10, 700, 12), (600, 601), (5,)):
        await produce(agent, build([NewRecord(at, None, b"v") for at in stamps]))
    handle = partition_of(agent, "t").handle
    await agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[1]))
    assert await offsets(agent, -3) == [(0, 2, 700)]


async def test_a_header_that_claims_a_later_time_than_its_records_is_answered_by_its_first_offset(
    agent: Agent,
) -> None:
    await create(agent)
    made = build([NewRecord(10, None, b"v"), NewRecord(11, None, b"v")])
    await produce(agent, seal(peek(made)._replace(max_timestamp=900), made[HEADER_BYTES:]))
    assert await offsets(agent, 500) == [(0, 0, 900)]
