"""Records below the log start that can come back: gone for readers, kept whole until their time is over.

MoveLogStart moves the log start at once, and what lies between it and `Partition.held_start` stays referred
to for floe.records.grace.ms (RECORDS_GRACE, levels.py): rows, segments, aborted transactions, skipped damage,
spans of bindings. Merging and compaction go on over it as if it were there. UndeleteRecords moves the log
start back; PurgeRecords moves `held_start` up, after the time or because somebody wants the records gone now.

What is held is a prefix of what is there, so an earlier move goes first: one whose time would end before that
of an earlier one waits for it. Moves whose times end at about the same moment are one range, of HELD_MAX.
"""

from __future__ import annotations

from coordination.commands import PurgeRecords, UndeleteRecords
from coordination.kafka_codes import Code
from coordination.state import bounds, skipped, spans
from coordination.state.data import StateData
from coordination.state.expiry import too_soon
from coordination.state.levels import RECORDS_GRACE
from coordination.state.segments import drop_merged
from coordination.state.types import At, Done, Held, Partition, Refused, Result, Topic
from coordination.topic_configs import effective_int

GRACE = "floe.records.grace.ms"
HELD_MAX = 16  # ranges of one partition; what more there would be joins the last one
ROUNDED_TO = 8  # times end at multiples of this part of the grace: so much longer is held at most
PARTITIONS_AT_ONCE_MAX = 1_000  # that one UndeleteRecords or PurgeRecords names
ALL = -1  # as an offset: all that is held


def grace_ms(state: StateData, topic: Topic) -> int:
    """For how long records that go now are held; 0: not at all."""
    if state.feature_level < RECORDS_GRACE:
        return 0
    return effective_int(GRACE, topic.configs, state.cluster_configs)


def move(state: StateData, partition: Partition, offset: int, at: At) -> None:
    """Move the log start up to `offset`, which is above it. What lies below is held, or let go of."""
    start, partition.log_start = partition.log_start, offset
    grace = grace_ms(state, partition.topic)
    if not grace and not partition.held:
        _let_go(state, partition, offset, at)
        return
    partition.held = _with(partition.held, Held(start, offset, _until(at.now_ms, grace)))
    state.holding[partition.handle] = partition


