"""What engines commit, and what the catalog stamps, leaves tables that Java's engines can load."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from coordination.commands import CommitTable
from coordination.replica import Replica
from iceberg import metadata, rest_commit
from iceberg.metadata import Retention
from iceberg.rest_errors import CatalogError
from iceberg.rest_stamps import AHEAD_MS_MAX, BEHIND_MS_MAX
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg import serving
from tests.unit.iceberg.rig import Rig

NOW_MS = 1_800_000_000_000
MINUTES = 60_000
UUID = "00000000-0000-4000-8000-000000000000"
FIELDS = [{"id": 1, "name": "a", "required": False, "type": "long"}]
PROPERTIES = {"action": "set-properties", "updates": {"k": "v"}}
REPLACES = {"action": "remove-snapshot-ref", "ref-name": "main"}

Table = dict[str, Any]
places = itertools.count()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A cluster of one agent."""
    async with rigs.running(tmp_path) as found:
        yield found


def new(version: int = 2) -> Table:
    made = metadata.new_table(UUID, "s3://b/w/t", FIELDS, 1, {}, NOW_MS)
    made["schemas"][0].pop("identifier-field-ids")
    return made if version == 2 else {**made, "format-version": 1, "schema": made["schemas"][0]}


def commit(base: Table, *updates: Table, at_ms: int = NOW_MS) -> Table:
    request = rest_commit.parse_commit({"requirements": [], "updates": list(updates)})
    return rest_commit.apply(request, base, f"s3://b/w/t/metadata/{next(places):05d}.json", at_ms)


def snapshot(number: int, sequence: int, parent: int | None = None, at_ms: int = NOW_MS) -> Table:
    content = {"snapshot-id": number, "sequence-number": sequence, "timestamp-ms": at_ms, "schema-id": 0}
    content |= {"manifest-list": f"s3://b/w/t/{number}.avro", "summary": {"operation": "append"}}
    return content if parent is None else {**content, "parent-snapshot-id": parent}


def points(number: int, name: str = "main", kind: str = "branch") -> Table:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": number}


def adds(content: Table, name: str = "main") -> tuple[Table, Table]:
    return {"action": "add-snapshot", "snapshot": content}, points(content["snapshot-id"], name)


def appended(count: int, base: Table | None = None) -> Table:
    """A table with so many snapshots, numbered from 1 on, a second apart."""
    table = new() if base is None else base
    for each in range(1, count + 1):
        table = commit(table, *adds(snapshot(each, each, each - 1 or None, NOW_MS + 1000 * each)))
    return table


def times(table: Table, name: str) -> list[int]:
    return [each["timestamp-ms"] for each in table[name]]


def loadable(table: Table) -> bool:
    """What TableMetadata's constructor asks for (Iceberg 1.12)."""
    sound = all(each["sequence-number"] <= table["last-sequence-number"] for each in table["snapshots"])
    return sound and all(
        all(_goes_on([*times(table, name), table["last-updated-ms"]]))
        for name in ("snapshot-log", "metadata-log")
    )


def _goes_on(stamps: Iterable[int]) -> Iterable[bool]:
    return (after - before >= -1 * MINUTES for before, after in itertools.pairwise(stamps))


def refused(status: int, base: Table, *updates: Table, at_ms: int = NOW_MS) -> str:
    with pytest.raises(CatalogError) as caught:
        commit(base, *updates, at_ms=at_ms)
    assert caught.value.status == status, caught.value
    return str(caught.value)


def test_a_table_that_was_replaced_on_an_older_state_is_to_be_made_anew() -> None:
    """CREATE OR REPLACE TABLE has no parent, and asks for the table's uuid only."""
    table = appended(3)
    words = refused(409, table, REPLACES, *adds(snapshot(9, 2)))
    assert words == "Requirement failed: the table is at sequence number 3, snapshot 9 was made for 2"
    again = commit(table, REPLACES, *adds(snapshot(9, 4)))
    assert (again["last-sequence-number"], again["current-snapshot-id"]) == (4, 9)
    assert loadable(again)


def test_of_two_replacements_at_once_the_second_counts() -> None:
    """As in Iceberg's compatibility kit (CatalogTests.testConcurrentReplaceTransactions)."""
    table = commit(appended(1), REPLACES, *adds(snapshot(8, 2)))
    table = commit(table, REPLACES, *adds(snapshot(9, 2)))
    assert (table["last-sequence-number"], table["current-snapshot-id"]) == (2, 9)
    assert loadable(table)


@pytest.mark.parametrize("sequence", [1, 2])
def test_a_branch_that_was_made_on_an_older_state_is_to_be_made_anew(sequence: int) -> None:
    table = commit(appended(2), points(1, "wap"))
    assert "at sequence number 2" in refused(409, table, *adds(snapshot(9, sequence, 1), "wap"))
    assert loadable(commit(table, *adds(snapshot(9, 3, 1), "wap")))


def test_snapshots_of_one_commit_follow_one_another() -> None:
    table = commit(appended(1), *adds(snapshot(2, 2, 1)), *adds(snapshot(3, 3, 2)))
    assert table["last-sequence-number"] == 3
    refused(409, appended(1), *adds(snapshot(2, 2, 1)), *adds(snapshot(3, 2, 2)))


def test_a_table_of_version_1_has_no_sequence_numbers() -> None:
    table = new(version=1)
    for each in (1, 2):
        table = commit(table, *adds(snapshot(each, 0, each - 1 or None)))
    assert [each["snapshot-id"] for each in table["snapshots"]] == [1, 2]
    assert "format version 1" in refused(400, table, *adds(snapshot(3, 1, 2)))
    upgrade = {"action": "upgrade-format-version", "format-version": 2}
    after = commit(table, upgrade, *adds(snapshot(3, 1, 2)))
    assert (after["format-version"], after["last-sequence-number"]) == (2, 1)
    refused(409, table, upgrade, *adds(snapshot(3, 0, 2)))


