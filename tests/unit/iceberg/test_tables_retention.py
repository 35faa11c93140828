"""floe.table.retention=follow: whole files below the log start leave the table, and nothing else does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coordination.commands import (
    AlterClusterConfigs,
    AlterTopicConfigs,
    MoveLogStart,
    PurgeRecords,
    UndeleteRecords,
)
from coordination.state.types import Done
from iceberg import ledger
from iceberg.committer import Committer, CommitterOptions, LostRace
from iceberg.metadata import Retention
from iceberg.service import CommitterService, ServiceOptions
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import KillAt, Killed, Rig, until

FOLLOW = {"floe__table__retention": "follow"}


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


async def move(rig: Rig, offset: int, partition: int = 0, topic: str = "t") -> None:
    """Move a log start."""
    handle = rig.replica.state.topics[topic].partitions[partition].handle
    result = await rig.replica.propose(MoveLogStart(partition=[handle], offset=[offset]))
    assert isinstance(result, Done)


async def fill(rig: Rig, committer: Committer, files: int = 4) -> None:
    """Two partitions, per partition a file of two rows for each commit."""
    for number in range(files):
        for partition in (0, 1):
            await rig.produce([b"%d" % number] * 2, partition=partition)
        await rig.drain(committer)


async def offsets(rig: Rig, partition: int = 0) -> list[int]:
    """The offsets of a partition that the table holds."""
    rows = await rig.rows()
    return sorted(row["kafka"]["offset"] for row in rows if row["kafka"]["partition"] == partition)


async def test_files_wholly_below_the_log_start_go(rig: Rig) -> None:
    topic = await rig.create_topic(**FOLLOW)
    committer = rig.committer()
    await fill(rig, committer)
    assert await committer.follow() == 0
    before = await rig.head()
    await move(rig, 5)
    assert await committer.follow() == 4
    assert (await offsets(rig), await offsets(rig, 1)) == ([4, 5, 6, 7], list(range(8)))
    head = await rig.head()
    summary = head.metadata["snapshots"][-1]["summary"]
    assert summary["operation"] == "delete"
    assert (summary["deleted-data-files"], summary["deleted-records"]) == ("2", "4")
    assert (summary["total-records"], summary["total-data-files"]) == ("12", "6")
    assert ledger.removed_below(summary) == [5, 0]
    assert ledger.ranges(summary) == []
    assert ledger.next_offsets(head.metadata, topic.topic_id) == [8, 8]
    assert ledger.next_offsets(before.metadata, topic.topic_id) == [8, 8]
    assert await committer.follow() == 0, "looked through already"
    assert (await rig.head()).location == head.location
    await rig.produce([b"more"])
    assert await rig.drain(committer) == 1
    await move(rig, 9)
    assert await committer.follow() == 5
    assert await offsets(rig) == []
    assert (await rig.head()).metadata["snapshots"][-1]["summary"]["total-records"] == "8"


async def test_rows_of_records_that_can_come_back_stay_until_these_cannot(rig: Rig) -> None:
    await rig.create_topic(**FOLLOW, floe__records__grace__ms="3600000")
    committer = rig.committer()
    await fill(rig, committer)
    await move(rig, 5)
    assert await committer.follow() == 0
    handle = rig.replica.state.topics["t"].partitions[0].handle
    back = UndeleteRecords(partition=[handle], offset=[3])
    assert isinstance(await rig.replica.propose(back), Done)
    assert await rig.drain(committer) == 0, "the table has them"
    await move(rig, 5)
    purge = PurgeRecords(partition=[handle], offset=[5])
    assert isinstance(await rig.replica.propose(purge), Done)
    assert await committer.follow() == 4
    assert (await offsets(rig), await offsets(rig, 1)) == ([4, 5, 6, 7], list(range(8)))


async def test_with_keep_rows_stay(rig: Rig) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await fill(rig, committer)
    await move(rig, 8)
    assert await committer.follow() == 0
    assert await offsets(rig) == list(range(8))


async def test_manifests_of_which_nothing_is_left_leave_with_the_next_snapshot(rig: Rig) -> None:
    await rig.create_topic(**FOLLOW)
    committer = rig.committer()
    await fill(rig, committer)
    await move(rig, 8)
    await move(rig, 8, partition=1)
    assert await committer.follow() == 16
    assert len((await rig.head()).manifests) == 4, "they tell incremental readers what went"
    await rig.produce([b"next"])
    await rig.drain(committer)
    assert len((await rig.head()).manifests) == 1
    assert await offsets(rig) == [8]


async def test_merged_manifests_know_their_files_too(rig: Rig) -> None:
    rig.options = CommitterOptions(manifests_merged_at=2, retention=Retention(snapshots=2))
    await rig.create_topic(**FOLLOW)
    committer = rig.committer()
    await fill(rig, committer, 6)
    await move(rig, 7)
    assert await rig.committer().follow() == 0, "without a head and the claim nothing is done"
    assert await committer.follow() == 6
    assert await offsets(rig) == [6, 7, 8, 9, 10, 11]
    await fill(rig, committer, 3)
    assert await offsets(rig) == list(range(6, 18))


STEPS = (
    "find-old-files",
    "store-manifests",
    "store-manifest-list",
    "store-metadata",
    "commit-table",
    "remember-head",
)


@pytest.mark.parametrize("step", STEPS)
async def test_killed_before_any_step_no_other_row_is_lost(rig: Rig, step: str) -> None:
    await rig.create_topic(**FOLLOW)
    steps = KillAt()
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    await move(rig, 4)
    steps.name = step
    with pytest.raises(Killed):
        await committer.follow()
    gone = step == "remember-head"
    assert await offsets(rig) == ([4, 5, 6, 7] if gone else list(range(8)))
    await rig.produce([b"after"])
    other = rig.committer()
    assert await rig.drain(other) == 1
    assert await other.follow() == (0 if gone else 4)
    assert await offsets(rig) == [4, 5, 6, 7, 8]
    assert await offsets(rig, 1) == list(range(8))


class Commits(KillAt):
    """Lets another committer commit just before this one's pointer moves."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.rig = rig
        self.armed = False

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == "commit-table" and self.armed:
            self.armed = False
            await self.rig.produce([b"meanwhile"])
            assert await self.rig.drain(self.rig.committer()) == 1


