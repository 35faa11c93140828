"""What apply notes of damage that is passed over (coordination/state/skipped.py)."""

from __future__ import annotations

import pytest

from coordination.commands import MoveLogStart, SkipDamaged
from coordination.kafka_codes import Code
from coordination.state import Done, Refused
from coordination.state.skipped import BY_LENGTH_MAX, RANGES_MAX
from tests.unit.coordination.kit import A, Script


def skip(script: Script, *ranges: tuple[int, int], handle: int = 0, by: str = "me") -> object:
    """What the command answers."""
    starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
    return script.one(A, SkipDamaged(partition=handle, start=starts, end=ends, by=by))


def ranges(script: Script, handle: int = 0) -> list[tuple[int, int, str]]:
    partition = script.state.partitions[handle]
    assert partition is not None
    return [(each.start, each.end, each.by) for each in partition.skipped]


def filled(script: Script, offsets: int = 100) -> None:
    script.topic(A, "t")
    script.commit(A, (0, offsets))


def test_ranges_stay_in_order_and_apart_with_who_said_them_first(script: Script) -> None:
    filled(script)
    assert skip(script, (50, 60), (10, 20)) == Done(20)
    assert skip(script, (15, 55), (70, 71), (70, 72), by="you") == Done(32)
    assert ranges(script) == [(10, 20, "me"), (20, 50, "you"), (50, 60, "me"), (70, 72, "you")]
    assert skip(script, (0, 72), by="they") == Done(20)
    assert [(start, end) for start, end, by in ranges(script) if by == "they"] == [(0, 10), (60, 70)]
    script.through_snapshot()
    assert len(ranges(script)) == 6


def test_what_lies_below_the_log_start_is_left_out_and_leaves(script: Script) -> None:
    filled(script)
    skip(script, (10, 20), (30, 40))
    script.one(A, MoveLogStart(partition=[0], offset=[15]))
    assert ranges(script) == [(15, 20, "me"), (30, 40, "me")]
    script.one(A, MoveLogStart(partition=[0], offset=[35]))
    assert ranges(script) == [(35, 40, "me")]
    assert skip(script, (10, 36)) == Done(0)
    assert ranges(script) == [(35, 40, "me")]
    skip(script, (50, 60))
    script.one(A, MoveLogStart(partition=[0], offset=[40]))
    assert ranges(script) == [(50, 60, "me")], "nothing is left of a range that ends there"


@pytest.mark.parametrize("wanted", [(90, 101), (100, 101), (20, 20), (20, 10), (-1, 10)])
def test_only_offsets_that_there_are_can_be_passed_over(script: Script, wanted: tuple[int, int]) -> None:
    """A range beyond the end would pass over records that are not written yet."""
    filled(script)
    refused = skip(script, (1, 2), wanted)
    assert isinstance(refused, Refused)
    assert refused.code is Code.OFFSET_OUT_OF_RANGE
    assert ranges(script) == []


def test_it_is_bounded(script: Script) -> None:
    filled(script, 4 * RANGES_MAX)
    most = [(4 * number, 4 * number + 1) for number in range(RANGES_MAX)]
    assert skip(script, *most, (4 * RANGES_MAX - 1, 4 * RANGES_MAX)) == Refused(
        Code.INVALID_REQUEST,
        f"SkipDamaged: {RANGES_MAX + 1} starts and {RANGES_MAX + 1} ends: give 1 to {RANGES_MAX} ranges",
    )
    assert skip(script, *most) == Done(RANGES_MAX)
    more = skip(script, (2, 3))
    assert isinstance(more, Refused)
    assert more.code is Code.POLICY_VIOLATION
    assert skip(script, *most) == Done(0), "nothing new is nothing more"
    long = skip(script, (2, 3), by="x" * (BY_LENGTH_MAX + 1))
    assert isinstance(long, Refused)
    assert long.code is Code.INVALID_REQUEST


def test_pollers_hear_of_it(script: Script) -> None:
    filled(script)
    applied = script.apply(A, SkipDamaged(partition=0, start=[1], end=[2]))
    assert applied.touched == [0]
