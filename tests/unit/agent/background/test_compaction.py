"""A partition compacted through the log and read back as consumers do."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from agent.background.rewriting.compaction.choice import Rules
from agent.background.rewriting.compaction.partition import PartitionCompaction
from agent.background.rewriting.compaction.worker import HelperWorker
from agent.background.rewriting.merging.planner import FAN_IN
from agent.net.wire.generated import init_producer_id as ipi
from agent.net.wire.generated import list_offsets as lo
from coordination import steps
from coordination.commands import DeleteTopic, FenceIncarnation, MoveLogStart
from coordination.kafka_codes import Code
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.compact import Counts
from objectstore.naming import MANIFESTS, SEGMENTS, manifest_key, segment_key
from tests.unit.agent.background.compaction_rig import (
    NOW,
    At,
    InlineWorker,
    compact,
    compaction,
    partition_of,
    read,
)
from tests.unit.agent.background.merging_rig import merge_rows, parts_of
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.kafka.test_handlers_retention import send
from tests.unit.agent.rig import Agent

DAY = 86_400_000


async def put(agent: Agent, name: str, *pairs: tuple[bytes, bytes | None]) -> None:
    """One batch of these records."""
    raw = build(
        [NewRecord(NOW - 1000 + n, key, value, [("h", b"x")]) for n, (key, value) in enumerate(pairs)]
    )
    assert (await send(agent, name, raw)).error_code == 0


async def test_a_tail_becomes_a_compacted_segment(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    await put(agent, "c", (b"a", b"1"), (b"b", b"1"))
    await put(agent, "c", (b"a", b"2"), (b"c", b"1"))
    done = await compact(agent, memory_store, "c")
    assert done is not None
    assert (done.swapped, done.cleaned_to, done.full) == (True, 4, False)
    partition = partition_of(agent, "c")
    assert partition.merged is not None
    assert (partition.merged.records, partition.merged.segments, partition.high_watermark) == (3, 1, 4)
    assert len(partition.slices) == 0
    found = await read(agent, "c")
    assert [(row.offset, row.key, row.value) for row in found] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (3, b"c", b"1"),
    ]
    assert [row.timestamp for row in found] == [NOW - 999, NOW - 1000, NOW - 999]
    assert {tuple(row.headers) for row in found} == {(("h", b"x"),)}
    assert await compact(agent, memory_store, "c") is None, "nothing is dirty any more"


class Killed(BaseException):
    """The process died here."""


@contextmanager
def before(step: str, do: Callable[[], None]) -> Iterator[None]:
    """Do something each time that a compaction is about to take a step."""

    def hook(reached: str) -> None:
        if reached == step:
            do()

    steps.install(hook)
    try:
        yield
    finally:
        steps._hooks.remove(hook)


def die() -> None:
    """End the compaction as a crash would: nothing is put in order."""
    raise Killed


COMPACT_STEPS = [step for step in steps.STEPS if step.startswith("compact/")]


async def objects(store: MemoryStore) -> set[str]:
    """Keys of all segments and manifests."""
    found: set[str] = set()
    for prefix in (SEGMENTS, MANIFESTS):
        async for page in store.list(prefix):
            found |= {each.key for each in page}
    return found


async def referenced(agent: Agent, name: str) -> set[str]:
    """Keys of the manifest of partition 0 and of the segments that it names."""
    merged = partition_of(agent, name).merged
    if merged is None:
        return set()
    manifest = await agent.services.merged.manifest(merged.manifest)
    return {manifest_key(merged.manifest), *map(segment_key, manifest.segments(0, len(manifest)))}


async def filled(agent: Agent, store: MemoryStore) -> None:
    """A partition with two compacted segments' worth of records and a dirty tail."""
    await create(agent, topic("c", cleanup_policy="compact", min_cleanable_dirty_ratio="0.1"))
    for n in range(6):
        await put(agent, "c", (b"k%d" % n, b"v" * 100), (b"same", b"%d" % n))
    assert await compact(agent, store, "c", segment_bytes=400) is not None
    for n in range(3):
        await put(agent, "c", (b"k%d" % n, b"w"), (b"same", b"w%d" % n))


