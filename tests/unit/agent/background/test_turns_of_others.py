"""However much a state holds, jobs look at a little of it at a time: others have their turn in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from agent.background.expiry import positions, records, transactions
from agent.background.expiry.positions import OffsetExpiry
from agent.background.expiry.records import RecordsPurge
from agent.background.expiry.transactions import TransactionTimeouts
from agent.background.group_lag import POSITIONS_STEP, GroupLags
from agent.background.retention.job import LOOKS_MAX, LogRetention
from agent.telemetry.metrics import Metrics
from coordination.clock import ManualClock
from coordination.commands import PurgeRecords
from coordination.replica import Replica
from coordination.state import Done, State
from coordination.state.group_types import CommittedOffset, Group
from coordination.state.held import PARTITIONS_AT_ONCE_MAX
from coordination.state.slices import SliceIndex
from coordination.state.transaction_types import Phase, Transaction
from coordination.state.types import ClaimHolder, Held, Partition, Topic
from objectstore.adapters.memory import MemoryStore
from objectstore.collect import LOOKS_PER_STEP, Report, Standing
from objectstore.collect_merged import MergedCollector
from objectstore.grace import Grace
from objectstore.merged import MergedRanges
from objectstore.naming import ManifestId, SegmentId
from objectstore.turns import RUN, in_order, in_turns
from tests.unit.agent.kafka.turns import turns

NOW = 1_700_000_000_000
HELD = ClaimHolder(1, 1)


@dataclass
class Still:
    """What a job needs of a replica: a state that nobody changes, and where it proposes."""

    state: State = field(default_factory=State)
    proposed: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state.feature_level, self.state.clock_ms = 2, NOW
        self.topic = Topic("t", b"t" * 16, {}, 0)

    def partition(self, handle: int) -> Partition:
        made = Partition(handle, self.topic, handle, SliceIndex(self.state.chunks))
        self.state.partitions.append(made)
        return made

    async def propose(self, message: Any, **_: Any) -> Done:
        self.proposed.append(message)
        return Done(0)

    async def submit(self, commands: Any, **_: Any) -> None:
        self.proposed += commands

    async def barrier(self) -> None:
        """It is as new as it gets."""


@pytest.fixture
def still() -> Still:
    return Still()


def of(still: Still) -> Replica:
    return cast(Replica, still)


def clock() -> ManualClock:
    return ManualClock(start_ms=NOW)


async def test_partitions_that_hold_records(still: Still) -> None:
    """One that holds nothing any more by then is left out; what is over comes in one command, bounded."""
    for handle in range(3 * records.LOOKS_PER_STEP):
        made = still.partition(handle)
        made.log_start, late = 1, handle < 2 * records.LOOKS_PER_STEP
        made.held = (Held(0, 1, NOW + late),)
        still.state.holding[handle] = made
    job = RecordsPurge(of(still), clock())
    async with turns() as others:
        await job.step(HELD)
        assert others.count >= 2
    (purge,) = still.proposed
    assert isinstance(purge, PurgeRecords)
    first = 2 * records.LOOKS_PER_STEP
    assert list(purge.partition) == list(range(first, first + PARTITIONS_AT_ONCE_MAX))
    still.state.holding.clear()
    await job.step(HELD)
    assert len(still.proposed) == 1


async def test_transactions_that_are_open(still: Still, monkeypatch: pytest.MonkeyPatch) -> None:
    """What time most agents say it is costs a look at each of them: it is asked once for a step."""
    for number in range(3 * transactions.LOOKS_PER_STEP):
        made = Transaction(f"x{number}", number, 0, 60_000, NOW, Phase.ONGOING, NOW)
        still.state.transactions[made.transactional_id] = made
    asked, usual = 0, transactions.deletion_ms

    def counted(state: State, now_ms: int) -> int:
        nonlocal asked
        asked += 1
        return usual(state, now_ms)

    monkeypatch.setattr(transactions, "deletion_ms", counted)
    async with turns() as others:
        await TransactionTimeouts(of(still), clock())._abort(HELD)
    assert (others.count >= 3, asked) == (True, 3)
    assert not still.proposed


async def test_one_group_with_very_many_positions(still: Still) -> None:
    group = still.state.groups["g"] = Group("g")
    size = 2 * positions.POSITIONS_PER_STEP + 1
    for handle in range(size):
        still.partition(handle)
        group.offsets.put(handle, CommittedOffset(0, -1, "", NOW, None))
    job = OffsetExpiry(of(still), clock())
    async with turns() as others:
        assert not await job._expirable("g", 1)
        assert others.count >= 2
    still.state.partitions[size - 1] = None  # its topic is gone
    assert await job._expirable("g", 1)
    assert not await job._expirable("none", 1)


async def test_groups_without_positions(still: Still) -> None:
    still.state.groups = {str(number): Group(str(number)) for number in range(3 * POSITIONS_STEP)}
    async with turns() as others:
        await GroupLags(of(still), clock(), Metrics(), 1).look()
        assert others.count >= 3


async def test_topics_that_keep_everything(still: Still) -> None:
    for number in range(3 * LOOKS_MAX):
        name = f"t{number}"
        still.state.topics[name] = Topic(name, b"", {"retention.ms": "-1"}, 0)
    job = LogRetention(of(still), MergedRanges(MemoryStore()), clock(), Metrics())
    async with turns() as others:
        await job.run(HELD)
        assert others.count >= 3


class Garbage:
    """A view of what was let go of, and of nothing else."""

    def __init__(self, segments: int, manifests: int) -> None:
        self.segments = {SegmentId(1, number % 7, number): 0 for number in range(segments)}
        self.manifests = {ManifestId(1, 0, number): (0, False) for number in range(manifests)}

    async def catch_up(self) -> None:
        """See MergedView."""

    def standing(self, incarnation: int) -> Standing:
        return Standing.FENCED

    def manifest_of(self, partition: int) -> ManifestId | None:
        return None

    def let_go_whole(self, partition: int) -> bool:
        return False

    def released_segments(self) -> dict[SegmentId, int]:
        return self.segments

    def released_manifests(self) -> dict[ManifestId, tuple[int, bool]]:
        return self.manifests


async def test_segments_and_manifests_that_were_let_go_of() -> None:
    count = 2 * LOOKS_PER_STEP
    view, store = Garbage(count, count), MemoryStore()

    async def forget(_segments: Any, _manifests: Any) -> None:
        raise AssertionError("a dry run forgets nothing")

    grace = Grace(1, lambda: NOW, lambda: 0.0)
    collector = MergedCollector(store, MergedRanges(store), view, forget, grace)
    async with turns() as others:
        segments, manifests, whole = await collector._due()
        assert others.count >= 4
        assert (len(segments), len(manifests), whole) == (count, count, [])
        others.count = 0
        await collector.run(report := Report(dry_run=True))
        assert others.count >= 4 + 2 * count // 1_000
    assert len(report.deleted) == 2 * count
    view.segments.clear()  # another agent had them forgotten
    assert await collector._due() == ([], manifests, [])


async def test_many_names_that_are_put_in_order() -> None:
    names = [(f"n{number % 7}", f"t{number * 7919 % 10_007}") for number in range(5 * RUN)]
    async with turns() as others:
        assert await in_turns(in_order(names)) == sorted(names)
        assert others.count >= 10
    assert await in_turns(in_order([])) == []
