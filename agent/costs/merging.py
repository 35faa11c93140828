"""What merging and compaction of topics write again: planners' rules for partitions that all get alike."""

from __future__ import annotations

import math
from dataclasses import dataclass

from agent.background.rewriting.merging.merge import SPAN_BYTES_MAX
from agent.background.rewriting.merging.planner import FAN_IN, GROUP_ROWS_MAX, RANGE, SLICES_MIN
from agent.costs import coefficients as measured
from agent.costs.load import Load, Settings
from coordination.topic_configs import effective_int

MB, GB = 1e6, 1e9
SEGMENT_S = effective_int("segment.ms", {}, {}) / 1000


@dataclass(frozen=True, slots=True)
class Merging:
    """Of the whole cluster. Rates are a second's."""

    slices_per_s: float
    every_s: float
    """From one merge of a partition to its next, and so how old records are when they leave their chunks."""
    segment_bytes: float
    """Of a segment that is merged no further."""
    rewrites: float
    """How often a byte of a segment is written once more."""
    puts: float
    gets: float
    cores: float


def slices_of(load: Load, interval_s: float) -> float:
    """Slices a second of one partition: chunks that have a batch of it."""
    expected = load.partition_write / load.places / load.batch_bytes * interval_s  # batches in one chunk
    return load.places / interval_s * -math.expm1(-expected)


def merging(load: Load, settings: Settings, agents: int, interval_s: float) -> Merging:
    """What it comes to with a chunk of each agent every `interval_s`."""
    rules, write, each = settings.merging, load.partition_write, slices_of(load, interval_s)
    threshold = max(SLICES_MIN, min(rules.min_slices, rules.tail_slices_max // load.partitions))
    ready = threshold - min(rules.keep_slices, threshold // 2)
    every_s = min(ready / each, rules.segment_bytes / write, float(rules.age_s))
    merged = write * every_s
    goal = max(merged, min(rules.segment_bytes, write * min(SEGMENT_S, load.retention_s / 4)))
    rewrites = math.log(goal / merged, FAN_IN)
    slices = load.partitions * each
    moved = load.write * (1 + rewrites)
    in_a_chunk = load.partitions * load.places / agents
    gets = slices / _together(in_a_chunk, rules.segment_bytes / merged / (1 + rewrites), each * every_s)
    gets = max(gets, load.write / SPAN_BYTES_MAX) + load.write * rewrites / SPAN_BYTES_MAX
    cores = moved * _s_per_byte() + slices * _s_per_slice()
    return Merging(slices, every_s, goal, rewrites, 2 * load.partitions / every_s, gets, cores)


def _together(in_a_chunk: float, in_a_group: float, rows: float) -> float:
    """Slices of one chunk that one GET reads: neighbouring partitions that are merged at one time."""
    most = 1 / (measured.MERGE_BENCH_SLICES[0] / MB * measured.MERGE_GETS_64K.value)
    return max(1.0, min(in_a_chunk, in_a_group, RANGE, GROUP_ROWS_MAX / rows, most))


def _s_per_slice() -> float:
    """CPU seconds of a slice beside its bytes: what the smallest take longer than the largest."""
    large, small = measured.MERGE_BENCH_SLICES
    longer = 1 / measured.MERGE_1K.value - 1 / measured.MERGE_64K.value
    return longer / MB / (1 / small - 1 / large)


def _s_per_byte() -> float:
    return 1 / measured.MERGE_64K.value / MB - _s_per_slice() / measured.MERGE_BENCH_SLICES[0]


@dataclass(frozen=True, slots=True)
class Compaction:
    """Of topics with cleanup.policy=compact. Rates are a second's."""

    read: float
    """Bytes."""
    written: float
    puts: float
    gets: float
    cores: float


def compaction(load: Load, segment_bytes: float) -> Compaction:
    """A pass reads as much that is clean as that is new, and writes what is newest of each key."""
    new = load.write * load.compacted
    read = new * measured.REWRITE_RATIO.value
    written = new * (measured.REWRITE_RATIO.value - 1) + new * load.survives
    objects = written / segment_bytes
    return Compaction(read, written, 2 * objects, read / SPAN_BYTES_MAX, read / MB / measured.COMPACT.value)
