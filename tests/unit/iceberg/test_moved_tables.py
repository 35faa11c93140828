"""A copied bucket's tables are told its URL: nothing they lead to is at the source, and all goes on there."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from coordination import steps
from coordination.commands import CommitTable, ConfigEntry, PutNamespace
from coordination.restore.tables import Moves
from coordination.state.types import Done
from coordination.steps import MOVE_STEPS
from iceberg import history, maintenance
from iceberg.moving import table as moving
from iceberg.moving.run import TablesMover
from iceberg.moving.urls import Prefix
from iceberg.small_files import FileSizes
from iceberg.steps import Steps
from objectstore.store import ObjectStore
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import row_ids, serving
from tests.unit.iceberg.keeping_little import fold_early, small
from tests.unit.iceberg.rig import Rig
from tests.unit.iceberg.test_tables_history import PATH, commit, served

OPTIONS = replace(small(history_max=60), files=FileSizes(merged_at=4, busy_percent_max=100))
FOLDING = replace(OPTIONS, retention=small(history_max=12).retention, orphan_grace_s=0)
"""Snapshots are folded into a base soon, and another base takes its place."""
COMMITS = 24


class Place:
    """Where a source and its copy are, and how long ago the source was lost."""

    def __init__(self, root: Path) -> None:
        self.source, self.copy = root / "main", root / "main2"  # one name begins as the other

    @property
    def prefix(self) -> Prefix:
        return Prefix(f"file://{self.source}/store", f"file://{self.copy}/store")

    def lose(self) -> None:
        """All of the bucket is in the copy, and nothing at the source."""
        shutil.copytree(self.source, self.copy)
        shutil.rmtree(self.source)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Tables keep little, so that there are segments and a base soon."""
    fold_early(monkeypatch)
    return Place(tmp_path)


@asynccontextmanager
async def promoted(place: Place, source: Rig) -> AsyncIterator[Rig]:
    """An agent of the copy. `source` was stopped."""
    async with rigs.running(place.copy, OPTIONS, server=source.server, name="promoted") as there:
        yield there


async def moves_of(
    place: Place, there: Rig, *, write: bool = True, store: ObjectStore | None = None
) -> Moves:
    mover = TablesMover(store or there.store, place.prefix)
    return await mover.moves(there.replica.state, write=write)


async def apply(there: Rig, moves: Moves) -> None:
    for command in moves.commands:
        assert isinstance(await there.replica.propose(command), Done)


async def grown(rig: Rig, version: str, **configs: str) -> None:
    """A table with segments, a base, compacted files, a tag, properties that name its folder."""
    await rig.create_topic(partitions=1, **{"floe__table__format-version": version}, **configs)
    committer = rig.committer()
    for number in range(COMMITS):
        await commit(rig, committer, 1)
        await committer.compact()
        if number == COMMITS // 2:
            await tag(rig)


async def tag(rig: Rig) -> None:
    number = (await served(rig))["current-snapshot-id"]
    location = (await rig.head()).metadata["location"]
    updates = [
        {"action": "set-snapshot-ref", "ref-name": "kept", "type": "tag", "snapshot-id": number},
        {"action": "set-properties", "updates": {"of-mine": f"{location}/x%2Fy", "other": f"{location}2"}},
    ]
    body = {"requirements": [], "updates": updates}
    status, answer = await serving.ask(serving.catalog_of(rig), "POST", PATH, body)
    assert status == 200, answer


async def seen(rig: Rig) -> dict[int, dict[row_ids.Place, row_ids.Ids]]:
    """Of each snapshot that engines see the rows, and their ids."""
    return {
        each["snapshot-id"]: await row_ids.of_snapshot(rig, each) for each in (await served(rig))["snapshots"]
    }


async def told(rig: Rig) -> list[str]:
    """All that the table says: its metadata, segments, lists and manifests, each as text."""
    head = await rig.head()
    found = [json.dumps(head.metadata)]
    for segment in history.of(head.metadata).segments:
        key = rig.warehouse.key(f"{head.metadata['location']}/{segment.name}")
        found.append((await rig.store.get(key)).decode())
    for each in (await served(rig))["snapshots"]:
        listed = await row_ids.records(rig, each["manifest-list"])
        found.append(str(listed))
        found += [str(await row_ids.records(rig, one["manifest_path"])) for one in listed]
    return found


def scanned(location: str) -> list[dict[str, Any]]:
    """The rows as pyiceberg reads them, in order."""
    rows: list[dict[str, Any]] = StaticTable.from_metadata(location).scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda each: each["kafka"]["offset"])