def _until(now_ms: int, grace: int) -> int:
    """When the grace of now is over, rounded up."""
    step = max(grace // ROUNDED_TO, 1)
    return bounds.EXPIRE_MS.cut(-(-(now_ms + grace) // step) * step)


def _with(held: tuple[Held, ...], new: Held) -> tuple[Held, ...]:
    if not held:
        return (new,)
    last, until_ms = held[-1], max(held[-1].until_ms, new.until_ms)
    if last.until_ms == until_ms or len(held) >= HELD_MAX:
        return (*held[:-1], Held(last.start, new.end, until_ms))
    return (*held, new._replace(until_ms=until_ms))


def _let_go(state: StateData, partition: Partition, offset: int, at: At) -> None:
    """Let go of everything below `offset`."""
    if partition.merged is not None and offset >= partition.merged.end_offset:
        drop_merged(state, partition, at.now_ms)
    state.chunks.release(partition.slices.trim(offset), at.now_ms)
    if partition.transactions is not None:
        partition.transactions.forget_below(offset)
    skipped.forget_below(partition, offset)
    spans.forget_below(partition, offset)


def undelete_records(state: StateData, message: UndeleteRecords, at: At) -> Result:
    """Move log starts back to where records are held, of all partitions or of none.

    Done's value: the log start of each.
    """
    refused = _malformed("UndeleteRecords", message)
    if refused is not None:
        return refused
    found: list[tuple[Partition, int]] = []
    for handle, offset in zip(message.partition, message.offset, strict=True):
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is None:
            return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"no partition has the handle {handle}")
        start = partition.held_start if offset == ALL else offset
        refused = _refusal(partition, start)
        if refused is not None:
            return refused
        found.append((partition, start))
    for partition, start in found:
        _move_back(state, partition, start)
        at.touched.append(partition.handle)
    return Done(tuple(partition.log_start for partition, _ in found))


def _refusal(partition: Partition, start: int) -> Refused | None:
    """Why the log start cannot move back to `start`; None when it can."""
    name = f"{partition.topic.name}-{partition.index}"
    if not partition.held_start <= start <= partition.log_start:
        held = f"held are the offsets {partition.held_start} to {partition.log_start} (exclusive)"
        return Refused(Code.OFFSET_OUT_OF_RANGE, f"{name}: to {start}: {held}: name one of them")
    if max(start, partition.settled) < partition.last_stable:
        until = f"from offset {partition.settled} on there are records of a transaction that is open"
        return Refused(Code.CONCURRENT_TRANSACTIONS, f"{name}: {until}: ask again when it has ended")
    return None


def _move_back(state: StateData, partition: Partition, start: int) -> None:
    partition.held = tuple(
        each._replace(end=min(each.end, start)) for each in partition.held if each.start < start
    )
    partition.log_start = start
    if not partition.held:
        state.holding.pop(partition.handle, None)


def purge_records(state: StateData, message: PurgeRecords, at: At) -> Result:
    """Let go of records that are held: of those below the offsets, or those whose time is over.

    Done's value: how many offsets they took. Log starts stay.
    """
    refused = _malformed("PurgeRecords", message)
    if refused is None and message.judged_ms:
        refused = too_soon(state, message.judged_ms)
    if refused is not None:
        return refused
    offsets = message.offset or [ALL] * len(message.partition)
    gone = 0
    for handle, offset in zip(message.partition, offsets, strict=True):
        partition = state.holding.get(handle)
        if partition is None:
            continue
        if message.judged_ms:
            end = over(partition, message.judged_ms)
        else:
            end = partition.log_start if offset == ALL else min(offset, partition.log_start)
        gone += _purge(state, partition, end, at)
    return Done(gone)


def over(partition: Partition, now_ms: int) -> int:
    """Below which offset the time of what is held is over; the held start where of nothing."""
    end = partition.held_start
    for each in partition.held:
        if each.until_ms > now_ms:
            break
        end = each.end
    return end


def _purge(state: StateData, partition: Partition, end: int, at: At) -> int:
    """Let go of what is held below `end`; how many offsets that were."""
    start = partition.held_start
    if end <= start:
        return 0
    partition.held = tuple(
        each._replace(start=max(each.start, end)) for each in partition.held if each.end > end
    )
    if not partition.held:
        del state.holding[partition.handle]
    _let_go(state, partition, end, at)
    return end - start


def _malformed(name: str, message: UndeleteRecords | PurgeRecords) -> Refused | None:
    """The refusal of what nobody could have meant."""
    count, offsets = len(message.partition), len(message.offset)
    judged = isinstance(message, PurgeRecords) and message.judged_ms and not offsets
    if not 0 < count <= PARTITIONS_AT_ONCE_MAX or (offsets != count and not judged):
        columns = f"{count} partitions and {offsets} offsets"
        return Refused(
            Code.INVALID_REQUEST, f"{name}: {columns}: name 1 to {PARTITIONS_AT_ONCE_MAX}, an offset for each"
        )
    return None


def held_bytes(partition: Partition) -> int:
    """Record bytes that are held below the log start: exact in the tail, of what is merged by its share."""
    if not partition.held:
        return 0
    merged, start, end = partition.merged, partition.held_start, partition.log_start
    found = partition.slices.bytes_below(end)
    if merged is not None and merged.end_offset > merged.start_offset:
        offsets = min(end, merged.end_offset) - max(start, merged.start_offset)
        found += merged.size_bytes * max(offsets, 0) // (merged.end_offset - merged.start_offset)
    return found
