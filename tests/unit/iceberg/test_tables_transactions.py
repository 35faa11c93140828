"""Tables and transactions: committed rows only, and each transaction in one snapshot, over all partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import EndTransaction, InitTransactions
from coordination.state.types import Done
from iceberg import ledger
from iceberg.plan import Bounds, CommitPlan, plan
from objectstore import batch
from objectstore.merged import Older, Slices
from objectstore.turns import at_once
from tests.unit.iceberg.rig import Rig, running


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with running(tmp_path) as found:
        yield found


@dataclass
class Producer:
    """A transactional producer, v2."""

    rig: Rig
    name: str
    pair: tuple[int, int] = (-1, -1)
    sequences: dict[int, int] = field(default_factory=dict)

    async def init(self) -> Producer:
        """InitProducerId."""
        message = InitTransactions(
            transactional_id=self.name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        self._take(await self.rig.replica.propose(message))
        return self

    async def send(self, *values: bytes, partition: int = 0) -> int:
        """One batch; its base offset."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        content = batch.build(
            [batch.NewRecord(1_700_000_000_000, None, value) for value in values],
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            base_sequence=sequence,
            transactional=True,
        )
        return await self.rig.store_batch(content, partition)

    async def end(self, *, commit: bool) -> None:
        """EndTxn."""
        message = EndTransaction(
            transactional_id=self.name,
            producer_id=self.pair[0],
            producer_epoch=self.pair[1],
            commit=commit,
            bumps_epoch=True,
        )
        self._take(await self.rig.replica.propose(message))

    def _take(self, result: Any) -> None:
        assert isinstance(result, Done), result
        assert isinstance(result.value, tuple)
        self.pair, self.sequences = result.value, {}


async def shown(rig: Rig) -> list[tuple[int, int, bytes]]:
    """(partition, offset, value) of every row."""
    rows = await rig.rows()
    return sorted((r["kafka"]["partition"], r["kafka"]["offset"], r["value"]["__raw__"]) for r in rows)


async def known(rig: Rig) -> list[int]:
    """The table's ledger."""
    head = await rig.head()
    return ledger.next_offsets(head.metadata, rig.replica.state.topics["t"].topic_id)


async def test_aborted_rows_and_markers_are_counted_and_not_shown(rig: Rig) -> None:
    await rig.create_topic()
    producer = await Producer(rig, "x").init()
    for number, commit in enumerate((True, False, True)):
        await producer.send(b"a%d" % number, b"b%d" % number)
        await producer.send(b"c%d" % number, partition=1)
        await producer.end(commit=commit)
    await rig.produce([b"plain"])
    await rig.drain(rig.committer())
    assert await shown(rig) == [
        (0, 0, b"a0"), (0, 1, b"b0"), (0, 6, b"a2"), (0, 7, b"b2"), (0, 9, b"plain"),
        (1, 0, b"c0"), (1, 4, b"c2"),
    ]  # fmt: skip
    assert await known(rig) == [10, 6]
    assert rig.replica.state.topics["t"].extents == [], "the state need not remember what the table has"


async def test_a_transaction_waits_until_all_its_partitions_can_show_it(rig: Rig) -> None:
    """An open transaction in front of it holds one partition back: the other must wait for it."""
    await rig.create_topic()
    early, late = await Producer(rig, "early").init(), await Producer(rig, "late").init()
    await rig.produce([b"first"], partition=1)
    await early.send(b"open")
    await late.send(b"a")
    await late.send(b"b", partition=1)
    await late.end(commit=True)
    await rig.produce([b"last"], partition=1)
    committer = rig.committer()
    await rig.drain(committer)
    assert await shown(rig) == [(1, 0, b"first")]
    assert await known(rig) == [0, 1]
    await early.end(commit=False)
    done = await committer.run_once()
    assert done is not None
    assert await shown(rig) == [(0, 1, b"a"), (1, 0, b"first"), (1, 1, b"b"), (1, 3, b"last")]


async def test_each_snapshot_has_whole_transactions_however_small_the_bounds(rig: Rig) -> None:
    await rig.create_topic(partitions=3)
    first, second = await Producer(rig, "one").init(), await Producer(rig, "two").init()
    written: dict[bytes, int] = {}
    for number in range(6):
        for producer in (first, second):
            mark = b"%s-%d" % (producer.name.encode(), number)
            for partition in range(3):
                count = 1 + (number + partition) % 3
                await producer.send(*[mark] * count, partition=partition)
                written[mark] = written.get(mark, 0) + count
        await first.end(commit=True)
        await second.end(commit=number % 2 == 0)
        if number % 2:
            del written[b"two-%d" % number]
    small = replace(rig, options=replace(rig.options, rows_per_commit_max=3, rows_per_file_max=2))
    committer, snapshots = small.committer(), 0
    while await committer.run_once() is not None:
        found: dict[bytes, int] = {}
        for _, _, value in await shown(rig):
            found[value] = found.get(value, 0) + 1
        assert all(written[mark] == count for mark, count in found.items()), "no transaction in part"
        snapshots += 1
    assert found == written
    assert snapshots > 3


async def test_one_transaction_larger_than_a_commit_is_one_snapshot_of_several_files(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    producer = await Producer(rig, "x").init()
    for number in range(20):
        await producer.send(b"%d" % number)
    await producer.end(commit=True)
    small = replace(rig, options=replace(rig.options, rows_per_commit_max=5, rows_per_file_max=5))
    done = await small.committer().run_once()
    assert done is not None
    assert (done.rows, done.files, done.more) == (20, 4, False)
    assert [value for _, _, value in await shown(rig)] == [b"%d" % number for number in range(20)]


async def test_a_large_transaction_is_not_kept_out_by_a_partition_that_always_has_more(rig: Rig) -> None:
    await rig.create_topic()
    producer = await Producer(rig, "x").init()
    for number in range(20):
        await producer.send(b"%d" % number, partition=1)
    await producer.end(commit=True)
    await rig.produce([b"plain"] * 200)
    small = replace(rig, options=replace(rig.options, rows_per_commit_max=4, rows_per_file_max=2))
    done = await small.committer().run_once()
    assert done is not None
    assert done.more, "the other partition has more"
    assert [value for partition, _, value in await shown(rig) if partition == 1] == [
        b"%d" % number for number in range(20)
    ]


async def test_rows_that_are_merged_while_the_commit_is_planned_wait_for_the_next(rig: Rig) -> None:
    """All that is left of the merged range below was aborted; what stood behind it was merged meanwhile."""
    topic = await rig.create_topic()
    producer = await Producer(rig, "x").init()
    await producer.send(b"a", b"b")
    await producer.end(commit=False)
    partition = topic.partitions[0]
    nothing = Slices(partition.slices, 0, Older((), 2))
    await rig.produce([b"c"])
    partition.slices.trim(4)
    found = at_once(plan(topic.partitions, [], {0: nothing}, Bounds(9, 9, 9, 9)))
    assert found == CommitPlan((), more=True)
