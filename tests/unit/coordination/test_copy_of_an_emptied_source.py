"""A source that lost what its state names does not empty its copy, however long ago (decision 0040)."""

from __future__ import annotations

import pytest

from coordination.commands import CommitTable, PutNamespace
from coordination.copying.run import Copying
from coordination.restore.source import source_of
from coordination.state import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.manifest import Manifest
from objectstore.naming import LOG, MANIFESTS, SEGMENTS, TABLES, SegmentId, manifest_key, segment_key
from objectstore.segment import SegmentInfo
from tests.unit.coordination.kit import A, Script, swap
from tests.unit.coordination.lost import LOST, Lost, Sent
from tests.unit.coordination.test_copying import NOTHING_KEPT, URL, copying

METADATA, DATA = "tables/lake/t/metadata/00001-x.metadata.json", "tables/lake/t/data/1.parquet"


@pytest.fixture
async def source(script: Script) -> Lost:
    """A merged partition and a table; the last piece of the log is behind the snapshot."""
    made = Lost(MemoryStore(), script)
    script.topic(A, "t")
    await made.bind()
    await made.commit(A, Sent(0, ["a", "b"]))
    assert script.one(A, swap(script.state, 0, 1, 2)) == Done()
    partition = script.state.partitions[0]
    assert partition is not None
    assert partition.merged is not None
    listed, segment = partition.merged.manifest, SegmentId(A, 0, 1)
    info = SegmentInfo(segment, 0, 2, 200, 100, 2, 1, 1)
    await made.store.put(manifest_key(listed), [Manifest.empty(0, 0).appended([info], 2).encode(listed)])
    script.one(A, PutNamespace(name="lake"))
    moved = CommitTable(namespace="lake", name="t", metadata_location=f"{URL}/{METADATA}")
    assert isinstance(script.one(A, moved), Done)
    for key in (segment_key(segment), METADATA, DATA):
        await made.store.put(key, [b"x"])
    await made.snapshot()
    await made.archive()
    await made.commit(A, Sent(0, ["c"]))
    await made.archive()
    return made


async def keys(store: MemoryStore, *prefixes: str) -> list[str]:
    return [meta.key for prefix in prefixes async for page in store.list(prefix) for meta in page]


@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("lost", [(MANIFESTS, SEGMENTS), (MANIFESTS,), (SEGMENTS,), (TABLES,), (LOG,)])
async def test_what_its_own_state_names_stays(source: Lost, lost: tuple[str, ...], anew: bool) -> None:
    """Noticed by the process that copied it, or by another one."""
    target = MemoryStore()
    under_way = copying(source, target, NOTHING_KEPT)
    await under_way.round()
    had = await keys(target, *lost)
    certain = (await source_of(target, LOST)).certain
    assert len(had) >= len(lost)
    await source.store.delete(await keys(source.store, *lost))
    if anew:
        under_way = copying(source, target, NOTHING_KEPT)
    for _ in range(2):
        made = await under_way.round()
        assert (made.missing_count, made.counts.deleted) == (0, 0), "the copy has it"
    assert (await keys(target, *lost), (await source_of(target, LOST)).certain) == (had, certain)


async def test_a_control_what_nothing_names_goes(source: Lost) -> None:
    """So does a piece of the log that a snapshot of both has made needless."""
    target = MemoryStore()
    under_way: Copying = copying(source, target, NOTHING_KEPT)
    stray = [segment_key(SegmentId(A, 0, 7)), "tables/lake/t/data/2.parquet"]
    for key in stray:
        await source.store.put(key, [b"x"])
    await under_way.round()
    pieces = await keys(source.store, LOG)
    await source.snapshot()
    await source.store.delete([*stray, *pieces])
    made = await under_way.round()
    assert made.counts.deleted == len(stray) + len(pieces)
    assert await keys(target, LOG) == []
    assert (await source_of(target, LOST)).certain == source.script.state.revision


async def test_metadata_of_a_table_that_neither_has_is_told(source: Lost) -> None:
    target = MemoryStore()
    await source.store.delete([METADATA])
    made = await copying(source, target, NOTHING_KEPT).round()
    assert made.missing == [METADATA]
