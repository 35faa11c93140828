"""What a fetch returns: never a hidden record, cut at batch ends, the first batch whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from agent.kafka.fetch.planner import Planned, Wanted, aborted_in, cut, plan_fetch
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build, check_crc, empty_batch, patch, peek, records, split
from objectstore.naming import ChunkId, SliceRef
from objectstore.transactions import Aborted


@dataclass
class Slices:
    refs: list[SliceRef]
    first_offset: int = 0

    def plan(self, offset: int, max_bytes: int) -> list[SliceRef]:
        out: list[SliceRef] = []
        for ref in self.refs:
            if ref.end_offset <= offset:
                continue
            if out and sum(r.length for r in out) + ref.length > max_bytes:
                break
            out.append(ref)
        return out


@dataclass
class View:
    handle: int = 0
    log_start: int = 0
    high_watermark: int = 0
    last_stable: int = 0
    slices: Slices = field(default_factory=lambda: Slices([]))
    ended: list[Aborted] = field(default_factory=list)

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """See coordination.state.types."""
        return [each for each in self.ended if each.marker_offset >= start and each.first_offset < end]


def batch_at(base: int, count: int, size: int) -> bytearray:
    raw = bytearray(build([NewRecord(1, None, b"x" * size)] * count))
    patch(raw, 0, base)
    return raw


def partition(slices: list[list[tuple[int, int]]], log_start: int = 0) -> tuple[View, list[memoryview]]:
    """A view of slices, each of batches of (records, value bytes), and the slices' bytes."""
    refs, buffers, offset = [], [], log_start
    for number, batches in enumerate(slices):
        base, raw = offset, bytearray()
        for count, size in batches:
            raw += batch_at(offset, count, size)
            offset += count
        refs.append(SliceRef(base, offset, ChunkId(1, number), 0, len(raw), 1))
        buffers.append(memoryview(raw))
    return View(0, log_start, offset, offset, Slices(refs)), buffers


def bases(parts: list[memoryview]) -> list[int]:
    return [peek(part, pos).base_offset for part in parts for pos, _ in split(part)]


def one(view: View, offset: int, bytes_max: int = 10**6, **kwargs: bool) -> Planned:
    return plan_fetch([Wanted(view, offset, bytes_max)], 10**6, kwargs.get("committed", False)).partitions[0]


def fetch(
    view: View, buffers: list[memoryview], offset: int, bytes_max: int = 10**6, first: bool = True
) -> list[int]:
    planned = one(view, offset, bytes_max)
    read = [buffers[ref.chunk.number] for ref in planned.slices]
    return bases(cut(planned.slices, read, planned, first))


def test_everything_from_the_offset_on_is_returned() -> None:
    view, buffers = partition([[(2, 10), (3, 10)], [(1, 10)]])
    assert fetch(view, buffers, 0) == [0, 2, 5]


def test_an_offset_inside_a_batch_returns_that_batch() -> None:
    view, buffers = partition([[(2, 10), (3, 10)], [(1, 10)]])
    assert fetch(view, buffers, 3) == [2, 5]
    assert fetch(view, buffers, 1) == [0, 2, 5]


def test_the_first_batch_is_whole_however_large_and_only_the_first() -> None:
    view, buffers = partition([[(2, 500), (3, 500)]])
    assert fetch(view, buffers, 0, bytes_max=1) == [0]
    assert fetch(view, buffers, 3, bytes_max=1) == [2]
    assert fetch(view, buffers, 0, bytes_max=1, first=False) == []


def test_limits_cut_at_batch_ends() -> None:
    view, buffers = partition([[(1, 100)] * 4])
    size = len(buffers[0]) // 4
    assert fetch(view, buffers, 0, bytes_max=3 * size) == [0, 1, 2]
    assert fetch(view, buffers, 0, bytes_max=3 * size - 1) == [0, 1]


def test_a_limit_cut_in_one_slice_never_skips_to_the_next() -> None:
    view, buffers = partition([[(1, 10), (1, 5000)], [(1, 10)]])
    assert fetch(view, buffers, 0, bytes_max=1000) == [0]


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    view, buffers = partition([[(2, 10), (3, 10)], [(1, 10)]])
    view.last_stable = 2
    planned = one(view, 0, committed=True)
    assert bases(cut(planned.slices, [buffers[r.chunk.number] for r in planned.slices], planned, True)) == [0]
    assert not one(view, 2, committed=True).slices
    assert one(view, 2, committed=True).code is Code.NONE


def test_a_reader_gets_past_what_was_aborted_and_merged_in_front_of_an_open_transaction() -> None:
    view, _ = partition([[(1, 10)], [(2, 10)]], log_start=4)
    view.log_start, view.last_stable = 0, 4
    planned = one(view, 1, committed=True)
    assert (planned.gap, planned.planned_bytes, list(planned.slices)) == (True, 61, [])
    assert not one(view, 1).gap, "uncommitted readers get what follows"
    assert not one(view, 4, committed=True).gap, "the end is no gap"
    raw = empty_batch(1, 4)
    assert (len(raw), check_crc(raw, 0, len(raw)), list(records(raw))) == (61, True, [])
    assert (peek(raw).base_offset, peek(raw).last_offset) == (1, 3)


