"""Manifests and segments that a restored state names, and that the bucket has not: each is told of."""

from __future__ import annotations

import pytest

from coordination.clock import SystemClock
from coordination.commands import DeleteTopic
from coordination.restore import merged
from coordination.restore.merged import Merged, merged_of
from coordination.restore.run import RestoreOptions, restore
from coordination.state import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.manifest import Manifest
from objectstore.naming import SegmentId, manifest_key, segment_key
from objectstore.segment import SegmentInfo
from tests.unit.coordination.kit import A, Script, swap
from tests.unit.coordination.lost import Lost, Sent
from tests.unit.coordination.test_restore import Target, target

__all__ = ["target"]
SEGMENTS = (SegmentId(A, 0, 1), SegmentId(A, 0, 2))


@pytest.fixture
async def lost(script: Script) -> Lost:
    """A partition of two segments, which its bucket has, in a snapshot and an archive."""
    made = Lost(MemoryStore(), script)
    script.topic(A, "t")
    await made.bind()
    await made.commit(A, Sent(0, ["a", "b"]))
    assert script.one(A, swap(script.state, 0, 1, 2)) == Done()
    infos = [SegmentInfo(each, at, at + 1, 200, 100, 1, 1, 1) for at, each in enumerate(SEGMENTS)]
    key = _manifest(script)
    partition = script.state.partitions[0]
    assert partition is not None
    assert partition.merged is not None
    await made.store.put(key, [Manifest.empty(0, 0).appended(infos, 2).encode(partition.merged.manifest)])
    for each in SEGMENTS:
        await made.store.put(segment_key(each), [b"x"])
    await made.snapshot()
    await made.archive()
    return made


def _manifest(script: Script) -> str:
    partition = script.state.partitions[0]
    assert partition is not None
    assert partition.merged is not None
    return manifest_key(partition.merged.manifest)


async def test_what_is_there_is_not_told_of(lost: Lost) -> None:
    assert await merged_of(lost.store, lost.script.state) == Merged()


async def test_a_segment_or_a_manifest_that_is_not_there_is_missing(lost: Lost) -> None:
    state, (first, second) = lost.script.state, map(segment_key, SEGMENTS)
    await lost.store.delete([second])
    assert await merged_of(lost.store, state) == Merged([second])
    await lost.store.delete([first])
    assert await merged_of(lost.store, state) == Merged([first, second])
    await lost.store.delete([_manifest(lost.script)])
    assert await merged_of(lost.store, state) == Merged([_manifest(lost.script)])


async def test_so_it_is_of_a_deleted_topic_that_can_come_back(lost: Lost) -> None:
    assert isinstance(lost.script.one(A, DeleteTopic(name="t")), Done)
    await lost.store.delete([segment_key(SEGMENTS[0])])
    assert await merged_of(lost.store, lost.script.state) == Merged([segment_key(SEGMENTS[0])])


async def test_a_manifest_that_is_damaged_is_told_of_as_that(lost: Lost) -> None:
    await lost.store.put(_manifest(lost.script), [b"no manifest"])
    found = await merged_of(lost.store, lost.script.state)
    assert [key for key, _ in found.damaged] == [_manifest(lost.script)]
    assert not found.missing


async def test_manifests_beyond_the_bound_are_counted(lost: Lost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "MANIFESTS_READ_MAX", 0)
    await lost.store.delete(list(map(segment_key, SEGMENTS)))
    assert await merged_of(lost.store, lost.script.state) == Merged(unread=1)


@pytest.mark.services
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("damaged", [True, False])
async def test_the_report_of_a_restore_has_it_once(
    lost: Lost, target: Target, dry_run: bool, damaged: bool
) -> None:
    await lost.store.delete([segment_key(SEGMENTS[1])])
    if damaged:
        await lost.store.put(_manifest(lost.script), [b"no manifest"])
    options = RestoreOptions(settle_s=0.0, log_is_lost=True, dry_run=dry_run)
    report = await restore(lost.store, target.log(), SystemClock(), options)
    assert report.missing_merged == ([] if damaged else [segment_key(SEGMENTS[1])])
    assert [key for key, _ in report.damaged] == ([_manifest(lost.script)] if damaged else [])
