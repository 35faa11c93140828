"""What a copy must have: also of a deleted topic that can come back."""

from __future__ import annotations

from coordination.commands import DeleteTopic, PurgeTopics
from coordination.copying.referred import Referred
from coordination.state import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.manifest import Manifest
from objectstore.naming import SegmentId, manifest_key, segment_key
from objectstore.segment import SegmentInfo
from tests.unit.coordination.kit import A, Script, swap


async def test_segments_of_a_deleted_topic_are_named_until_it_is_let_go_of(script: Script) -> None:
    script.topic(A, "t")
    script.commit(A, (0, 2))
    assert script.one(A, swap(script.state, 0, 1, 2)) == Done()
    partition = script.state.partitions[0]
    assert partition is not None
    assert partition.merged is not None
    listed = partition.merged.manifest
    segment = SegmentId(A, 0, 1)
    info = SegmentInfo(segment, 0, 2, 200, 100, 2, 1, 1)
    store = MemoryStore()
    await store.put(manifest_key(listed), [Manifest.empty(0, 0).appended([info], 2).encode(listed)])
    keys = {manifest_key(listed), segment_key(segment)}
    assert keys <= await Referred(store).wanted(script.state)
    topic_id = partition.topic.topic_id
    assert isinstance(script.one(A, DeleteTopic(name="t")), Done)
    assert keys <= await Referred(store).wanted(script.state), "it can come back"
    for key in keys:
        assert await Referred(store).names(script.state, key)
    script.one(A, PurgeTopics(topic_id=[topic_id]))
    assert not keys & await Referred(store).wanted(script.state)
