"""Which files are made one: few are left, each row is written anew a few times, no stretch is torn."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from iceberg.small_files import FileSizes, LiveFile, chosen, overlapping, within

SIZES = FileSizes()
MIB = 1 << 20
DAYS_7 = 7 * 86_400 // 5
"""Commits of a week, one each 5 s."""
HOUR = 3_600 // 5
"""Commits of an hour."""
FOOTER = 4_000
"""Bytes of a file beside its rows, about."""

Draw = Callable[[random.Random], int]


def simulate(commits: int, rows_of: Draw, row_bytes: int, aged_each: int) -> tuple[int, float]:
    """The most files of one partition at any time, and how often a row was written anew on average.

    `aged_each`: commits between two looks with which few files are enough.
    """
    chance, offset, written, new = random.Random(1), 0, 0, 0
    files: list[LiveFile] = []
    most = 0
    for number in range(commits):
        rows = rows_of(chance)
        size = FOOTER + rows * row_bytes
        files.append(LiveFile(0, offset, offset + rows - 1, rows, size, ""))
        offset, new = offset + rows, new + 1
        aged = number % aged_each == aged_each - 1
        if new == SIZES.merged_at or aged:
            new = 0
            for merge in chosen(files, SIZES, aged=aged):
                at = files.index(merge[0])
                assert files[at : at + len(merge)] == merge, "neighbours, in order"
                rows = sum(each.rows for each in merge)
                size = max(FOOTER, sum(each.size for each in merge) - FOOTER * (len(merge) - 1))
                assert size <= SIZES.target_bytes
                files[at : at + len(merge)] = [LiveFile(0, merge[0].first, merge[-1].last, rows, size, "")]
                written += rows
        most = max(most, len(files))
    return most, written / offset


@pytest.mark.parametrize(
    ("commits", "rows_of", "row_bytes", "aged_each", "times"),
    [
        (DAYS_7, lambda chance: 1, 10, HOUR, 8.0),
        (DAYS_7, lambda chance: 500, 100, HOUR, 6.0),
        (DAYS_7 // 8, lambda chance: int(10 ** chance.uniform(0, 4)), 100, HOUR, 6.0),
        (DAYS_7 // 8, lambda chance: 20_000 if chance.random() < 0.05 else 1, 100, HOUR, 6.0),
        (2_000, lambda chance: 50_000, 100, HOUR, 2.0),
        (365 * 24, lambda chance: 1, 100, 1, 8.0),
    ],
    ids=["one-row", "steady", "any-size", "bursts", "heavy", "a-year-of-one-each-hour"],
)
def test_a_week_leaves_few_files(
    commits: int, rows_of: Draw, row_bytes: int, aged_each: int, times: float
) -> None:
    most, factor = simulate(commits, rows_of, row_bytes, aged_each)
    print(f"at most {most} files, each row written anew {factor:.2f} times")
    assert most <= 200
    assert 0.5 < factor <= times


def files(*sizes: tuple[int, int], partition: int = 0) -> list[LiveFile]:
    """Files of so many rows and bytes, one behind the other."""
    found, offset = [], 0
    for rows, size in sizes:
        found.append(LiveFile(partition, offset, offset + rows - 1, rows, size, f"{partition}-{offset}"))
        offset += rows + 3  # offsets without rows: markers of transactions
    return found


def test_too_few_small_files_stay_as_they_are() -> None:
    assert list(chosen(files(*[(1, 1000)] * 15), SIZES)) == []
    assert [len(each) for each in chosen(files(*[(1, 1000)] * 16), SIZES)] == [16]


def test_those_that_have_waited_for_long_need_not_be_many() -> None:
    few = files((1, 1000), (1, 1000), (1, 1000))
    assert list(chosen(few, SIZES)) == []
    assert [len(each) for each in chosen(few, SIZES, aged=True)] == [3]
    assert list(chosen(files((9, 2000), (4, 1000)), SIZES, aged=True)) == [], "mostly the same again"
    tail = files((9, 2000), (4, 1000), (1, 1000), (3, 1000))
    assert [[one.rows for one in each] for each in chosen(tail, SIZES, aged=True)] == [[4, 1, 3]]
    assert list(chosen(files((9, 70 * MIB), (4, 70 * MIB)), SIZES, aged=True)) == [], "they are large"


def test_small_files_do_not_carry_a_larger_one_along() -> None:
    (found,) = chosen(files((1000, MIB), *[(1, 1000)] * 20), SIZES)
    assert [each.rows for each in found] == [1] * 20


def test_nothing_is_merged_past_a_large_file_or_another_partition() -> None:
    some = files(*[(1, 1000)] * 9, (900, 70 * MIB), *[(1, 1000)] * 9)
    assert list(chosen([*some, *files(*[(1, 1000)] * 9, partition=1)], SIZES)) == []


def test_two_files_are_enough_for_a_large_one() -> None:
    assert [len(each) for each in chosen(files((50, 40 * MIB), (50, 40 * MIB)), SIZES)] == [2]
    assert list(chosen(files((500, 60 * MIB), (5, 6 * MIB)), SIZES)) == [], "mostly the same again"


def test_no_file_is_made_larger_than_the_target_or_of_too_many() -> None:
    for merge in chosen(files(*[(100, 30 * MIB)] * 40), SIZES):
        assert sum(each.size for each in merge) <= SIZES.target_bytes
    pieces = [len(each) for each in chosen(files(*[(1, 1000)] * 2500), SIZES)]
    assert pieces == [1000, 1000, 500]


def test_whatever_their_sizes_a_long_stretch_gets_shorter() -> None:
    """The ruler's sequence: no neighbours have many times the rows of their largest."""
    some = files(*[(((at & -at) << 10) or 1, 1000) for at in range(1, 400)])
    assert [len(each) for each in chosen(some, FileSizes(merged_at=40))] == [40]
    large = files(*[((1 << (at % 20)), 60 * MIB) for at in range(400)])
    for merge in chosen(large, SIZES):
        assert sum(each.size for each in merge) <= SIZES.target_bytes


def test_one_turn_is_bounded_and_does_something() -> None:
    large = [files(*[(1, 50 * MIB)] * 8) for _ in range(3)]
    assert within(large, SIZES) == (large[:1], True)
    small = [files(*[(1, 1000)] * 900) for _ in range(3)]
    assert within(small, SIZES) == (small[:2], True)
    assert within(small[:2], SIZES) == (small[:2], False)


def test_files_that_lie_across_others_are_known() -> None:
    """Another engine may have merged files that were no neighbours."""

    def file(first: int, last: int) -> LiveFile:
        return LiveFile(0, first, last, last - first + 1, 1, f"{first}-{last}")

    plain = [file(0, 4), file(5, 9), file(10, 10)]
    assert overlapping(plain) == set()
    assert overlapping([file(0, 20), file(5, 9), file(11, 12), file(21, 30)]) == {"0-20", "5-9", "11-12"}
    assert overlapping([file(0, 5), file(5, 9)]) == {"0-5", "5-9"}