@pytest.mark.parametrize(
    "bad",
    [
        {"sequence-number": None},
        {"sequence-number": -1},
        {"sequence-number": 1 << 63},
        {"snapshot-id": 1 << 63},
        {"summary": {"operation": "append", "added-records": 5}},
    ],
)
def test_a_snapshot_that_java_cannot_read_is_refused(bad: Table) -> None:
    refused(400, new(), *adds({**snapshot(1, 1), **bad}))


def test_main_is_no_tag() -> None:
    refused(400, appended(1), points(1, kind="tag"))


def test_an_engine_whose_clock_is_slow_is_told_so() -> None:
    table = appended(2)
    newest = table["last-updated-ms"]
    words = refused(400, table, *adds(snapshot(3, 3, 2, newest - BEHIND_MS_MAX - 1)))
    assert "snapshot 3 is stamped" in words
    assert f"Set the clock of the engine: the cluster's says {NOW_MS} ms" in words
    slow = newest - BEHIND_MS_MAX
    after = commit(table, *adds(snapshot(3, 3, 2, slow)))
    assert after["snapshots"][-1]["timestamp-ms"] == slow, "it is the engine's"
    assert times(after, "snapshot-log") == [NOW_MS + 1000, newest, newest]
    assert (after["last-updated-ms"], loadable(after)) == (newest, True)


def test_an_engine_whose_clock_is_far_ahead_would_keep_all_others_out() -> None:
    words = refused(400, new(), *adds(snapshot(1, 1, at_ms=NOW_MS + AHEAD_MS_MAX + 1)))
    assert "3600 s ahead of the cluster's clock" in words
    assert loadable(commit(new(), *adds(snapshot(1, 1, at_ms=NOW_MS + AHEAD_MS_MAX))))


@pytest.mark.parametrize("update", [PROPERTIES, points(1, "then", "tag"), points(1)], ids=str)
def test_the_catalogs_own_stamps_never_go_back(update: Table) -> None:
    """Properties, tags and rollbacks, by an agent that is behind whoever wrote the table."""
    ahead = NOW_MS + 10 * MINUTES
    table = commit(appended(1), *adds(snapshot(2, 2, 1, ahead)))
    after = commit(table, update, at_ms=NOW_MS - 10 * MINUTES)
    assert (after["last-updated-ms"], loadable(after)) == (ahead, True)
    again = commit(commit(after, {**PROPERTIES, "updates": {"l": "m"}}), points(2, "last", "tag"))
    assert loadable(again)
    assert times(again, "metadata-log") == [NOW_MS, NOW_MS + 1000, ahead, ahead, ahead]


def test_a_rollback_is_stamped_by_the_clusters_clock() -> None:
    after = commit(appended(2), points(1), at_ms=NOW_MS + MINUTES)
    assert times(after, "snapshot-log") == [NOW_MS + 1000, NOW_MS + 2000, NOW_MS + MINUTES]
    assert after["last-updated-ms"] == NOW_MS + MINUTES


def broken() -> Table:
    """As older agents left tables: last changed long before the last entry of their log."""
    table = commit(appended(1), *adds(snapshot(2, 2, 1, NOW_MS + 10 * MINUTES)))
    table = commit(table, {**PROPERTIES, "updates": {"l": "m"}})
    return {**table, "last-updated-ms": NOW_MS}


def test_a_table_that_cannot_be_loaded_gets_no_worse() -> None:
    table = broken()
    assert not loadable(table)
    assert loadable(commit(table, PROPERTIES))
    follows = metadata.following(table, "s3://b/w/t/metadata/9.json", table, NOW_MS, Retention())
    assert loadable(follows)


async def test_a_topics_table_that_cannot_be_loaded_gets_no_worse(rig: Rig) -> None:
    await rig.create_topic()
    await rig.produce([b"a"])
    await rig.drain(rig.committer())
    head = await rig.head()
    log = [
        {**each, "timestamp-ms": each["timestamp-ms"] + 10 * MINUTES}
        for each in head.metadata["snapshot-log"]
    ]
    content = metadata.encode({**head.metadata, "snapshot-log": log})
    location = f"{head.metadata['location']}/metadata/00009-x.metadata.json"
    await rig.store.put(rig.warehouse.key(location), [content])
    moved = CommitTable(namespace="floe", name="t", expected=head.location, metadata_location=location)
    await rig.replica.propose(moved)
    assert not loadable((await rig.head()).metadata)
    await rig.produce([b"b"])
    await rig.drain(rig.committer())
    found = (await rig.head()).metadata
    assert (loadable(found), len(found["snapshot-log"])) == (True, 2)


async def test_tables_are_stamped_by_the_clusters_clock(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replica, "wall_ms", lambda _: NOW_MS)
    catalog = serving.catalog_of(rig)
    await serving.ask(catalog, "POST", "/v1/namespaces", {"namespace": ["own"]})
    body = {"name": "t", "schema": {"type": "struct", "fields": FIELDS}}
    _, made = await serving.ask(catalog, "POST", "/v1/namespaces/own/tables", body)
    monkeypatch.setattr(Replica, "wall_ms", lambda _: NOW_MS + MINUTES)
    change = {"requirements": [], "updates": [PROPERTIES]}
    status, changed = await serving.ask(catalog, "POST", "/v1/namespaces/own/tables/t", change)
    assert status == 200
    stamps = [each["metadata"]["last-updated-ms"] for each in (made, changed)]
    assert stamps == [NOW_MS, NOW_MS + MINUTES]
