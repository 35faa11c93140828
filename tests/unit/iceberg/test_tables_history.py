"""A table's history lasts by time: streams over it go on exactly, new ones read every row (decision 0012)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from coordination.clock import SystemClock
from coordination.commands import CommitTable, MoveLogStart
from coordination.state.types import Done
from iceberg import history, json_steps, maintenance, manifest_avro, manifests, metadata, segments
from iceberg.committer import Committer
from iceberg.sealed import Damaged
from iceberg.steps import Steps
from objectstore.turns import at_once
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.keeping_little import KEPT, SEGMENT, fold_early, small
from tests.unit.iceberg.rig import KillAt, Killed, Rig
from tests.unit.iceberg.streams import Expired, Refused, Stream, added

PATH = "/v1/namespaces/floe/tables/t"


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    """A cluster of one agent whose tables keep little."""
    fold_early(monkeypatch)
    async with rigs.running(tmp_path) as found:
        found.options = small()
        yield found


async def commit(rig: Rig, committer: Committer, count: int, partitions: int = 1) -> None:
    """So many commits of one record per partition."""
    for number in range(count):
        for partition in range(partitions):
            await rig.produce([b"%d" % number], partition=partition)
        await rig.drain(committer)


async def served(rig: Rig, **query: str) -> dict[str, Any]:
    """The table's metadata as engines get it."""
    status, answer = await serving.ask(serving.catalog_of(rig), "GET", PATH, **query)
    assert status == 200
    found: dict[str, Any] = json.loads(b"".join(at_once(json_steps.encode(answer["metadata"], 3))))
    return found


async def files(rig: Rig) -> list[str]:
    """Locations of all files of the table, as often as it names them."""
    head = await rig.head()
    found = []
    for each in head.manifests:
        content = await rig.store.get(rig.warehouse.key(each.manifest_path))
        found += manifests.data_files(each, content)
    return sorted(found)


async def test_a_new_stream_reads_every_row_and_a_paused_one_goes_on(rig: Rig) -> None:
    await rig.create_topic(partitions=2)
    committer, paused = rig.committer(), dict[int, Stream]()
    ended = 0
    for number in range(70):
        await commit(rig, committer, 1, partitions=1 + number % 2)
        found = await served(rig)
        fresh = paused[number] = Stream(rig)
        await fresh.go(found)
        assert sorted(fresh.read) == await files(rig), f"a new stream after {number + 1} commits"
    for number, stream in paused.items():
        try:
            await stream.go(found)
        except Expired:
            ended += 1
            assert number < 70 - KEPT + SEGMENT, "the newest are there"
        else:
            assert sorted(stream.read) == await files(rig), f"the stream that stood at commit {number}"
    assert ended > 20, "else nothing was ever folded"


@pytest.mark.parametrize("base_bytes", [9_000, 1 << 20])
async def test_a_stream_inside_the_first_snapshot_goes_on_while_it_grows(
    rig: Rig, base_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "BASE_BYTES", base_bytes)
    await rig.create_topic(partitions=2)
    committer = rig.committer()
    await commit(rig, committer, 40, partitions=2)
    first = (await served(rig))["snapshots"][0]
    halfway, through = Stream(rig), Stream(rig)
    await halfway.go(await served(rig), files_max=3)
    await through.go(await served(rig), files_max=len(await added(rig, first)))
    assert halfway.at == (first["snapshot-id"], 3)
    await commit(rig, committer, 40, partitions=2)
    found = await served(rig)
    assert found["snapshots"][0]["snapshot-id"] == first["snapshot-id"]
    assert found["snapshots"][0]["manifest-list"] != first["manifest-list"], "it took others in meanwhile"
    for stream in (halfway, through):
        await stream.go(found)
        assert sorted(stream.read) == await files(rig)


