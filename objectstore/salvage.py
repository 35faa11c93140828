"""What is left of a slice whose bytes are not what was committed: its sound batches; the rest is lost.

A batch's CRC covers how many offsets it takes, so in a chunk every batch can be judged by itself for as long
as lengths and counts add up to what was committed; where they do not, nothing behind the first bad batch is
believed. In a segment's block the offsets are covered by the block's CRC only: it is lost as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from objectstore.batch import Buffer, CorruptBatch, check_crc, patch, peek
from objectstore.naming import SegmentId, SliceRef


class Run(NamedTuple):
    """Sound batches side by side: where they are, and their bytes with the offsets that the log gave them."""

    ref: SliceRef
    data: memoryview


class _Batch(NamedTuple):
    position: int
    stop: int
    base_offset: int
    end_offset: int
    sound: bool


def sound_runs(data: Buffer, wanted: SliceRef) -> tuple[Run, ...]:
    """The sound batches of a damaged slice, in order, those side by side together."""
    if isinstance(wanted.chunk, SegmentId):
        return ()
    found = list(_batches(data, wanted))
    reached = bool(found) and found[-1].stop == len(data) == wanted.length
    if reached and found[-1].end_offset == wanted.end_offset:
        return tuple(_runs(data, wanted, found))
    sound = list(takewhile(lambda each: each.sound, found))
    if reached and len(sound) == len(found):
        return ()  # whole, and yet not what was committed: somebody else's bytes
    return tuple(_runs(data, wanted, sound))


def lost(wanted: SliceRef, runs: Sequence[Run]) -> list[tuple[int, int]]:
    """The offsets [start, end) of a slice that no run holds, in order."""
    gaps, due = [], wanted.base_offset
    for run in runs:
        if run.ref.base_offset > due:
            gaps.append((due, run.ref.base_offset))
        due = run.ref.end_offset
    if due < wanted.end_offset:
        gaps.append((due, wanted.end_offset))
    return gaps


def _batches(data: Buffer, wanted: SliceRef) -> Iterator[_Batch]:
    """Batch by batch for as long as lengths and counts may be true."""
    position, offset = 0, wanted.base_offset
    while position < len(data):
        try:
            header = peek(data, position)
        except CorruptBatch:
            return
        stop, end = position + header.size, offset + header.last_offset_delta + 1
        if not offset < end <= wanted.end_offset:
            return
        yield _Batch(position, stop, offset, end, check_crc(data, position, stop))
        position, offset = stop, end


def _runs(data: Buffer, wanted: SliceRef, found: Sequence[_Batch]) -> Iterator[Run]:
    first = 0
    while first < len(found):
        stop = first
        while stop < len(found) and found[stop].sound:
            stop += 1
        if stop > first:
            yield _run(data, wanted, found[first:stop])
        first = stop + 1


def _run(data: Buffer, wanted: SliceRef, batches: Sequence[_Batch]) -> Run:
    begin, end = batches[0].position, batches[-1].stop
    out = bytearray(memoryview(data)[begin:end])
    for each in batches:
        patch(out, each.position - begin, each.base_offset)
    ref = wanted._replace(
        base_offset=batches[0].base_offset,
        end_offset=batches[-1].end_offset,
        position=wanted.position + begin,
        length=end - begin,
    )
    return Run(ref, memoryview(out).toreadonly())