@pytest.mark.parametrize("version", ["2", "3"])
async def test_the_copy_alone_has_every_snapshot_as_it_was_and_goes_on(place: Place, version: str) -> None:
    async with rigs.running(place.source, OPTIONS) as rig:
        await grown(rig, version)
        metadata = (await rig.head()).metadata
        assert (len(history.of(metadata).segments) > 1, len(metadata["refs"])) == (True, 2)
        assert metadata["metadata-log"]
        before, rows = await seen(rig), await asyncio.to_thread(scanned, (await rig.head()).location)
    place.lose()
    async with promoted(place, rig) as there:
        moves = await moves_of(place, there)
        (one,) = moves.tables
        assert (one.error, one.lost) == ("", [])
        assert one.snapshots >= len(before), "and a copy of the tagged one"
        await apply(there, moves)
        assert await seen(there) == before
        assert not [each for each in await told(there) if f"{place.source}/" in each]
        head = await there.head()
        assert await asyncio.to_thread(scanned, head.location) == rows
        properties = head.metadata["properties"]
        assert properties["of-mine"] == f"{head.metadata['location']}/x%2Fy"
        assert properties["other"] == f"{head.metadata['location']}2"
        for each in head.metadata["metadata-log"]:
            await there.store.head(there.warehouse.key(each["metadata-file"]))
        assert (await moves_of(place, there)).commands == []
        await goes_on(there, len(rows))


async def goes_on(there: Rig, rows: int) -> None:
    """Commits, compaction, folds and the removal of what nobody names, on what was moved."""
    committer = there.committer()
    for _ in range(COMMITS):
        await commit(there, committer, 1)
        await committer.compact()
    assert committer.head is not None
    now_ms = there.parts.clock.now_ms() + 1000
    await maintenance.collect(there.store, there.warehouse, committer.head, now_ms, 0, Steps())
    await there.assert_table_is_topic_rows(rows + COMMITS)
    for each in (await served(there))["snapshots"]:
        await row_ids.of_snapshot(there, each)
    assert not [each for each in await told(there) if "/main/" in each]


class Died(Exception):
    """The process ends here."""


class Dying:
    """A store whose user dies before its n-th put, from 0."""

    def __init__(self, inner: ObjectStore, before: int) -> None:
        self._inner, self.left = inner, before

    async def put(self, key: str, *arguments: Any) -> str:
        if self.left == 0:
            raise Died
        self.left -= 1
        return await self._inner.put(key, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def contents(store: ObjectStore) -> dict[str, bytes]:
    keys = [meta.key async for page in store.list("tables/") for meta in page]
    return {key: await store.get(key) for key in keys}


async def short(rig: Rig) -> None:
    """A table with three snapshots, and one without any."""
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 3)


async def test_killed_before_any_file_it_is_made_again_with_the_same_names(place: Place) -> None:
    async with rigs.running(place.source, OPTIONS) as rig:
        await short(rig)
    place.lose()
    async with promoted(place, rig) as there:
        before = await contents(there.store)
        dry = await moves_of(place, there, write=False)
        assert await contents(there.store) == before, "a dry run stores nothing"
        killed = 0
        while True:
            store: Any = Dying(there.store, killed)
            try:
                moves = await moves_of(place, there, store=store)
                break
            except Died:
                now = await contents(there.store)
                assert {key: now[key] for key in before} == before
                killed += 1
        assert killed == dry.tables[0].written > 6
        assert moves == dry, "the pointer that is told is the one that is made"
        assert len(await contents(there.store)) == len(before) + killed, "no try left others"
        await apply(there, moves)
        await there.assert_table_is_topic_rows(3)