def test_nothing_is_copied() -> None:
    view, buffers = partition([[(2, 10)], [(1, 10)]])
    planned = one(view, 0)
    parts = cut(planned.slices, buffers, planned, True)
    assert all(part.obj is buffer.obj for part, buffer in zip(parts, buffers, strict=True))


@pytest.mark.parametrize(("offset", "code"), [(9, 1), (10, 0), (13, 0), (14, 1), (-1, 1)])
def test_bounds(offset: int, code: int) -> None:
    view, _ = partition([[(3, 10)]], log_start=10)
    assert one(view, offset).code == code


def test_out_of_range_and_unknown_are_marked_so_that_a_barrier_comes_first() -> None:
    view, _ = partition([[(1, 10)]])
    assert plan_fetch([Wanted(view, 5, 100)], 100, False).out_of_range
    plan = plan_fetch(
        [Wanted(None, 0, 100, unknown_code=Code.UNKNOWN_TOPIC_ID), Wanted(view, 0, 100)], 100, False
    )
    assert plan.unknown
    assert [p.code for p in plan.partitions] == [Code.UNKNOWN_TOPIC_ID, Code.NONE]
    assert plan.waitable == [0]


def test_an_epoch_from_the_future_is_refused() -> None:
    view, _ = partition([[(1, 10)]])
    assert plan_fetch([Wanted(view, 0, 100, ahead=True)], 100, False).partitions[0].code == (
        Code.UNKNOWN_LEADER_EPOCH
    )


def test_the_response_limit_leaves_later_partitions_empty_but_not_in_error() -> None:
    first, _ = partition([[(1, 400)]])
    second, _ = partition([[(1, 400)]])
    plan = plan_fetch([Wanted(first, 0, 10**6), Wanted(second, 0, 10**6)], 100, False)
    assert [len(p.slices) for p in plan.partitions] == [1, 0]
    assert plan.partitions[1].code is Code.NONE
    assert plan.partitions[1].high_watermark == 1


def test_an_empty_first_partition_leaves_the_whole_batch_to_the_next() -> None:
    first, _ = partition([])
    second, _ = partition([[(1, 400)]])
    plan = plan_fetch([Wanted(first, 0, 1), Wanted(second, 0, 1)], 1, False)
    assert [len(p.slices) for p in plan.partitions] == [0, 1]


def test_a_partition_of_which_more_is_there_than_fits_counts_with_its_whole_limit() -> None:
    """Whole slices hardly ever fill the limit, and no poll may wait for what they leave of it."""
    view, buffers = partition([[(1, 100)]] * 4)
    size = len(buffers[0])
    for bytes_max, slices, ready, full in (
        (1, 1, size, True),  # the first is whole
        (2 * size, 2, 2 * size, True),
        (3 * size - 1, 2, 3 * size - 1, True),
        (4 * size, 4, 4 * size, False),
        (9 * size, 4, 4 * size, False),
    ):
        plan = plan_fetch([Wanted(view, 0, bytes_max)], 10**6, False)
        found = (len(plan.partitions[0].slices), plan.bytes_ready, plan.full)
        assert found == (slices, ready, full), bytes_max


def test_what_counts_as_ready_takes_no_room_from_the_other_partitions() -> None:
    (first, buffers), (second, _) = partition([[(1, 100)]] * 4), partition([[(1, 10)]])
    size = len(buffers[0])
    plan = plan_fetch([Wanted(first, 0, 3 * size - 1), Wanted(second, 0, size)], 3 * size - 1, False)
    assert [len(each.slices) for each in plan.partitions] == [2, 1]


def test_a_plan_is_full_when_nothing_could_be_added_to_any_partition() -> None:
    (first, _), (second, _) = partition([[(1, 400)]] * 2), partition([[(1, 400)]])
    one_each = [Wanted(first, 0, 1), Wanted(second, 0, 1)]
    assert plan_fetch(one_each, 1, False).full, "there is no room for the second"
    assert not plan_fetch(one_each, 10**6, False).full, "more may come for the second"
    assert not plan_fetch([Wanted(first, 0, 1), Wanted(second, 1, 1)], 1, False).full, "it is at its end"
    assert plan_fetch([Wanted(first, 0, 1), Wanted(None, 0, 1)], 1, False).full, "what is unknown waits not"


def test_a_reader_of_committed_records_does_not_count_what_is_not_yet_stable() -> None:
    view, _ = partition([[(1, 100)]] * 4)
    view.last_stable = 2
    assert not plan_fetch([Wanted(view, 0, 10**6)], 10**6, True).full
    assert plan_fetch([Wanted(view, 0, 1)], 10**6, True).full


def test_aborted_transactions_are_told_up_to_the_end_of_the_last_batch() -> None:
    """A reader that is not told of one takes its records for committed."""
    view, buffers = partition([[(2, 20), (3, 30), (1, 10)]])
    view.ended = [Aborted(7, 1, 6), Aborted(8, 4, 7), Aborted(9, 5, 8), Aborted(10, 6, 9)]
    view.high_watermark = view.last_stable = 20
    planned = replace(one(view, 0, committed=True), aborted=view.ended)
    assert [each.producer_id for each in aborted_in(planned, buffers)] == [7, 8, 9]
    first = memoryview(buffers[0])[: len(batch_at(0, 2, 20))]
    assert [each.producer_id for each in aborted_in(planned, [first])] == [7]