NEWEST = {
    b"k0": b"w",
    b"k1": b"w",
    b"k2": b"w",
    b"same": b"w2",
    **{b"k%d" % n: b"v" * 100 for n in (3, 4, 5)},
}


async def newest(agent: Agent) -> dict[bytes | None, bytes | None]:
    """What a consumer that keeps the newest of each key ends with."""
    return {row.key: row.value for row in await read(agent, "c")}


@pytest.mark.parametrize("step", COMPACT_STEPS)
async def test_killed_before_any_step_nothing_is_lost(
    start: StartAgent, memory_store: MemoryStore, step: str
) -> None:
    a, b = await start("a"), await start("b")
    await filled(a, memory_store)
    with before(step, die), pytest.raises(Killed):
        await compact(a, memory_store, "c")
    await b.services.replica.barrier()
    assert await newest(b) == NEWEST
    incarnation = a.services.replica.incarnation
    await b.services.replica.propose(FenceIncarnation(incarnation=incarnation))
    done = await compact(b, memory_store, "c")
    assert done is None if step == "compact/swapped" else done is not None and done.swapped
    assert await newest(b) == NEWEST
    assert {row.offset for row in await read(b, "c")} == {6, 8, 10, 12, 14, 16, 17}
    assert await referenced(b, "c") <= await objects(memory_store)