async def test_killed_at_each_step_a_table_with_a_past_is_whole_when_it_is_made_again(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By SIGKILL: tests/torture/test_moves_killed.py. Deleted rows: tests/spark/test_moved_tables.py."""
    async with rigs.running(place.source, OPTIONS) as rig:
        await grown(rig, "2")
        before = await seen(rig)
    place.lose()
    async with promoted(place, rig) as there:
        dry = await moves_of(place, there, write=False)
        for step in MOVE_STEPS:
            if step == "move/put-deletes":
                continue
            with monkeypatch.context() as patch:
                patch.setattr(steps, "_hooks", [dying_at(step)])
                with pytest.raises(Died):
                    await moves_of(place, there)
        assert await moves_of(place, there) == dry
        await apply(there, dry)
        assert await seen(there) == before


def dying_at(step: str) -> Callable[[str], None]:
    def die(reached: str) -> None:
        if reached == step:
            raise Died

    return die


async def test_what_the_copy_has_lost_is_told_and_the_rest_is_there(place: Place) -> None:
    async with rigs.running(place.source, OPTIONS) as rig:
        await short(rig)
        snapshots = (await rig.head()).metadata["snapshots"]
        first, second = (rig.warehouse.key(each["manifest-list"]) for each in snapshots[:2])
    place.lose()
    (place.copy / "store" / first).unlink()
    damaged = place.copy / "store" / second
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    async with promoted(place, rig) as there:
        moves = await moves_of(place, there)
        (one,) = moves.tables
        assert (one.lost_count, one.error) == (2, "")
        assert sorted(one.lost) == sorted(there.warehouse.locate(each) for each in (first, second))
        await apply(there, moves)
        await there.assert_table_is_topic_rows(3)
        await commit(there, there.committer(), 1)
        lists = [each["manifest-list"] for each in (await there.head()).metadata["snapshots"]]
        assert lists[:2] == [there.warehouse.locate(each) for each in (first, second)]


async def test_a_table_that_cannot_be_told_stays_and_others_go_on(place: Place) -> None:
    async with rigs.running(place.source, OPTIONS) as rig:
        await short(rig)
        pointer = (await rig.head()).location
        elsewhere = CommitTable(
            namespace="floe", name="other", metadata_location="s3://other/m.metadata.json"
        )
        assert isinstance(await rig.replica.propose(elsewhere), Done)
        lost = pointer.replace("/00003-", "/00009-")
        assert isinstance(
            await rig.replica.propose(CommitTable(namespace="floe", name="lost", metadata_location=lost)),
            Done,
        )
        home = PutNamespace(
            name="floe", properties=[ConfigEntry(name="location", value=f"{place.prefix.source}/x")]
        )
        assert isinstance(await rig.replica.propose(home), Done)
    place.lose()
    async with promoted(place, rig) as there:
        moves = await moves_of(place, there)
        told = {each.name: each for each in moves.tables}
        assert "bring the object back" in told["lost"].error
        assert "is below neither" in told["other"].error
        assert (told["t"].error, told["t"].former) == ("", pointer)
        await apply(there, moves)
        assert there.replica.state.namespaces["floe"]["location"] == f"{place.prefix.target}/x"
        assert there.replica.state.tables["floe", "lost"].metadata_location == lost
        await there.assert_table_is_topic_rows(3)
        assert len((await moves_of(place, there)).commands) == 0


async def test_few_names_are_remembered_and_nothing_depends_on_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rigs.running(place.source, OPTIONS) as rig:
        await grown(rig, "2")
    place.lose()
    async with promoted(place, rig) as there:
        wanted = await moves_of(place, there, write=False)
        for name in ("MANIFESTS_KNOWN_MAX", "LISTS_AT_ONCE", "MANIFESTS_AT_ONCE"):
            monkeypatch.setattr(moving, name, 1)
        found = await moves_of(place, there, write=False)
        assert found.commands == wanted.commands
        assert found.tables[0].written > wanted.tables[0].written, "some were made twice"


async def test_what_a_base_had_before_is_moved_while_it_is_there(place: Place) -> None:
    """Its summary names the list of the base before, whose files readers may still have planned with."""
    async with rigs.running(place.source, FOLDING) as rig:
        await grown(rig, "2", floe__table__history__ms="0")
        base = (await rig.head()).metadata["snapshots"][0]
        former = base["summary"][history.FORMER]
        before = (await maintenance.reachable(rig.store, rig.warehouse, await rig.head())).keys
    place.lose()
    async with promoted(place, rig) as there:
        await apply(there, await moves_of(place, there))
        head = await there.head()
        now = head.metadata["snapshots"][0]["summary"][history.FORMER]
        assert now != former
        assert now.startswith(f"{place.prefix.target}/")
        keys = (await maintenance.reachable(there.store, there.warehouse, head)).keys
        for key in keys:
            await there.store.head(key)
        assert {key for key in keys if key.endswith(".parquet")} == {
            key for key in before if key.endswith(".parquet")
        }


async def test_a_former_base_that_is_gone_is_no_loss(place: Place) -> None:
    async with rigs.running(place.source, FOLDING) as rig:
        await grown(rig, "2", floe__table__history__ms="0")
        former = (await rig.head()).metadata["snapshots"][0]["summary"][history.FORMER]
    place.lose()
    (place.copy / "store" / rig.warehouse.key(former)).unlink()
    async with promoted(place, rig) as there:
        moves = await moves_of(place, there)
        assert (moves.tables[0].lost, moves.tables[0].error) == ([], "")
        await apply(there, moves)
        told = (await there.head()).metadata["snapshots"][0]["summary"][history.FORMER]
        assert told == place.prefix.moved(former)
