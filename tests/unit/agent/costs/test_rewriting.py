"""How often bytes are written anew is what the real planners of merging and of tables come to."""

from __future__ import annotations

import pytest

from agent.background.rewriting.merging.planner import absorbed_from
from agent.config.limits import MergingConfig
from agent.costs import Load, Settings
from agent.costs.merging import merging
from agent.costs.tables import rewritten
from objectstore.manifest import Manifest
from objectstore.naming import SegmentId
from objectstore.segment import HEADER_BYTES, SegmentInfo
from tests.unit.iceberg.test_tables_small_files import simulate

MIB = 1024**2


def merged_anew(new_bytes: int, goal: int, merges: int) -> float:
    """Times that a byte of a partition is written again by the real planner, merge by merge."""
    manifest, again = Manifest.empty(0, 0), 0
    for number in range(merges):
        first = absorbed_from(manifest, new_bytes, goal, -1, 0)
        taken = sum(manifest[each].record_bytes for each in range(first, len(manifest)))
        again += taken
        base = manifest[first].base_offset if first < len(manifest) else number
        size = new_bytes + taken
        info = SegmentInfo(
            SegmentId(1, 0, number + 1), base, number + 1, size + 1_000, size + HEADER_BYTES, 1, 0, 0
        )
        manifest = manifest.without_from(first).appended([info], number + 1)
    return again / (new_bytes * merges)


@pytest.mark.parametrize("first", [MIB // 8, MIB, 4 * MIB, 20 * MIB])
def test_segments_grow_as_the_merge_planner_lets_them(first: int) -> None:
    goal = 64 * MIB
    # a partition of which 936 slices are so many bytes; the span of a quarter of the retention is no bound
    batch = first / 936
    load = Load(write=100 * batch, batch_bytes=batch, message_bytes=batch, partitions=1, topics=1, zones=1)
    found = merging(load, Settings(merging=MergingConfig(age_s=10**7)), 1, 1e-4)
    assert load.partition_write * found.every_s == pytest.approx(first, rel=0.02)
    assert found.rewrites == pytest.approx(merged_anew(first, goal, 2_048), abs=0.75)


@pytest.mark.parametrize(("rows", "row_bytes"), [(500, 100), (5_000, 100), (50_000, 100)])
def test_files_of_tables_grow_as_their_planner_lets_them(rows: int, row_bytes: int) -> None:
    commits = 4_000
    _, anew = simulate(commits, lambda chance: rows, row_bytes, 720)
    size = float(rows * row_bytes)
    load = Load(write=size, retention_s=commits, partitions=1, topics=1)
    assert rewritten(size, load, Settings()) == pytest.approx(anew, abs=1)


def test_large_files_are_left_alone() -> None:
    assert rewritten(64.0 * MIB, Load(write=1e9), Settings()) == 0
