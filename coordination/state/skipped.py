"""Damage that somebody decided to go on without: ranges of a partition of which only sound records count.

A range says nothing of what is sound in it: that is served, merged and written to tables as ever. It ends the
waiting for what is not (docs/operations.md, "Damaged records").
"""

from __future__ import annotations

from collections.abc import Iterator

from coordination.commands import SkipDamaged
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.types import At, Done, Partition, Refused, Result, Skipped
from objectstore.offset_ranges import joined, tiles

RANGES_MAX = 1_000  # of one partition, in the state
BY_LENGTH_MAX = 200  # characters


def skip_damaged(state: StateData, message: SkipDamaged, at: At) -> Result:
    """Note that damage in these ranges is passed over. Done's value: how many offsets were added.

    OFFSET_OUT_OF_RANGE for a range that has no offsets or ends beyond the high watermark; POLICY_VIOLATION
    where the partition would have more than RANGES_MAX. What lies below what is held
    (held.py) is left out.
    """
    handle = message.partition
    partition = state.partitions[handle] if handle < len(state.partitions) else None
    if partition is None:
        return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"no partition has the handle {handle}")
    refusal = _malformed(partition, message)
    if refusal is not None:
        return refusal
    new = list(_new(partition, message))
    if len(partition.skipped) + len(new) > RANGES_MAX:
        return Refused(
            Code.POLICY_VIOLATION,
            f"partition {handle} has {len(partition.skipped)} skipped ranges, with {len(new)} more "
            f"it would have over {RANGES_MAX}: delete the records up to the last damage instead",
        )
    added = [Skipped(start, end, at.now_ms, message.by) for start, end in new]
    partition.skipped = tuple(sorted((*partition.skipped, *added)))
    at.touched.append(handle)
    return Done(sum(end - start for start, end in new))


def forget_below(partition: Partition, offset: int) -> None:
    """Leave out what lies below the offset, which is let go of."""
    if partition.skipped and partition.skipped[0].start < offset:
        partition.skipped = tuple(
            each._replace(start=max(each.start, offset)) for each in partition.skipped if each.end > offset
        )


def _new(partition: Partition, message: SkipDamaged) -> Iterator[tuple[int, int]]:
    """The offsets of the ranges that are not skipped yet, in order."""
    for start, end in joined(zip(message.start, message.end, strict=True)):
        for tile in tiles(max(start, partition.held_start), end, partition.skipped):
            if not tile.covered:
                yield tile.start, tile.end


def _malformed(partition: Partition, message: SkipDamaged) -> Refused | None:
    ranges = len(message.start)
    if not ranges or ranges != len(message.end) or ranges > RANGES_MAX:
        columns = f"{ranges} starts and {len(message.end)} ends"
        return Refused(Code.INVALID_REQUEST, f"SkipDamaged: {columns}: give 1 to {RANGES_MAX} ranges")
    if len(message.by) > BY_LENGTH_MAX:
        return Refused(Code.INVALID_REQUEST, f"by: at most {BY_LENGTH_MAX} characters are taken")
    for start, end in zip(message.start, message.end, strict=True):
        if not 0 <= start < end <= partition.high_watermark:
            return Refused(
                Code.OFFSET_OUT_OF_RANGE,
                f"partition {partition.handle}: [{start}, {end}) is no range of offsets below its end, "
                f"{partition.high_watermark}",
            )
    return None
