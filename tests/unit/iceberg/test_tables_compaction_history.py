"""Compaction and a table's history: each stream reads every row once, wherever it stood (decision 0012)."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from coordination.commands import CommitTable
from coordination.state.types import Done
from iceberg import history, maintenance, metadata
from iceberg.committer import Committer
from iceberg.small_files import FileSizes
from iceberg.steps import Steps
from objectstore.store import NotFound
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.keeping_little import KEPT, SEGMENT, fold_early, small
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.streams import Expired, Stream, added
from tests.unit.iceberg.test_tables_history import files, served

FILES = FileSizes(merged_at=4, busy_percent_max=100)


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A cluster of one agent whose tables keep little and are compacted often."""
    fold_early(monkeypatch)
    async with rigs.running(tmp_path) as found:
        found.options = replace(small(), files=FILES)
        yield found


async def commits(rig: Rig, committer: Committer, count: int) -> None:
    """So many commits of one row, and what there is to compact after each."""
    for number in range(count):
        await rig.produce([b"%d" % number])
        await rig.drain(committer)
        await committer.compact()


async def rows(rig: Rig, names: Iterable[str]) -> list[int]:
    """The offsets that these files hold, as often as they do."""
    found: list[int] = []
    for each in names:
        content = await rig.store.get(rig.warehouse.key(each))
        table = pq.read_table(io.BytesIO(content))
        found += [row["offset"] for row in table.column("kafka").to_pylist()]
    return sorted(found)


async def test_a_stream_at_any_snapshot_and_a_new_one_read_every_row_once(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer, paused = rig.committer(), dict[int, Stream]()
    for number in range(70):
        await commits(rig, committer, 1)
        found = await served(rig)
        fresh = paused[number] = Stream(rig)
        await fresh.go(found)
        assert await rows(rig, fresh.read) == [*range(number + 1)], "a new stream"
    ended = 0
    for number, stream in paused.items():
        try:
            await stream.go(found)
        except Expired:
            ended += 1
            assert number < 70 - (KEPT - SEGMENT) // 2, "the newest are there"
        else:
            assert await rows(rig, stream.read) == [*range(70)], f"the stream that stood at {number}"
    assert ended > 20, "else nothing was ever folded"
    assert len(await files(rig)) < 12, "else nothing was ever compacted"


async def test_a_stream_inside_the_first_snapshot_goes_on_while_it_grows(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commits(rig, committer, 60)
    first = (await served(rig))["snapshots"][0]
    halfway = Stream(rig)
    await halfway.go(await served(rig), files_max=3)
    assert halfway.at == (first["snapshot-id"], 3)
    await commits(rig, committer, 40)
    found = await served(rig)
    assert found["snapshots"][0]["snapshot-id"] == first["snapshot-id"]
    assert len(await added(rig, found["snapshots"][0])) > len(await added(rig, first)) > 3
    assert int(found["snapshots"][0]["summary"][history.REPLACED]) > 3
    await halfway.go(found)
    assert await rows(rig, halfway.read) == [*range(100)]


async def test_once_it_is_as_old_as_history_the_first_snapshot_has_the_large_files(rig: Rig) -> None:
    rig.options = replace(rig.options, orphan_grace_s=0)
    await rig.create_topic(partitions=1, floe__table__history__ms="0")
    committer, bases, old = rig.committer(), set[int](), set[str]()
    for _ in range(12):
        await commits(rig, committer, 5)
        found = await served(rig)
        bases.add(found["snapshots"][0]["snapshot-id"])
        fresh = Stream(rig)
        await fresh.go(found)
        assert await rows(rig, fresh.read) == [*range(max(await rows(rig, await files(rig))) + 1)]
        old |= {*fresh.read}
    assert len(bases) > 3
    assert len(await added(rig, found["snapshots"][0])) < 20
    head = await rig.head()
    now_ms = rig.parts.clock.now_ms() + 1000
    await maintenance.collect(rig.store, rig.warehouse, head, now_ms, 0, Steps())
    fresh = Stream(rig)
    await fresh.go(found)
    assert await rows(rig, fresh.read) == [*range(60)], "what is named is there"
    with pytest.raises(NotFound):
        await rows(rig, sorted(old))


async def test_files_of_the_first_snapshot_before_have_their_grace_period(rig: Rig) -> None:
    rig.options = replace(rig.options, orphan_grace_s=0)
    await rig.create_topic(partitions=1, floe__table__history__ms="0")
    committer = rig.committer()
    await commits(rig, committer, 30)
    before = await served(rig)
    while (found := await served(rig))["snapshots"][0]["snapshot-id"] == before["snapshots"][0][
        "snapshot-id"
    ]:
        await commits(rig, committer, 1)
    base, former = found["snapshots"][0], (await added(rig, before["snapshots"][0]))
    made_ms = int(base["summary"][history.MADE])
    head = await rig.head()
    for since_ms, there in ((made_ms, True), (made_ms + 1, False)):
        reached = await maintenance.reachable(rig.store, rig.warehouse, head, since_ms)
        assert all(rig.warehouse.key(each) in reached for each in former) == there


async def test_snapshots_that_files_left_with_stay_for_the_grace_period(rig: Rig) -> None:
    rig.options = replace(rig.options, retention=replace(rig.options.retention, history_max=1000))
    for name, compaction in (("t", "true"), ("plain", "false")):
        await rig.create_topic(
            name, partitions=1, floe__table__history__ms="0", floe__table__compaction=compaction
        )
    for name in ("t", "plain"):
        committer = rig.committer(name)
        for number in range(40):
            await rig.produce([b"%d" % number], topic=name)
            await rig.drain(committer)
            await committer.compact()
    assert history.of((await rig.head("plain")).metadata).count < 20
    assert history.of((await rig.head("t")).metadata).count > 40


async def test_a_history_begun_anew_at_a_compaction_has_every_row(rig: Rig) -> None:
    """As an agent of an older version leaves it, which keeps the newest snapshots and knows of no base."""
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commits(rig, committer, 20)
    while (await rig.head()).metadata["snapshots"][-1]["summary"]["operation"] != "replace":
        await commits(rig, committer, 1)
    rig.options = replace(rig.options, files=FileSizes())
    committer = rig.committer()
    await commits(rig, committer, 1)
    head = await rig.head()
    old = history.cut(head.metadata, 2)
    assert [each["summary"]["operation"] for each in old["snapshots"]] == ["replace", "append"]
    location = f"{head.metadata['location']}/metadata/99999-older.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(old)])
    message = CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    assert isinstance(await rig.replica.propose(message), Done)
    await commits(rig, rig.committer(), 3)
    fresh = Stream(rig)
    await fresh.go(await served(rig))
    assert await rows(rig, fresh.read) == await rows(rig, await files(rig))
    assert len(set(await rows(rig, fresh.read))) > 20
