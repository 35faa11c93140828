"""What a Fetch may return. Pure: a state's partitions and a request in, slices and errors out.

Rules (docs/architecture.md, "Fetch never hides a record"; KIP-74): size limits cut at batch ends and never
skip; the first batch of a response is returned whole however large it is; an offset inside a batch returns
that batch. Sizes are bytes, offsets are log offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coordination.kafka_codes import Code
from objectstore.batch import HEADER_BYTES
from objectstore.naming import SliceRef
from objectstore.transactions import Aborted

RECORDS_EPOCH = 0  # the leader epoch of all records: none is ever truncated

_LENGTH = struct.Struct(">i").unpack_from  # batch length, at 8: what follows it
_LAST_DELTA = struct.Struct(">i").unpack_from  # last offset delta, at 23
_BASE = struct.Struct(">q").unpack_from
_LENGTH_AT, _LAST_DELTA_AT, _LENGTH_PREFIX = 8, 23, 12


class SlicePlan(Protocol):
    """Where a partition's records are, as far as a fetch reads it."""

    @property
    def first_offset(self) -> int:
        """Records below it are merged: they are planned by `objectstore.merged`, not by this."""
        ...

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        """Slices covering `offset` onwards up to `max_bytes`, the first always."""
        ...


class Named(Protocol):
    """What has a name: a topic."""

    @property
    def name(self) -> str:
        """The name."""
        ...


class PartitionView(Protocol):
    """The part of a replicated partition that a fetch reads."""

    handle: int
    log_start: int

    @property
    def topic(self) -> Named:
        """The topic that it is of."""
        ...

    @property
    def high_watermark(self) -> int:
        """The offset after the last committed record."""
        ...

    @property
    def last_stable(self) -> int:
        """The offset below which every transaction has ended."""
        ...

    @property
    def slices(self) -> SlicePlan:
        """The partition's slices."""
        ...

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """Aborted transactions with records in [start, end), in the order of their ends."""
        ...


@dataclass(slots=True)
class Wanted:
    """One partition of a request. `partition` is None when the topic or partition is unknown.

    `ahead`: who asks has heard of a leader epoch that this agent has not. `older` plans a merged range where
    the partition's own slices begin above `offset`; `failure` says why it could not be looked up.
    `start`: from where on it may read, where that is below the log start (of what is held,
    coordination/state/held.py).
    """

    partition: PartitionView | None
    offset: int
    bytes_max: int
    ahead: bool = False
    unknown_code: Code = Code.UNKNOWN_TOPIC_OR_PARTITION
    older: SlicePlan | None = None
    failure: Exception | None = None
    start: int | None = None


@dataclass(slots=True)
class Planned:
    """What one partition answers with: an error, or slices to read up to `bytes_max`."""

    wanted: Wanted
    code: Code
    high_watermark: int = -1
    last_stable: int = -1
    log_start: int = -1
    slices: Sequence[SliceRef] = ()
    bytes_max: int = 0
    end_offset: int = 0
    aborted: Sequence[Aborted] = ()
    """Aborted transactions at or after the wanted offset, for whoever reads committed records only."""
    failed: bool = False
    """Where its records are could not be looked up: `wanted.failure`."""
    merged: bool = False
    """Its records are in a merged range that has to be looked up first: no slices yet."""
    gap: bool = False
    """No record is left from the wanted offset to `end_offset`, and the reader has to get past that.

    What was there was aborted and is merged; what follows is of a transaction that is open.
    """
    full: bool = False
    """There is more than the answer takes of it: what is written while a poll waits adds nothing."""

    @property
    def planned_bytes(self) -> int:
        """Bytes of the slices: what the answer holds at most."""
        return HEADER_BYTES if self.gap else sum(ref.length for ref in self.slices)

    @property
    def ready_bytes(self) -> int:
        """What counts towards a request's minimum: its whole limit where more is there, as in Kafka.

        The slices alone nearly fill it, and no poll could wait for the rest.
        """
        return max(self.planned_bytes, self.bytes_max) if self.full else self.planned_bytes


@dataclass(slots=True)
class Plan:
    """All partitions of a request in its order, with what they hold together."""

    partitions: list[Planned]
    bytes_ready: int
    """What counts towards the request's minimum."""
    out_of_range: bool
    """Some offset lies outside what this state knows: true only after a read barrier."""
    unknown: bool
    """Some topic or partition is not in this state: true only after a read barrier."""
    refused: bool
    """A known partition answers with an error, which ends the wait; an unknown one does not."""
    quiet: int = 0
    """Partitions that the request waits for too and that have nothing now (agent/kafka/fetch/sessions.py)."""

    @property
    def failed(self) -> bool:
        """Where some partition's records are could not be looked up, which ends the wait."""
        return any(planned.failed for planned in self.partitions)

    @property
    def waitable(self) -> list[int]:
        """Handles whose next record could satisfy the request."""
        return [p.wanted.partition.handle for p in self.partitions if p.wanted.partition and not p.code]

    @property
    def waits(self) -> bool:
        """Whether there is anything to wait for."""
        return self.quiet > 0 or any(p.wanted.partition and not p.code for p in self.partitions)

    @property
    def full(self) -> bool:
        """Whether no partition that could be waited for has room for more."""
        return not self.quiet and all(planned.full or planned.code for planned in self.partitions)

    @property
    def merged(self) -> list[Planned]:
        """Partitions whose merged ranges have to be looked up before there is a plan for them."""
        return [planned for planned in self.partitions if planned.merged]


