"""What a copy must have, and never lets go of: also of a deleted topic that can come back."""

from __future__ import annotations

import pytest

from coordination.commands import CommitTable, DeleteTopic, PurgeTopics, PutNamespace
from coordination.copying.referred import Referred
from coordination.state import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.manifest import Manifest
from objectstore.naming import SegmentId, manifest_key, segment_key
from objectstore.segment import SegmentInfo
from tests.unit.coordination.kit import A, Script, swap

URL = "s3://source/prefix"
SEGMENT = SegmentId(A, 0, 1)


def referred(store: MemoryStore, target: MemoryStore | None = None) -> Referred:
    return Referred(store, target or MemoryStore(), URL)


async def merged(script: Script, store: MemoryStore) -> str:
    """A topic whose one segment is listed by the manifest with this key."""
    script.topic(A, "t")
    script.commit(A, (0, 2))
    assert script.one(A, swap(script.state, 0, 1, 2)) == Done()
    partition = script.state.partitions[0]
    assert partition is not None
    assert partition.merged is not None
    listed = partition.merged.manifest
    info = SegmentInfo(SEGMENT, 0, 2, 200, 100, 2, 1, 1)
    await store.put(manifest_key(listed), [Manifest.empty(0, 0).appended([info], 2).encode(listed)])
    return manifest_key(listed)


async def test_segments_of_a_deleted_topic_are_named_until_it_is_let_go_of(script: Script) -> None:
    store = MemoryStore()
    keys = {await merged(script, store), segment_key(SEGMENT)}
    assert keys <= await referred(store).wanted(script.state)
    topic_id = script.state.topics["t"].topic_id
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    assert keys <= await referred(store).wanted(script.state), "it can come back"
    for key in keys:
        assert await referred(store).names(script.state, key)
    script.one(A, PurgeTopics(topic_id=[topic_id]))
    assert not keys & await referred(store).wanted(script.state)


async def test_what_the_destination_lists_is_named_when_the_source_lost_its_manifest(script: Script) -> None:
    store, target = MemoryStore(), MemoryStore()
    key = await merged(script, store)
    await target.put(key, [await store.get(key)])
    stray = segment_key(SegmentId(A, 0, 2))
    keys = [key, segment_key(SEGMENT), stray]
    await store.delete([key])
    assert await referred(store, target).deletable(script.state, keys) == [stray]
    assert await referred(store, target).names(script.state, segment_key(SEGMENT))
    assert segment_key(SEGMENT) in await referred(store, target).wanted(script.state)
    await target.put(key, [b"damaged"])
    assert await referred(store, target).deletable(script.state, keys) == [], "any may be named"
    script.topic(A, "u")
    other = segment_key(SegmentId(A, 1, 3))
    assert await referred(store, target).deletable(script.state, [*keys, other]) == [other]


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
async def test_files_of_a_table_stay_while_the_source_lacks_its_metadata(script: Script, scheme: str) -> None:
    store = MemoryStore()
    current, former = (f"tables/lake/t/metadata/0000{number}-x.metadata.json" for number in (2, 1))
    script.one(A, PutNamespace(name="lake"))
    location = f"{scheme}{URL.removeprefix('s3')}/{current}"
    moved = CommitTable(namespace="lake", name="t", metadata_location=location)
    assert isinstance(script.one(A, moved), Done)
    data, other = "tables/lake/t/data/1.parquet", "tables/lake/t2/data/1.parquet"
    keys = [current, former, data, other]
    assert current in await referred(store).wanted(script.state)
    assert await referred(store).names(script.state, current)
    assert await referred(store).deletable(script.state, keys) == [other]
    await store.put(current, [b"{}"])
    assert await referred(store).deletable(script.state, keys) == [former, data, other]
    elsewhere = Referred(store, MemoryStore(), "s3://another")
    assert current not in await elsewhere.wanted(script.state), "it is not copied"
