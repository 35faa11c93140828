"""Small files become large ones: the same rows, ledger and streams, whatever ends it and wherever."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordination.clock import SystemClock
from coordination.commands import AlterTopicConfigs
from coordination.state.types import Done
from iceberg import ledger, maintenance, manifests
from iceberg.committer import CommitError, Committer, CommitterOptions, Compacted, LostRace
from iceberg.service import CommitterService, ServiceOptions
from iceberg.small_files import FileSizes, LiveFile
from iceberg.steps import Steps
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import KillAt, Killed, Rig, until
from tests.unit.iceberg.test_tables_bindings import NEW, OLD, bound, encoded, values
from tests.unit.iceberg.test_tables_retention import FOLLOW, Commits, fill, move, offsets

EAGER = CommitterOptions(files=FileSizes(merged_at=4, busy_percent_max=100))


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent that merges each four files."""
    async with rigs.running(tmp_path, EAGER) as found:
        yield found


async def live(rig: Rig) -> list[LiveFile]:
    """The files of the table."""
    found: list[LiveFile] = []
    for each in (await rig.head()).manifests:
        content = await rig.store.get(rig.warehouse.key(each.manifest_path))
        found += manifests.live_files(each, content)
    return sorted(found)


async def stretches(rig: Rig) -> list[tuple[int, int, int]]:
    """Partition, first and last offset of each file."""
    return [(each.partition, each.first, each.last) for each in await live(rig)]


async def test_small_files_become_one_and_nothing_else_changes(rig: Rig) -> None:
    topic = await rig.create_topic()
    committer = rig.committer()
    await fill(rig, committer)
    before = await rig.head()
    rows = sorted(await rig.rows(), key=lambda row: (row["kafka"]["partition"], row["kafka"]["offset"]))
    gone = {each.location for each in await live(rig)}
    done = await committer.compact()
    assert done is not None
    assert (done.files_read, done.files) == (8, 2)
    assert await stretches(rig) == [(0, 0, 7), (1, 0, 7)]
    assert await rig.rows() == rows
    head = await rig.head()
    snapshot = head.metadata["snapshots"][-1]
    summary = snapshot["summary"]
    assert (summary["operation"], snapshot["snapshot-id"]) == ("replace", done.snapshot_id)
    counts = {"added-data-files": "2", "deleted-data-files": "8", "total-data-files": "2"}
    counts |= {"added-records": "16", "deleted-records": "16", "total-records": "16"}
    counts |= {"total-files-size": str(done.bytes), "added-files-size": str(done.bytes)}
    assert {name: summary[name] for name in counts} == counts
    assert ledger.ranges(summary) == []
    assert ledger.next_offsets(head.metadata, topic.topic_id) == [8, 8]
    assert head.metadata["current-schema-id"] == before.metadata["current-schema-id"]
    for each in gone:
        assert await rig.store.get(rig.warehouse.key(each)), "a snapshot of the history names it"
    await maintenance.collect(rig.store, rig.warehouse, head, rig.parts.clock.now_ms() + 9_000, 0, Steps())
    for each in gone:
        assert await rig.store.get(rig.warehouse.key(each)), "a snapshot of the history names it"
    assert await committer.compact() is None, "nothing is left"
    assert (await rig.head()).location == head.location


