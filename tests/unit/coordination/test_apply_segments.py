"""SwapSegments: valid only if nothing changed under it; what it replaces is let go of. ForgetSegments."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.commands import DeleteTopic, ForgetSegments, MoveLogStart, SwapSegments
from coordination.kafka_codes import Code
from coordination.snapshot import canonical_digest, decode, encode
from coordination.state import Done, Refused
from coordination.state.types import Partition
from objectstore.naming import ChunkId, ManifestId, SegmentId
from tests.unit.coordination.kit import START_MS, Script, for_good, swap, tiles

AUTHOR, OTHER = 101, 102


@pytest.fixture
def script() -> Script:
    """Two agents; topic t, partition 0: four slices of ten records."""
    script = Script()
    script.register(AUTHOR)
    script.register(OTHER)
    script.topic(AUTHOR, "t", 2)
    for _ in range(4):
        script.commit(AUTHOR, (0, 10), (1, 1))
    return script


def first(script: Script) -> Partition:
    found = script.state.partitions[0]
    assert found is not None
    return found


def code_of(result: Any) -> Code:
    assert isinstance(result, Refused), result
    return result.code


def test_a_swap_replaces_rows_and_releases_their_chunks(script: Script) -> None:
    assert script.one(OTHER, swap(script.state, 0, 7, 30)) == Done()
    merged = first(script).merged
    assert merged is not None
    assert merged.manifest == ManifestId(OTHER, 0, 7)
    assert (merged.start_offset, merged.end_offset, len(first(script).slices)) == (0, 30, 1)
    assert [chunk.references for chunk in script.state.chunks.by_serial.values()] == [1, 1, 1, 2]
    assert first(script).size_bytes == 300 + 100
    tiles(script.state)
    script.one(OTHER, swap(script.state, 1, 8, 3))
    assert list(script.state.chunks.garbage) == [ChunkId(AUTHOR, n) for n in (1, 2, 3)]
    tiles(script.state)


def test_of_two_jobs_that_merge_the_same_rows_one_is_refused(script: Script) -> None:
    mine, theirs = swap(script.state, 0, 1, 30), swap(script.state, 0, 1, 40)
    assert script.one(AUTHOR, mine) == Done()
    assert code_of(script.one(OTHER, theirs)) is Code.INVALID_UPDATE_VERSION
    assert first(script).merged.manifest == ManifestId(AUTHOR, 0, 1)  # type: ignore[union-attr]  # was swapped in
    tiles(script.state)


def test_a_rewrite_replaces_the_manifest_and_lets_go_of_segments(script: Script) -> None:
    script.one(AUTHOR, swap(script.state, 0, 1, 30))
    script.now_ms += 5
    again = swap(script.state, 0, 2, 30, released=[(AUTHOR, 77)])
    assert not again.HasField("last_chunk")
    assert script.one(OTHER, again) == Done()
    assert script.state.manifest_garbage == {ManifestId(AUTHOR, 0, 1): (START_MS + 5, False)}
    assert script.state.segment_garbage == {SegmentId(AUTHOR, 0, 77): START_MS + 5}
    assert code_of(script.one(OTHER, again)) is Code.INVALID_UPDATE_VERSION, "its expected manifest is gone"
    forget = ForgetSegments(
        segment_incarnation=[AUTHOR], segment_partition=[0], segment_number=[77],
        manifest_incarnation=[AUTHOR, OTHER], manifest_partition=[0, 0], manifest_number=[1, 9],
    )  # fmt: skip
    assert script.one(OTHER, forget) == Done(2)
    assert not script.state.manifest_garbage
    assert not script.state.segment_garbage


def test_a_log_start_that_moved_into_the_range_does_not_hinder_a_swap(script: Script) -> None:
    prepared = swap(script.state, 0, 1, 30)
    script.one(OTHER, MoveLogStart(partition=[0], offset=[25]))
    assert script.one(AUTHOR, prepared) == Done()
    merged = first(script).merged
    assert merged is not None
    assert (merged.start_offset, first(script).log_start) == (0, 25)
    tiles(script.state)


def test_a_log_start_that_passed_the_range_refuses_the_swap(script: Script) -> None:
    prepared = swap(script.state, 0, 1, 30)
    script.one(OTHER, MoveLogStart(partition=[0], offset=[30]))
    assert code_of(script.one(AUTHOR, prepared)) is Code.OFFSET_OUT_OF_RANGE
    assert first(script).merged is None
    tiles(script.state)


def test_moving_the_log_start_beyond_the_merged_range_lets_go_of_all_of_it(script: Script) -> None:
    script.one(AUTHOR, swap(script.state, 0, 1, 30))
    script.one(OTHER, MoveLogStart(partition=[0], offset=[29]))
    assert first(script).merged is not None
    script.one(OTHER, MoveLogStart(partition=[0], offset=[30]))
    assert first(script).merged is None
    assert script.state.manifest_garbage == {ManifestId(AUTHOR, 0, 1): (START_MS, True)}
    tiles(script.state)


def test_deleting_a_topic_lets_go_of_its_merged_ranges(script: Script) -> None:
    for_good(script, AUTHOR)
    script.one(AUTHOR, swap(script.state, 0, 1, 30))
    late = swap(script.state, 0, 2, 40)
    script.one(OTHER, DeleteTopic(name="t"))
    assert script.state.manifest_garbage == {ManifestId(AUTHOR, 0, 1): (START_MS, True)}
    assert code_of(script.one(AUTHOR, late)) is Code.UNKNOWN_TOPIC_OR_PARTITION
    assert not script.state.chunks.by_serial


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"end": 25}, Code.INVALID_UPDATE_VERSION),
        ({"chunk": 1}, Code.INVALID_UPDATE_VERSION),
        ({"start_offset": 1}, Code.INVALID_REQUEST),
        ({"segments": 0}, Code.INVALID_REQUEST),
        ({"released": [(AUTHOR, n) for n in range(10_001)]}, Code.INVALID_REQUEST),
    ],
)
def test_a_swap_that_would_hide_records_is_refused(
    script: Script, fault: dict[str, Any], expected: Code
) -> None:
    message = swap(script.state, 0, 1, 30, **{k: v for k, v in fault.items() if k not in ("end", "chunk")})
    message.merged.end_offset = fault.get("end", 30)
    message.last_chunk.number = fault.get("chunk", message.last_chunk.number)
    assert code_of(script.one(AUTHOR, message)) is expected
    assert first(script).merged is None
    assert len(first(script).slices) == 4


def test_a_swap_of_a_partition_that_never_was_is_refused(script: Script) -> None:
    assert code_of(script.one(AUTHOR, SwapSegments(partition=99))) is Code.UNKNOWN_TOPIC_OR_PARTITION


def test_merged_ranges_and_their_garbage_survive_a_snapshot(script: Script) -> None:
    script.one(AUTHOR, swap(script.state, 0, 1, 20))
    script.one(AUTHOR, swap(script.state, 0, 2, 30, released=[(AUTHOR, 5)]))
    script.one(AUTHOR, swap(script.state, 1, 3, 2))
    script.one(AUTHOR, MoveLogStart(partition=[1], offset=[2]))
    loaded = decode(encode(script.state))
    assert canonical_digest(loaded) == canonical_digest(script.state) == canonical_digest(script.replayed())
    assert loaded.partitions[0].merged == first(script).merged  # type: ignore[union-attr]  # it exists
    assert loaded.manifest_garbage == script.state.manifest_garbage != {}
    assert loaded.segment_garbage == script.state.segment_garbage != {}
    script.through_snapshot()
    script.one(AUTHOR, swap(script.state, 0, 4, 40))
    tiles(script.state)