async def test_what_engines_see_is_one_chain_in_order(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 60)
    found = await served(rig)
    snapshots = found["snapshots"]
    assert KEPT < len(snapshots) + 8 < 60
    assert len(snapshots) > 3 * small().retention.snapshots, "most of them are in segments"
    assert "parent-snapshot-id" not in snapshots[0]
    for parent, child in pairwise(snapshots):
        assert child["parent-snapshot-id"] == parent["snapshot-id"]
        assert child["sequence-number"] > parent["sequence-number"]
        assert child["timestamp-ms"] >= parent["timestamp-ms"]
    assert found["snapshot-log"] == [
        {"timestamp-ms": each["timestamp-ms"], "snapshot-id": each["snapshot-id"]} for each in snapshots
    ]
    assert snapshots[-1]["snapshot-id"] == found["current-snapshot-id"]
    assert history.PROPERTY not in found["properties"]
    assert len(snapshots[0]["summary"]["floe.folded-through"]) > 0
    ledgers = [each["snapshot-id"] for each in snapshots if "floe.next-offsets" in each["summary"]]
    assert ledgers == [found["current-snapshot-id"]], "thousands of partitions are told once"


async def test_the_first_snapshot_is_the_table_as_it_was_then(rig: Rig) -> None:
    """For readers that travel in time: its stamp is that of the last one that it took in."""
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 60)
    first, second = (await served(rig))["snapshots"][:2]
    before = second["sequence-number"] - 1
    assert first["sequence-number"] == before
    assert first["summary"]["added-records"] == str(before)
    assert len(await added(rig, first)) == before


async def test_whoever_asks_for_snapshots_of_refs_gets_no_others(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 20)
    found = await served(rig, snapshots="refs")
    assert [each["snapshot-id"] for each in found["snapshots"]] == [found["current-snapshot-id"]]
    assert len((await served(rig))["snapshots"]) == 20


@pytest.mark.parametrize("merged_at", [3, 100])
async def test_no_file_that_a_kept_snapshot_names_is_removed(rig: Rig, merged_at: int) -> None:
    rig.options = small(merged_at=merged_at)
    await rig.create_topic(partitions=2)
    committer = rig.committer()
    for _ in range(7):
        await commit(rig, committer, 9, partitions=2)
        assert committer.head is not None
        now_ms = rig.parts.clock.now_ms() + 1000
        await maintenance.collect(rig.store, rig.warehouse, committer.head, now_ms, 0, Steps())
        for snapshot in (await served(rig))["snapshots"]:
            await added(rig, snapshot)
            await _read_all(rig, snapshot)
    names = [each.key async for page in rig.store.list("") for each in page]
    lists = [name for name in names if name.endswith(".avro") and "-snap." in name]
    assert len(lists) == len((await served(rig))["snapshots"]) - 1, "and of the others nothing is left"


async def _read_all(rig: Rig, snapshot: dict[str, Any]) -> None:
    """Open each file that a snapshot leads to. Raises NotFound."""
    location = snapshot["manifest-list"]
    for manifest in manifest_avro.read_list(location, await rig.store.get(rig.warehouse.key(location))):
        content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
        for each in manifests.data_files(manifest, content):
            await rig.store.head(rig.warehouse.key(each))


async def test_rows_that_left_the_table_leave_its_history_too(rig: Rig) -> None:
    """A fold over a removal makes a new first snapshot; no new stream is led to rows that are gone."""
    topic = await rig.create_topic(partitions=1, floe__table__retention="follow")
    committer = rig.committer()
    await commit(rig, committer, 20)
    handle = topic.partitions[0].handle
    assert isinstance(await rig.replica.propose(MoveLogStart(partition=[handle], offset=[10])), Done)
    assert await committer.follow() == 10
    inside = Stream(rig)
    await inside.go(await served(rig), files_max=2)
    await commit(rig, committer, 60)
    assert committer.head is not None
    now_ms = rig.parts.clock.now_ms() + 1000
    await maintenance.collect(rig.store, rig.warehouse, committer.head, now_ms, 0, Steps())
    found, fresh = await served(rig), Stream(rig)
    await fresh.go(found)
    assert sorted(fresh.read) == await files(rig)
    assert len(fresh.read) == 70
    with pytest.raises(Expired):
        await inside.go(found)


