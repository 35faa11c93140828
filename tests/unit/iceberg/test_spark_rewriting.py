"""Which files a maintenance job in Spark makes one, against what Iceberg selects by the job's condition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iceberg.groups import Group
from iceberg.small_files import LiveFile, overlapping
from iceberg.spark.rewriting import DataFile, Sizes, Step, steps

SIZES = Sizes(target_bytes=100, files_min=3, step_bytes_max=300)
SORTED = replace(SIZES, is_sorted=True)
SMALL, LARGE = 10, 60


def files(*sizes: int, values: str = "") -> list[DataFile]:
    """Neighbours of ten offsets each, in one group."""
    return [DataFile(size, 0, values, 0, 10 * at, 10 * at + 9) for at, size in enumerate(sizes)]


def ordered(some: Sequence[DataFile]) -> list[DataFile]:
    return sorted(some, key=lambda each: (each.partition, each.first))


@pytest.mark.parametrize(
    ("given_files", "due"),
    [
        (files(SMALL, SMALL), []),
        (files(SMALL, SMALL, SMALL), [(0, 20, 3)]),
        (files(49, 49, 49), [(0, 20, 3)]),
        (files(SMALL, SMALL, LARGE, SMALL), []),
        (files(SMALL, SMALL, SMALL, LARGE, SMALL, SMALL, SMALL), [(0, 20, 3), (40, 60, 3)]),
        (files(*[40] * 9), [(0, 60, 7)]),
    ],
)
def test_small_neighbours_become_one_when_they_are_worth_it(
    given_files: list[DataFile], due: list[tuple[int, int, int]]
) -> None:
    found = [(each.first, each.last, each.files) for each in steps(given_files, SIZES)]
    assert found == due


def test_two_that_are_larger_than_the_target_together_are_worth_it_and_other_values_are_not_counted() -> None:
    sizes = Sizes(target_bytes=100, files_min=5)
    assert [each.files for each in steps(files(49, 49), sizes)] == []
    assert [each.files for each in steps(files(49, 49, 3), sizes)] == [3]
    mixed = [DataFile(49, 0, f"{at % 3}", 0, at, at) for at in range(6)]
    assert [*steps(mixed, sizes)] == []


@pytest.mark.parametrize(
    ("given_files", "due"),
    [
        (files(*[SMALL] * 12), [(0, 90, 10)]),
        (files(49, 49, 49, 49), [(0, 10, 2), (20, 30, 2)]),
        (files(20, 20), []),
        (files(20, 31), [(0, 10, 2)]),
        (files(1, 1, LARGE, 49), []),
    ],
)
def test_a_step_of_a_table_sorted_otherwise_makes_one_file(
    given_files: list[DataFile], due: list[tuple[int, int, int]]
) -> None:
    found = [(each.first, each.last, each.files) for each in steps(given_files, SORTED)]
    assert found == due


def test_a_file_of_another_spec_that_the_condition_would_select_keeps_the_step_away() -> None:
    between = [DataFile(SMALL, 1, "b", 0, at, at) for at in (10, 11, 12)]
    across = DataFile(SMALL, 0, "", 0, 0, 90)
    assert [each.spec_id for each in steps(between, SIZES)] == [1]
    assert [*steps([across, *between], SIZES)] == []


def written(seed: int) -> list[DataFile]:
    """A partition as Floe writes it: commits, each of some values of the spec of then, of which neighbours of
    one value became one here and there.
    """
    draw, at, spec = random.Random(seed), 0, 0
    own: dict[tuple[int, str], list[DataFile]] = {}
    for _ in range(draw.randrange(1, 40)):
        spec += draw.random() < 0.1
        count = draw.randrange(1, 12)
        offsets: dict[str, list[int]] = {}
        for offset in range(at, at + count):
            offsets.setdefault(draw.choice("abc"[: 1 + seed % 3]), []).append(offset)
        at += count
        for values, some in offsets.items():
            size = draw.randrange(1, 49)
            file = DataFile(size, spec, values, 0, some[0], some[-1])
            own.setdefault(file.group, []).append(file)
    found: list[DataFile] = []
    for some in own.values():
        while some:
            piece = [some.pop(0) for _ in range(min(len(some), draw.choice((1, 1, 1, 4))))]
            size = sum(each.size for each in piece)
            found.append(piece[0]._replace(size=size, last=piece[-1].last))
    return ordered(found)


def selected(there: Sequence[DataFile], step: Step) -> list[DataFile]:
    """What Iceberg takes for the condition by the files' bounds, of small ones."""
    return [
        each
        for each in there
        if each.size < SIZES.small_below and each.first <= step.last and each.last >= step.first
    ]


def done(there: Sequence[DataFile], step: Step, sizes: Sizes) -> list[DataFile]:
    """The table behind a step: Iceberg's groups that have enough files, or bytes, became one.

    Of a sorted table each becomes a single file, and all that have two files do.
    """
    taken = selected(there, step)
    assert {each.spec_id for each in taken} == {step.spec_id}
    left = [each for each in there if each not in taken]
    for group in {each.group for each in taken}:
        some = [each for each in taken if each.group == group]
        size = sum(each.size for each in some)
        enough = 2 if sizes.is_sorted else sizes.files_min
        assert size <= sizes.target_bytes or not sizes.is_sorted
        if len(some) >= enough or (len(some) > 1 and size > sizes.target_bytes):
            some = [some[0]._replace(size=size, last=max(each.last for each in some))]
        left += some
    return ordered(left)


def crossed(there: Sequence[DataFile]) -> set[str]:
    """Files of one group that lie across others of it: Floe would never compact them again."""
    return {
        each
        for group in {each.group for each in there}
        for each in overlapping(
            LiveFile(0, each.first, each.last, 1, each.size, f"{each}", Group())
            for each in there
            if each.group == group
        )
    }


@settings(max_examples=300)
@given(st.integers(0, 1 << 30), st.sampled_from((SIZES, SORTED)))
def test_no_step_merges_past_a_large_file_or_mixes_specs_and_runs_come_to_an_end(
    seed: int, sizes: Sizes
) -> None:
    there = written(seed)
    assert crossed(there) == set()
    while plan := [*steps(there, sizes)]:  # a file that became large may let others' stretches grow
        before = len(there)
        for step in plan:
            there = done(there, step, sizes)
            assert crossed(there) == set(), step
        assert len(there) < before, "each run makes files fewer"