async def test_of_two_that_compact_the_same_one_wins_and_the_other_leaves_nothing(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    a, b = await start("a"), await start("b")
    await filled(a, memory_store)
    partition = partition_of(a, "c")

    async def race() -> None:
        await b.services.replica.barrier()
        rules = Rules(0, 1, 0, 1 << 60, DAY)
        parts = compaction(b, memory_store, At(NOW))._parts
        ours = partition_of(b, "c")
        done = await PartitionCompaction(parts, ours, rules, b.services.replica.incarnation, 100).run()
        assert done is not None
        assert done.swapped

    class Parked(InlineWorker):
        """Lets the rival do all the work while this one's pass ends."""

        async def finish(self) -> Counts:
            await race()
            return await super().finish()

    slow = compaction(a, memory_store, At(NOW), worker=Parked())
    before_ = await objects(memory_store)
    done = await slow.compact(partition.handle)
    assert done is not None
    assert not done.swapped
    await b.services.replica.barrier()
    assert await objects(memory_store) == before_ | await referenced(b, "c")
    assert await newest(a) == await newest(b) == NEWEST


async def test_what_is_produced_meanwhile_stays_in_the_tail(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent, memory_store)

    class Busy(InlineWorker):
        """More comes in while the pass ends."""

        async def finish(self) -> Counts:
            await put(agent, "c", (b"k0", b"late"), (b"new", b"late"))
            return await super().finish()

    done = await compaction(agent, memory_store, At(NOW), worker=Busy()).compact(
        partition_of(agent, "c").handle
    )
    assert done is not None
    assert (done.swapped, done.cleaned_to) == (True, 18)
    assert await newest(agent) == {**NEWEST, b"k0": b"late", b"new": b"late"}
    assert len(partition_of(agent, "c").slices) == 1


@pytest.mark.parametrize("merges", [1, 20])
async def test_merging_meanwhile_takes_no_segment_from_a_compaction(
    agent: Agent, memory_store: MemoryStore, merges: int
) -> None:
    """It would otherwise be for nothing: of a partition that is always written to, each one."""
    await create(agent, topic("c", cleanup_policy="compact"))
    handle, parts = partition_of(agent, "c").handle, parts_of(agent, memory_store)
    written = 0

    async def write_and_merge() -> None:
        nonlocal written
        await put(agent, "c", (b"k%d" % (written % 3), b"%d" % written))
        written += 1
        await merge_rows(agent, memory_store, 10, parts=parts, name="c")

    for _ in range(FAN_IN - 1):  # one more, and they become one
        await write_and_merge()

    class Busy(InlineWorker):
        """More is written and merged while the pass ends."""

        async def finish(self) -> Counts:
            for _ in range(merges):
                await write_and_merge()
            return await super().finish()

    done = await compaction(agent, memory_store, At(NOW), worker=Busy()).compact(handle)
    assert done is not None
    assert (done.swapped, done.cleaned_to) == (True, FAN_IN - 1)
    assert len(await read(agent, "c")) == 3 + merges
    for _ in range(FAN_IN):
        await write_and_merge()
    merged = partition_of(agent, "c").merged
    assert merged is not None
    assert merged.segments < FAN_IN + merges, "nobody compacts it any more: small ones become larger ones"


async def test_an_idempotent_producer_goes_on_where_it_was(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    init = await agent.call("InitProducerId", ipi.InitProducerIdRequest(None, 60_000), 4)

    def sequenced(sequence: int) -> bytes:
        row = NewRecord(NOW, b"a", b"%d" % sequence)
        return build(
            [row],
            producer_id=init.producer_id,
            producer_epoch=init.producer_epoch,
            base_sequence=sequence,
        )

    for sequence in range(3):
        assert (await send(agent, "c", sequenced(sequence))).base_offset == sequence
    assert await compact(agent, memory_store, "c") is not None
    assert [row.offset for row in await read(agent, "c")] == [2]
    again = await send(agent, "c", sequenced(1))
    assert (again.error_code, again.base_offset) == (0, 1), "the retry of a record that is gone is known"
    assert (await send(agent, "c", sequenced(4))).error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    following = await send(agent, "c", sequenced(3))
    assert (following.error_code, following.base_offset) == (0, 3)


@pytest.mark.parametrize("how", ["deleted", "moved past all"])
async def test_a_partition_that_goes_meanwhile_leaves_nothing(
    agent: Agent, memory_store: MemoryStore, how: str
) -> None:
    await filled(agent, memory_store)
    handle = partition_of(agent, "c").handle
    before_ = await objects(memory_store)

    class Late(InlineWorker):
        """The partition goes while the pass ends."""

        async def finish(self) -> Counts:
            gone = (
                DeleteTopic(name="c") if how == "deleted" else MoveLogStart(partition=[handle], offset=[-1])
            )
            await agent.services.replica.propose(gone)
            return await super().finish()

    done = await compaction(agent, memory_store, At(NOW), worker=Late()).compact(handle)
    assert done is not None
    assert not done.swapped
    assert await objects(memory_store) == before_


async def test_segments_of_which_all_stays_are_kept_as_they_are(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    for n in range(8):
        await put(agent, "c", (b"k%d" % n, b"v" * 200))
    await compact(agent, memory_store, "c", segment_bytes=500)
    first = await referenced(agent, "c")
    await put(agent, "c", (b"k7", b"new"))
    await compact(agent, memory_store, "c", segment_bytes=500)
    second = await referenced(agent, "c")
    assert len([key for key in first & second if key.startswith(SEGMENTS)]) == 3
    assert [row.offset for row in await read(agent, "c")] == [0, 1, 2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(("policy", "segments"), [("compact", 1), ("compact,delete", 3)])
async def test_what_retention_takes_later_is_not_joined_with_what_goes_sooner(
    agent: Agent, memory_store: MemoryStore, policy: str, segments: int, *, merged: bool
) -> None:
    """Else a segment of all ages goes with its newest record, which may be never."""
    await create(agent, topic("c", cleanup_policy=policy, retention_ms=str(8 * DAY)))
    hours = [0, 24, 12, 49, 0, 100, 100]  # two days are the span; what comes late goes no sooner
    for place, at in enumerate(hours):
        raw = build([NewRecord(NOW - 10 * DAY + at * DAY // 24, b"%d" % place, b"v")])
        assert (await send(agent, "c", raw)).error_code == 0
        if merged:
            await merge_rows(agent, memory_store, 1, name="c")
    done = await compact(agent, memory_store, "c")
    assert done is not None
    assert done.swapped
    found = partition_of(agent, "c").merged
    assert found is not None
    assert found.segments == segments
    assert [row.offset for row in await read(agent, "c")] == [*range(7)]
    manifest = await agent.services.merged.manifest(found.manifest)
    if segments > 1:
        assert [manifest[n].base_offset for n in range(3)] == [0, 3, 5]


@pytest.mark.parametrize("start_at", range(10))
async def test_a_fetch_at_a_removed_offset_gets_the_next_record(
    agent: Agent, memory_store: MemoryStore, start_at: int
) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    for n in range(4):
        await put(agent, "c", (b"a", b"%d" % n), (b"b%d" % (n // 2), b"%d" % n))
    await compact(agent, memory_store, "c")
    await put(agent, "c", (b"a", b"last"), (b"z", b"last"))
    left = [3, 6, 7, 8, 9]
    assert [row.offset for row in await read(agent, "c")] == left
    assert [row.offset for row in await read(agent, "c", start_at)] == [at for at in left if at >= start_at]
    assert [row.offset for row in await read(agent, "c", start_at, bytes_max=1)] == [
        at for at in left if at >= start_at
    ], "the smallest answers skip nothing"


async def test_offsets_by_time_find_what_is_left(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    for n in range(4):
        raw = build([NewRecord(NOW + 10 * n, b"a", b"x"), NewRecord(NOW + 10 * n + 5, b"b%d" % n, b"x")])
        await send(agent, "c", raw)
    await compact(agent, memory_store, "c", at_ms=NOW + 1000)

    async def asked(timestamp: int) -> tuple[int, int]:
        part = lo.ListOffsetsPartition(0, -1, timestamp)
        request = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic("c", [part])])
        row = (await agent.call("ListOffsets", request, 7)).topics[0].partitions[0]
        assert row.error_code == 0
        return row.offset, row.timestamp

    assert await asked(-2) == (0, -1)
    assert await asked(-1) == (8, -1)
    assert await asked(-3) == (7, NOW + 35)
    assert await asked(NOW) == (1, NOW + 5), "offset 0 is gone"
    assert await asked(NOW + 6) == (3, NOW + 15)
    assert await asked(NOW + 26) == (6, NOW + 30)
    assert await asked(NOW + 36) == (-1, -1)


async def test_the_helper_process_does_what_is_done_inline(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent, memory_store)
    worker = HelperWorker()
    job = compaction(agent, memory_store, At(NOW), worker=worker)
    done = await job.compact(partition_of(agent, "c").handle)
    assert done is not None
    assert (done.swapped, done.counts.records_in, done.counts.records_out) == (True, 13, 7)
    assert await newest(agent) == NEWEST
    assert worker.pid is not None
    await job.stop()
    assert worker.pid is None


async def test_a_helper_that_dies_costs_one_try(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent, memory_store)

    class Dying(HelperWorker):
        """Killed in the middle of the first pass."""

        tries = 0

        async def clean(self, batches: Sequence[memoryview]) -> tuple[memoryview, bool]:
            self.tries += 1
            if self.tries == 1:
                assert self.pid is not None
                os.kill(self.pid, signal.SIGKILL)
            return await super().clean(batches)

    job = compaction(agent, memory_store, At(NOW), worker=Dying())
    handle = partition_of(agent, "c").handle
    assert await job.compact(handle) is None
    assert not agent.services.replica.state.claims, "whoever comes next may try"
    done = await job.compact(handle)
    assert done is not None
    assert done.swapped
    await job.stop()
    assert await newest(agent) == NEWEST


async def test_the_job_finds_what_is_due_by_itself(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent, memory_store)
    job = compaction(agent, memory_store, At(NOW))
    job.start()
    try:
        async with asyncio.timeout(10):
            while len(await read(agent, "c")) != len(NEWEST):  # noqa: ASYNC110  # nothing tells of this
                await asyncio.sleep(0.01)
    finally:
        await job.stop()
    assert await newest(agent) == NEWEST