async def test_a_table_whose_first_snapshots_went_by_number_gets_a_whole_history(rig: Rig) -> None:
    """As an older version left it: the newest few, and the parent of the first is not there."""
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 3)
    head = await rig.head()
    gone = {each["snapshot-id"] for each in head.metadata["snapshots"][:1]}
    old = {
        **history.cut(head.metadata, 2),
        "properties": {k: v for k, v in head.metadata["properties"].items() if k != history.PROPERTY},
    }
    assert not gone & {each["snapshot-id"] for each in old["snapshots"]}
    location = f"{head.metadata['location']}/metadata/99999-older.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(old)])
    message = CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    assert isinstance(await rig.replica.propose(message), Done)
    await commit(rig, rig.committer(), 12)
    fresh = Stream(rig)
    await fresh.go(await served(rig))
    assert sorted(fresh.read) == await files(rig)
    assert len(fresh.read) == 15


async def test_a_damaged_segment_stops_neither_commits_nor_queries(rig: Rig) -> None:
    rig.options = small(history_max=1000)
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 12)
    head = await rig.head()
    name = history.of(head.metadata).segments[0].name
    key = rig.warehouse.key(f"{head.metadata['location']}/{name}")
    whole = await rig.store.get(key)
    await rig.store.put(key, [b"x" + whole[1:]])
    standing: list[Stream] = []
    for _ in range(30):
        await commit(rig, committer, 1)
        standing.append(Stream(rig, at=((await rig.head()).metadata["current-snapshot-id"], 1)))
    for number, each in enumerate(standing):
        await each.go(await served(rig))
        assert len(each.read) == 29 - number, "streams that stand behind the damage go on"
    with pytest.raises(Refused):
        await Stream(rig).go(await served(rig))
    assert (await served(rig))["current-snapshot-id"] == (await rig.head()).metadata["current-snapshot-id"]
    await rig.assert_table_is_topic_rows(42)
    with pytest.raises(Damaged):
        await maintenance.reachable(rig.store, rig.warehouse, await rig.head())
    await rig.store.put(key, [whole])
    fresh = Stream(rig)
    await fresh.go(await served(rig))
    assert sorted(fresh.read) == await files(rig)


async def test_what_is_set_on_the_table_counts_for_it(rig: Rig) -> None:
    rig.options = small(history_max=1000)
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 20)
    assert len((await served(rig))["snapshots"]) == 20, "the default is a day"
    for age, least, most in (("0", "15", 20), ("0", "1", 8)):
        await set_properties(rig, {history.AGE_PROPERTY: age, history.LEAST_PROPERTY: least})
        await commit(rig, committer, 8)
        assert int(least) <= len((await served(rig))["snapshots"]) <= most


async def set_properties(rig: Rig, updates: dict[str, str]) -> None:
    """As an engine does it."""
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": updates}]}
    status, answer = await serving.ask(serving.catalog_of(rig), "POST", PATH, body)
    assert status == 200, answer


async def test_the_topic_says_for_how_long(rig: Rig) -> None:
    rig.options = small(history_max=1000)
    await rig.create_topic(partitions=1, floe__table__history__ms="0")
    await commit(rig, rig.committer(), 40)
    assert len((await served(rig))["snapshots"]) < 15


def test_metadata_names_its_history_or_says_what_is_wrong() -> None:
    empty = metadata.new_table("u", "file:///t", [], 0, {}, 1)
    assert history.of(empty) == history.History()
    for text in ("", "[]", '{"base":"1"}', '{"base":"1","segments":[["a",1]]}'):
        with pytest.raises(ValueError, match=history.PROPERTY):
            history.of({"properties": {history.PROPERTY: text}})


@pytest.mark.parametrize("step", ["store-history", "store-base", "store-metadata", "commit-table"])
async def test_killed_while_history_is_put_in_order_no_row_of_it_is_lost(rig: Rig, step: str) -> None:
    await rig.create_topic(partitions=1)
    committer, stream = rig.committer(), Stream(rig)
    await commit(rig, committer, 33)
    await stream.go(await served(rig))
    deaths = 0
    for _ in range(12):
        await rig.produce([b"x"])
        killed = rig.committer(steps=KillAt(name=step))
        try:
            await rig.drain(killed)
        except Killed:
            deaths += 1
            await rig.drain(rig.committer())
    assert deaths
    found, fresh = await served(rig), Stream(rig)
    for each in (stream, fresh):
        await each.go(found)
        assert sorted(each.read) == await files(rig)
    assert len(fresh.read) == 45