async def test_rows_keep_the_sequence_number_that_the_table_had(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    for number in range(4):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    assert await committer.compact()
    (added,) = [each for each in (await rig.head()).manifests if each.added_files_count]
    content = await rig.store.get(rig.warehouse.key(added.manifest_path))
    (entry,) = manifests.entries(added, content)
    assert (entry.sequence_number, entry.file_sequence_number, added.min_sequence_number) == (4, 5, 4)


async def test_pyiceberg_reads_what_was_merged_and_what_was_there_before(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    for number in range(9):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
        await committer.compact()
    assert len(await live(rig)) < 4
    async with serving.served(serving.catalog_of(rig)) as url:

        def read() -> list[list[int]]:
            table = serving.client(url).load_table("floe.t")
            now = table.scan().to_arrow()
            then = table.scan(snapshot_id=table.metadata.snapshots[2].snapshot_id).to_arrow()
            return [sorted(each["offset"] for each in one["kafka"].to_pylist()) for one in (now, then)]

        assert await asyncio.to_thread(read) == [[*range(9)], [0, 1, 2]]


async def test_rows_of_before_a_binding_changed_keep_their_values(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await rig.produce([b"free"])
    await rig.drain(committer)
    await bound(rig, OLD)
    await rig.produce([encoded(OLD, x=-4, name="old"), None])
    await rig.drain(committer)
    await bound(rig, NEW)
    for number in range(3):
        await rig.produce([encoded(NEW, x=number, price=2.5)])
        await rig.drain(committer)
    before = await values(rig)
    assert await committer.compact()
    assert len(await live(rig)) == 1
    assert await values(rig) == before
    assert before[1:4] == [{"x": -4, "name": "old"}, None, {"x": 0, "price": 2.5}]


STEPS = (
    "find-small-files",
    "read-small-files",
    "merge-files",
    "store-merged-file",
    "store-manifests",
    "store-manifest-list",
    "store-metadata",
    "commit-table",
    "remember-head",
)


@pytest.mark.parametrize("step", STEPS)
async def test_killed_before_any_step_no_row_is_lost_or_doubled(rig: Rig, step: str) -> None:
    await rig.create_topic()
    steps = KillAt()
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    steps.name = step
    with pytest.raises(Killed):
        await committer.compact()
    assert len(await live(rig)) == (2 if step == "remember-head" else 8)
    expected: dict[int, list[bytes | None]] = {
        partition: [b"%d" % (at // 2) for at in range(8)] for partition in (0, 1)
    }
    await rig.assert_table_is_topic(expected)
    await rig.produce([b"after"])
    expected[0].append(b"after")
    other = rig.committer()
    assert await rig.drain(other) == 1
    await other.compact()
    assert len(await live(rig)) <= 4
    await rig.assert_table_is_topic(expected)


async def test_every_step_of_a_compaction_is_among_those(rig: Rig) -> None:
    await rig.create_topic()
    steps = KillAt()
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    steps.seen.clear()
    await committer.compact()
    assert set(steps.seen) == set(STEPS)


async def keys(rig: Rig) -> set[str]:
    """All objects of the table."""
    prefix = f"{rig.warehouse.key((await rig.head()).metadata['location'])}/"
    return {each.key async for page in rig.store.list(prefix) for each in page}


@pytest.mark.parametrize("step", [each for each in STEPS if each != "remember-head"])
async def test_what_a_killed_compaction_leaves_is_collected(rig: Rig, step: str) -> None:
    await rig.create_topic()
    steps = KillAt()
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    before, rows = await keys(rig), await rig.rows()
    steps.name = step
    with pytest.raises(Killed):
        await committer.compact()
    left = await keys(rig) - before
    assert bool(left) == (STEPS.index(step) > STEPS.index("store-merged-file"))
    other = rig.committer()
    await rig.produce([b"after"])
    await rig.drain(other)  # what is not older than the head is left alone
    now_ms = rig.parts.clock.now_ms() + 9_000
    await maintenance.collect(rig.store, rig.warehouse, await rig.head(), now_ms, 0, Steps())
    there = await keys(rig)
    assert left & there == set()
    assert before - there == set(), "history names them"
    assert [each for each in await rig.rows() if each in rows] == rows


async def test_only_who_holds_the_claim_compacts(rig: Rig, tmp_path: Path) -> None:
    await rig.create_topic()
    committer = rig.committer()
    await fill(rig, committer)
    async with rigs.running(tmp_path, EAGER, server=rig.server, name="other") as second:
        other = second.committer()
        assert await second.drain(other) == 0
        assert await other.compact() is None, "the first has the claim"
        steps = Passes(committer, second, other)
        slow = rig.committer(steps=steps)
        slow.claim.revision, slow._head = committer.claim.revision, committer.head
        with pytest.raises(LostRace):
            await slow.compact()
        assert steps.done is not None
        assert await offsets(rig) == [*range(9)]
        assert await stretches(rig) == [(0, 0, 8), (1, 0, 7)]
        assert await committer.compact() is None, "its claim is gone"


class Passes(Steps):
    """Before the pointer moves another agent gets the claim, commits a row and compacts."""

    def __init__(self, first: Committer, second: Rig, other: Committer) -> None:
        self.first, self.second, self.other = first, second, other
        self.done: Compacted | None = None

    async def before(self, step: str) -> None:
        await super().before(step)
        if step == "commit-table":
            await self.first.release()
            await self.second.replica.barrier()
            await self.second.produce([b"late"])
            await self.second.drain(self.other)
            self.done = await self.other.compact()


async def test_a_compaction_on_an_old_head_is_refused(rig: Rig) -> None:
    await rig.create_topic()
    steps = Commits(rig)
    committer = rig.committer(steps=steps)
    await fill(rig, committer)
    steps.armed = True
    with pytest.raises(LostRace):
        await committer.compact()
    assert await offsets(rig) == [*range(9)]
    await rig.drain(committer)
    assert await committer.compact()
    assert await offsets(rig) == [*range(9)]
    assert await stretches(rig) == [(0, 0, 8), (1, 0, 7)]


async def test_a_file_that_is_damaged_or_gone_stays_and_others_are_merged(rig: Rig) -> None:
    await rig.create_topic(partitions=3)
    committer = rig.committer()
    for number in range(4):
        for partition in range(3):
            await rig.produce([b"%d" % number], partition=partition)
        await rig.drain(committer)
    all_of_them = await live(rig)
    of_0, of_1 = ([each for each in all_of_them if each.partition == number][1] for number in (0, 1))
    whole = await rig.store.get(rig.warehouse.key(of_0.location))
    await rig.store.put(rig.warehouse.key(of_0.location), [whole[:60] + bytes([whole[60] ^ 1]) + whole[61:]])
    await rig.store.delete([rig.warehouse.key(of_1.location)])
    done = await committer.compact()
    assert done is not None
    assert (done.files_read, done.files) == (4, 1)
    assert [number for number, _, _ in await stretches(rig)] == [0] * 4 + [1] * 4 + [2]
    told = committer.problems
    assert len(told) == 2
    assert "partition 0, offsets 0 to 3: files stay small: " in told[0]
    assert of_0.location in told[0]
    await rig.produce([b"more"])
    assert await rig.drain(committer) == 1


async def test_a_table_without_the_files_that_were_merged_stays_as_it_is(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    for number in range(3):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    compactor: Any = committer._compactor
    assert await compactor.merges(await rig.head()) == [], "but it has the files in mind from now on"
    known: list[LiveFile]
    (known,) = compactor._files.values()
    copy = known[0].location + ".copy"
    content = await rig.store.get(rig.warehouse.key(known[0].location))
    await rig.store.put(rig.warehouse.key(copy), [content])
    known[0] = known[0]._replace(location=copy)
    for number in range(4):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    with pytest.raises(CommitError, match="small files stay as they are: 6 files of 6 rows would leave"):
        await committer.compact()
    assert await offsets(rig) == [*range(7)]
    assert await committer.compact(), "the manifests say what is there"
    assert await stretches(rig) == [(0, 0, 6)]


async def test_a_topic_that_wants_no_compaction_has_none(rig: Rig) -> None:
    await rig.create_topic(partitions=1, floe__table__compaction="false")
    committer = rig.committer()
    for number in range(6):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    assert await committer.compact() is None
    change = AlterTopicConfigs.Change(name="floe.table.compaction", value="true")
    assert isinstance(await rig.replica.propose(AlterTopicConfigs(topic="t", changes=[change])), Done)
    assert await committer.compact()


async def assert_as_produced(rig: Rig, count: list[int], start: list[int]) -> None:
    """By partition: all offsets up to `count`, once, from `start` on at the latest; a file is a stretch."""
    for number in (0, 1):
        found = await offsets(rig, number)
        assert found == [*range(found[0] if found else 0, count[number])]
        assert not found or found[0] <= start[number]
    for one, two in pairwise(await stretches(rig)):
        assert one[0] < two[0] or one[2] < two[1], "offsets of a file are one stretch"


async def test_whatever_comes_in_whatever_order_the_table_is_the_topic(rig: Rig) -> None:
    """Commits, compactions, removals and successors, at random."""
    chance = random.Random(7)
    await rig.create_topic(**FOLLOW)
    committer, count, start, deaths = rig.committer(), [0, 0], [0, 0], 0
    for turn in range(90):
        what = chance.choice(["commit", "commit", "commit", "compact", "follow", "successor", "killed"])
        part = chance.randrange(2)
        if what == "commit":
            rows = chance.choice([1, 1, 2, 7])
            await rig.produce([b"%d" % turn] * rows, partition=part)
            count[part] += rows
            await rig.drain(committer)
        elif what == "compact":
            await rig.drain(committer)
            await committer.compact()
        elif what == "follow" and count[part]:
            start[part] = max(start[part], chance.randrange(count[part]) // 2)
            await move(rig, start[part], part)
            await rig.drain(committer)
            await committer.follow()
        elif what == "successor":
            committer = rig.committer()
            await rig.drain(committer)
        elif what == "killed":
            steps = KillAt(chance.randrange(14))
            killed = rig.committer(steps=steps)
            try:
                await rig.drain(killed)
                await killed.compact()
            except Killed:
                deaths += 1
        if sum(count):
            await assert_as_produced(rig, count, start)
    assert deaths > 3
    kinds = {each["summary"]["operation"] for each in (await rig.head()).metadata["snapshots"]}
    assert {"append", "replace"} <= kinds


async def test_the_service_compacts_and_says_so(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    service = CommitterService(rig.parts, ServiceOptions(interval_s=0.05, retry_s=0.05))

    def committed(rows: int) -> bool:
        return service.status_of("t").rows >= rows

    await service.start()
    try:
        for number in range(8):
            await rig.produce([b"%d" % number])
            await until(partial(committed, number + 1))
        await until(lambda: service.status_of("t").compactions > 0)
        status = service.status_of("t")
        assert status.files_compacted >= 4
        assert status.bytes_compacted > 0
        assert status.last_compaction_ms > 0
        assert await offsets(rig) == [*range(8)]
    finally:
        await service.stop()


class Later(SystemClock):
    """The system's clock, so many seconds later."""

    seconds = 0.0

    def monotonic(self) -> float:
        """See Clock."""
        return super().monotonic() + self.seconds


async def test_few_files_become_one_once_they_have_waited(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    clock = Later()
    committer = Committer(replace(rig.parts, clock=clock), "t")
    for number in range(3):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    assert not committer.compaction_due
    assert await committer.compact() is None
    clock.seconds = EAGER.files.age_s
    assert committer.compaction_due, "without new records"
    assert await committer.compact()
    assert await stretches(rig) == [(0, 0, 2)]
    assert await committer.compact() is None
    clock.seconds *= 2
    assert await committer.compact() is None
    assert not committer.compaction_due, "nothing has come since"
    await rig.produce([b"3"])
    await rig.drain(committer)
    assert not committer.compaction_due
    clock.seconds *= 2
    assert committer.compaction_due


async def test_a_topic_without_new_records_is_compacted_in_time(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    for number in range(3):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
    await committer.release()
    clock = Later()
    service = CommitterService(replace(rig.parts, clock=clock), ServiceOptions(interval_s=0.05, retry_s=0.05))
    await service.start()
    try:
        await until(lambda: "t" in service.sizes())
        assert service.sizes()["t"][0] == 3
        clock.seconds = EAGER.files.age_s
        await until(lambda: service.sizes()["t"][0] == 1)
        files, size, _, at_s = service.sizes()["t"]
        (left,) = await live(rig)
        assert (files, size) == (1, left.size)
        assert at_s * 1000 == service.status_of("t").last_compaction_ms > 0
    finally:
        await service.stop()


async def drained(rig: Rig, committer: Committer, rows: int) -> None:
    """Commits of one row each, and what there is to compact."""
    for number in range(rows):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
        await committer.compact()


async def test_files_are_followed_and_read_from_manifests_once(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    steps = KillAt()
    committer = rig.committer(steps=steps)
    await drained(rig, committer, 40)
    assert await stretches(rig) == await stretches_of(committer)
    other = rig.committer()
    await drained(rig, other, 10)
    assert await stretches(rig) == await stretches_of(other)
    assert len(await live(rig)) <= 12


async def stretches_of(committer: Committer) -> list[tuple[int, int, int]]:
    """The files that the committer has in mind."""
    compactor: Any = committer._compactor
    assert committer.head is not None
    assert compactor._at == committer.head.location
    (known,) = compactor._files.values()
    return [(each.partition, each.first, each.last) for each in known]