async def test_a_removal_on_an_old_head_is_refused(rig: Rig) -> None:
    await rig.create_topic(**FOLLOW)
    steps = Commits(rig)
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    await move(rig, 4)
    steps.armed = True
    with pytest.raises(LostRace):
        await committer.follow()
    assert await offsets(rig) == list(range(9))
    await rig.drain(committer)
    assert await committer.follow() == 4
    assert await offsets(rig) == [4, 5, 6, 7, 8]


async def test_the_service_follows_log_starts_and_changed_configs(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a", b"b"])
    service = CommitterService(rig.parts, ServiceOptions(interval_s=0.05, retry_s=0.05))
    await service.start()

    def rows_left() -> int:
        committer = service.committer("t")
        head = committer.head if committer is not None else None
        current = ledger.current_snapshot(head.metadata) if head is not None else None
        return -1 if current is None else int(current["summary"]["total-records"])

    try:
        await until(lambda: rows_left() == 2)
        await move(rig, 2)
        await rig.produce([b"c"])
        await until(lambda: rows_left() == 3)
        change = AlterTopicConfigs.Change(name="floe.table.retention", value="follow")
        await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change]))
        await until(lambda: rows_left() == 1)
        await move(rig, 3)
        await until(lambda: rows_left() == 0)
    finally:
        await service.stop()


async def test_the_clusters_default_counts_where_the_topic_says_nothing(rig: Rig) -> None:
    await rig.create_topic()
    await rig.create_topic("kept", floe__table__retention="keep")
    follow = AlterTopicConfigs.Change(name="floe.table.retention", value="follow")
    assert isinstance(await rig.replica.propose(AlterClusterConfigs(changes=[follow])), Done)
    for topic, removed in (("t", 2), ("kept", 0)):
        await rig.produce([b"a", b"b"], topic=topic)
        committer = rig.committer(topic)
        await rig.drain(committer)
        await move(rig, 2, topic=topic)
        assert await committer.follow() == removed