async def test_a_table_whose_topic_is_gone_has_its_history_as_engines_keep_it(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 20)
    await rig.delete_topic()
    snapshots = (await served(rig))["snapshots"]
    old = [each["snapshot-id"] for each in snapshots[:9]]
    body = {"requirements": [], "updates": [{"action": "remove-snapshots", "snapshot-ids": old}]}
    status, answer = await serving.ask(serving.catalog_of(rig), "POST", PATH, body)
    assert status == 200, answer
    found = await served(rig)
    assert [each["snapshot-id"] for each in found["snapshots"]] == [
        each["snapshot-id"] for each in snapshots[9:]
    ]


async def test_pyiceberg_reads_a_table_with_a_long_history(rig: Rig) -> None:
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 50)
    found = await served(rig)
    oldest = found["snapshots"][0]
    async with serving.served(serving.catalog_of(rig)) as url:

        def read() -> tuple[int, int, int]:
            table = serving.client(url).load_table("floe.t")
            then = table.scan(snapshot_id=oldest["snapshot-id"]).to_arrow()
            return len(table.snapshots()), len(table.scan().to_arrow()), len(then)

        rows = oldest["sequence-number"]
        assert await asyncio.to_thread(read) == (len(found["snapshots"]), 50, rows)


class Ahead(SystemClock):
    """A clock that jumped by two days."""

    def now_ms(self) -> int:
        return super().now_ms() + 2 * 86_400_000


async def test_one_agents_clock_ends_no_history(rig: Rig) -> None:
    rig.options = small(history_max=1000)
    await rig.create_topic(partitions=1, floe__table__history__ms="3600000")
    committer = Committer(replace(rig.parts, clock=Ahead()), "t")
    await commit(rig, committer, 30)
    assert len((await served(rig))["snapshots"]) == 30


async def test_a_history_that_does_not_belong_to_its_table_is_begun_anew(rig: Rig) -> None:
    """As an agent of an older version leaves it, which keeps the newest snapshots and knows of no base."""
    await rig.create_topic(partitions=1)
    await commit(rig, rig.committer(), 20)
    head = await rig.head()
    location = f"{head.metadata['location']}/metadata/99999-older.metadata.json"
    old = history.cut(head.metadata, 2)
    await rig.store.put(rig.warehouse.key(location), [metadata.encode(old)])
    message = CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    assert isinstance(await rig.replica.propose(message), Done)
    assert (await served(rig))["current-snapshot-id"] == old["current-snapshot-id"]
    await commit(rig, rig.committer(), 3)
    fresh = Stream(rig)
    await fresh.go(await served(rig))
    assert sorted(fresh.read) == await files(rig)
    assert len(fresh.read) == 23


@pytest.mark.parametrize("bad", [[b"garbage"], None])
async def test_a_lost_segment_is_got_over_once_its_time_is_over(rig: Rig, bad: list[bytes] | None) -> None:
    await rig.create_topic(partitions=1)
    committer = rig.committer()
    await commit(rig, committer, 20)
    head = await rig.head()
    name = history.of(head.metadata).segments[1].name
    key = rig.warehouse.key(f"{head.metadata['location']}/{name}")
    if bad is None:
        await rig.store.delete([key])
    else:
        await rig.store.put(key, bad)
    await commit(rig, rig.committer(), 60)
    head = await rig.head()
    assert name not in [each.name for each in history.of(head.metadata).segments]
    await maintenance.reachable(rig.store, rig.warehouse, head)
    fresh = Stream(rig)
    await fresh.go(await served(rig))
    assert sorted(fresh.read) == await files(rig)
    assert len(fresh.read) == 80
