"""What a commit stores beside rows is bounded, however many commits, files and schemas there were before."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.manifest import ManifestFile

from iceberg import history, manifests, metadata
from iceberg.committer import CommitterOptions
from iceberg.history import Policy
from objectstore.open import open_store
from tests.unit.iceberg.metadata_cost import busy
from tests.unit.iceberg.rig import Rig, running
from tests.unit.iceberg.test_tables_history_days import Table

BOUND = 64 << 10
"""Bytes per commit of tables of up to 16 partitions and some columns (docs/tables.md)."""
WIDE_SCHEMAS = 60


@pytest.mark.parametrize(("partitions", "columns"), [(1, 0), (16, 0), (1, 100)])
async def test_a_commit_stores_no_more_after_many_than_after_a_few(
    tmp_path: Path, partitions: int, columns: int
) -> None:
    """Three objects and a third (compaction, history) beside rows, of as many bytes."""
    async with busy(tmp_path, partitions, columns) as table:
        await table.commits(50)
        early = await table.commits(50)
        await table.commits(100)
        late = await table.commits(50)
    assert late.bytes_per_commit < BOUND
    assert late.bytes_per_commit < 1.2 * early.bytes_per_commit
    assert late.objects_per_commit < 3.5
    assert set(late.objects) <= {"rows", "added", "list", "metadata", "replaced", "history"}


async def test_files_that_stay_are_not_named_anew_by_each_merge_of_manifests(tmp_path: Path) -> None:
    """A table without compaction: the manifest of all files so far is left alone once it is large."""
    options = CommitterOptions(manifests_merged_at=4)
    async with busy(tmp_path, 16, options=options, floe__table__compaction="false") as table:
        await table.commits(30)
        early = await table.commits(30)
        await table.commits(180)
        late = await table.commits(30)
        listed = (await table.rig.head()).manifests
        named = [*chain.from_iterable([await names(table.rig, each) for each in listed])]
    assert len(listed) < 4 + 8
    assert len(named) == len(set(named)) == 270 * 16
    assert late.bytes["merged"] < 3 * early.bytes["merged"], "all of them anew each time would be five times"


async def test_schemas_that_no_kept_snapshot_has_are_gone(tmp_path: Path) -> None:
    """Each change of a message would else be in every metadata file for ever."""
    table, policy = Table(open_store(f"file://{tmp_path}"), tmp_path), Policy(600_000, 1, 20_000)
    for number in range(WIDE_SCHEMAS):
        fields = [{"id": 1, "name": f"c{number}", "required": False, "type": "long"}]
        table.metadata = metadata.with_schema(table.metadata, fields, 1, {})
        for _ in range(20):
            await table.commit(policy)
    numbers = [each["schema-id"] for each in table.metadata["schemas"]]
    kept = {each["schema-id"] for each in await table.whole()}
    assert kept <= set(numbers)
    assert len(numbers) < WIDE_SCHEMAS / 2
    assert numbers[-1] == table.metadata["current-schema-id"] == WIDE_SCHEMAS


async def test_a_schema_of_a_tagged_snapshot_stays(tmp_path: Path) -> None:
    table = Table(open_store(f"file://{tmp_path}"), tmp_path)
    for _ in range(3):
        await table.commit(Policy(0, 1, 20_000))
    named = table.metadata["current-snapshot-id"]
    tags = {"month": {"snapshot-id": named, "type": "tag"}}
    table.metadata = {**table.metadata, "refs": {**table.metadata["refs"], **tags}}
    fields = [{"id": 1, "name": "other", "required": False, "type": "long"}]
    table.metadata = metadata.with_schema(table.metadata, fields, 1, {})
    for _ in range(600):
        await table.commit(Policy(0, 1, 20_000))
    assert history.of(table.metadata).base not in (0, named)
    assert [each["schema-id"] for each in table.metadata["schemas"]] == [0, 1]


async def names(rig: Rig, manifest: ManifestFile) -> list[str]:
    """Locations of the files that a manifest names."""
    content = await rig.store.get(rig.warehouse.key(manifest.manifest_path))
    return manifests.data_files(manifest, content)


async def files_of(rig: Rig) -> list[str]:
    """Names of the table's metadata files that are stored."""
    found: list[str] = []
    async for page in rig.store.list("tables/"):
        found += [each.key for each in page if each.key.endswith(".metadata.json")]
    return found


@pytest.mark.parametrize(("deletes", "left"), [("true", 4), ("false", 11)])
async def test_former_metadata_files_are_named_and_kept_as_the_table_says(
    tmp_path: Path, deletes: str, left: int
) -> None:
    """`write.metadata.previous-versions-max`, and `write.metadata.delete-after-commit.enabled`."""
    wanted = {metadata.PREVIOUS_PROPERTY: "3", metadata.DELETE_PROPERTY: deletes}
    async with running(tmp_path) as rig:
        await rig.create_topic()
        committer = rig.committer()
        for number in range(10):
            await rig.produce([b"x"])
            head = committer.head
            if head is not None:
                head.metadata["properties"].update(wanted)  # as if somebody had set them
            await rig.drain(committer)
            assert committer.head is not None
            log: list[dict[str, Any]] = committer.head.metadata["metadata-log"]
            assert len(log) == min(number + 1, 3 if head is not None else 20)
        stored = await files_of(rig)
        assert len(stored) == left
        named = {rig.warehouse.key(each["metadata-file"]) for each in log}
        assert named | {rig.warehouse.key(committer.head.location)} <= set(stored)
        await rig.assert_table_is_topic_rows(10)