def plan_fetch(wanted: Sequence[Wanted], bytes_max: int, read_committed: bool) -> Plan:
    """Slices per partition within `bytes_max`; the first partition with records gets one batch at least."""
    plan = Plan([], 0, False, False, False)
    room = bytes_max
    for want in wanted:
        planned = _plan_partition(want, room, room == bytes_max, read_committed)
        plan.partitions.append(planned)
        plan.bytes_ready += planned.ready_bytes
        room -= planned.planned_bytes
        plan.out_of_range |= planned.code == Code.OFFSET_OUT_OF_RANGE
        plan.unknown |= want.partition is None
        plan.refused |= planned.code != Code.NONE and want.partition is not None
    return plan


def _plan_partition(want: Wanted, room: int, first: bool, read_committed: bool) -> Planned:
    partition = want.partition
    if partition is None:
        return Planned(want, want.unknown_code)
    if want.ahead:
        return Planned(want, Code.UNKNOWN_LEADER_EPOCH)
    planned = Planned(want, Code.NONE, partition.high_watermark, partition.last_stable, partition.log_start)
    start = partition.log_start if want.start is None else want.start
    if not start <= want.offset <= partition.high_watermark:
        planned.code = Code.OFFSET_OUT_OF_RANGE
        return planned
    end = partition.last_stable if read_committed else partition.high_watermark
    planned.end_offset = end
    limit = min(want.bytes_max, room)
    if want.offset >= end:
        return planned
    if limit <= 0 and not first:
        planned.full = True
        return planned
    if want.failure is not None:
        planned.code, planned.failed = Code.KAFKA_STORAGE_ERROR, True
        return planned
    source = want.older or partition.slices
    planned.bytes_max = limit
    if want.offset < source.first_offset:
        planned.merged = True
        return planned
    slices = source.plan(want.offset, max(limit, 1))
    planned.slices = [ref for ref in slices if ref.base_offset < end]
    planned.gap = len(slices) > 0 and not planned.slices
    planned.full = len(planned.slices) > 0 and planned.slices[-1].end_offset < end
    if read_committed and planned.slices:
        planned.aborted = partition.aborted(want.offset, planned.slices[-1].end_offset)
    return planned


def cut(
    refs: Sequence[SliceRef], buffers: Sequence[memoryview], planned: Planned, first_whole: bool
) -> list[memoryview]:
    """Whole batches from the one that holds the wanted offset, below `planned.end_offset`, within its bytes.

    `buffers` hold the slices `refs` in offset order, base offsets patched. With `first_whole` the first
    batch is returned however large. Nothing is copied.
    """
    offset, end_offset = planned.wanted.offset, planned.end_offset
    out: list[memoryview] = []
    room = planned.bytes_max
    for ref, buffer in zip(refs, buffers, strict=True):
        if offset <= ref.base_offset and ref.end_offset <= end_offset and ref.length <= room:
            out.append(buffer)
            room -= ref.length
            continue
        start, stop, more = _cut_slice(buffer, offset, end_offset, room, first_whole and not out)
        if stop > start:
            out.append(buffer[start:stop])
            room -= stop - start
        if not more:
            break
    return out


def aborted_in(planned: Planned, records: Sequence[memoryview]) -> list[Aborted]:
    """The aborted transactions that concern the records of an answer, in the order of their ends."""
    if not planned.aborted or not records:
        return []
    last, position, end = records[-1], 0, 0
    while position < len(last):
        end = _BASE(last, position)[0] + _LAST_DELTA(last, position + _LAST_DELTA_AT)[0] + 1
        position += _LENGTH_PREFIX + _LENGTH(last, position + _LENGTH_AT)[0]
    return [each for each in planned.aborted if each.first_offset < end]


def _cut_slice(
    buffer: memoryview, offset: int, end_offset: int, room: int, first_whole: bool
) -> tuple[int, int, bool]:
    """(start, stop, go on) of the batches to return from one slice."""
    size, position = len(buffer), 0
    start = stop = -1
    while position < size:
        base = _BASE(buffer, position)[0]
        following = position + _LENGTH_PREFIX + _LENGTH(buffer, position + _LENGTH_AT)[0]
        if base + _LAST_DELTA(buffer, position + _LAST_DELTA_AT)[0] < offset:
            position = following
            continue
        if base >= end_offset:
            return start, stop, False
        if start < 0:
            start = stop = position
        if following - start > room and not (first_whole and stop == start):
            return start, stop, False
        position = stop = following
    return start, stop, True
