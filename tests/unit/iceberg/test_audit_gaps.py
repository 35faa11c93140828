"""What an audit calls a gap: up to the given end, also where both sides lack the same. No Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from iceberg.spark import glance
from iceberg.spark.gaps import Gap, Held, gap_of, gaps
from iceberg.spark.given import AuditInput, Leaving
from iceberg.spark.glance import Sums
from iceberg.spark.verdict import GAP

HERE, BESIDE = ("t", 0), ("t", 1)
ENDS = {HERE: 200, BESIDE: 100}
GIVEN = AuditInput(tables={"t": "lake.floe.t"}, ends=ENDS, log_start=dict.fromkeys(ENDS, 0))
ALL = {HERE: (0, 199, 200), BESIDE: (0, 99, 100)}

Rows = Mapping[tuple[str, int], tuple[int, int, int]]
"""Per partition the lowest offset, the highest one, and how many there are, on both sides."""


def asked(place: tuple[str, int], due: object) -> Sequence[tuple[int, int]]:
    raise AssertionError(f"this reads {place} again")


def counts(rows: Rows) -> list[dict[str, Any]]:
    """As the comparison has them."""
    return [
        {"topic": topic, "partition": partition}
        | {
            f"{name}_{what}": value
            for name in ("consumed", "table")
            for what, value in (("low", low), ("high", high), ("offsets", offsets))
        }
        for (topic, partition), (low, high, offsets) in rows.items()
    ]


def found(rows: Rows, given: AuditInput = GIVEN) -> set[tuple[str, int, int]]:
    joined: Any = SimpleNamespace(columns=["topic", "partition", "offset", "consumed", "table"])
    both = gaps(joined, counts(rows), given)
    assert {each.kind for each in both} <= {GAP}
    own = {(each.topic, each.partition, each.offset) for each in both}
    assert len(both) == 2 * len(own), "each of the two sides"
    return own


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether a look at sums says that the sides are the same. For hashes of offsets stands their count."""

    def due(_: object, pieces: Mapping[int, Sequence[tuple[int, int]]]) -> dict[int, tuple[int, int]]:
        return {number: (sum(end - first for first, end in each), 0) for number, each in pieces.items()}

    monkeypatch.setattr(glance, "_due", due)

    def look(rows: Rows, given: AuditInput = GIVEN) -> bool:
        read: dict[int | None, Sums] = {
            number: Sums(count, (1, 1), (count, 0), low, high, 0, 0)
            for (_, number), (low, high, count) in rows.items()
        }
        spark: Any = None
        return glance._each_once(spark, "t", read, given)

    return look


SINCE = replace(GIVEN, since={HERE: 100, BESIDE: 100})
LOST: Mapping[str, tuple[Rows, AuditInput, set[tuple[str, int, int]]]] = {
    "the end of a partition": ({**ALL, HERE: (0, 149, 150)}, GIVEN, {("t", 0, 150)}),
    "the last record": ({**ALL, BESIDE: (0, 98, 99)}, GIVEN, {("t", 1, 99)}),
    "all of a partition": ({HERE: ALL[HERE]}, GIVEN, {("t", 1, 0)}),
    "all of both": ({}, GIVEN, {("t", 0, 0), ("t", 1, 0)}),
    "the end of an increment": ({HERE: (100, 149, 50)}, SINCE, {("t", 0, 150)}),
    "all of an increment": ({}, SINCE, {("t", 0, 100)}),
    "what a log start leaves": (
        {HERE: ALL[HERE]}, replace(GIVEN, log_start={HERE: 0, BESIDE: 40}), {("t", 1, 40)},
    ),
    "behind the last marker": (
        {**ALL, HERE: (0, 148, 149)}, replace(GIVEN, holes={HERE: [(149, 151)]}), {("t", 0, 151)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_what_both_sides_lack_at_the_end_is_a_gap(name: str, same: Any) -> None:
    rows, given, due = LOST[name]
    assert not same(rows, given)
    assert found(rows, given) == due


RIGHT: Mapping[str, tuple[Rows, AuditInput]] = {
    "all there": (ALL, replace(GIVEN, holes=asked)),
    "nothing since": ({}, replace(GIVEN, since=ENDS, holes=asked)),
    "all has left": ({}, replace(GIVEN, log_start={HERE: 200, BESIDE: 101}, holes=asked)),
    "an end at its beginning": ({HERE: ALL[HERE]}, replace(GIVEN, ends={**ENDS, BESIDE: 0}, holes=asked)),
    "earlier digests": ({HERE: ALL[HERE]}, replace(GIVEN, covered={BESIDE: [(0, 100)]}, holes=asked)),
    "digests of the end": (
        {**ALL, HERE: (0, 99, 100)}, replace(GIVEN, covered={HERE: [(100, 200)]}, holes=asked),
    ),
    "a marker at the end": ({**ALL, HERE: (0, 198, 199)}, replace(GIVEN, holes={HERE: [(199, 200)]})),
    "aborted at the end": ({**ALL, HERE: (0, 99, 100)}, replace(GIVEN, holes={HERE: [(100, 200)]})),
    "all aborted": ({HERE: ALL[HERE]}, replace(GIVEN, holes={BESIDE: [(0, 100)]})),
    "aborted at both ends": (
        {**ALL, HERE: (3, 198, 196)}, replace(GIVEN, holes={HERE: [(0, 3), (199, 200)]}),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_need_hold_no_record_is_none_and_who_has_all_asks_nobody(name: str, same: Any) -> None:
    rows, given = RIGHT[name]
    assert same(rows, given)
    assert found(rows, given) == set()


def test_compacted_topics_need_not_reach_the_end() -> None:
    given = replace(GIVEN, leaving={"t": Leaving(compacted=True)}, holes=asked)
    assert found({HERE: (3, 150, 7)}, given) == set()


def test_where_no_end_is_given_the_last_record_is_it() -> None:
    assert found({HERE: (0, 149, 150)}, replace(GIVEN, ends={}, holes=asked)) == set()


def test_a_hole_inside_is_looked_for_and_one_behind_it_is_counted() -> None:
    gap = gap_of("table", HERE, Held(149, 0, 150), GIVEN)
    assert gap == Gap("table: 149 of 200 offsets in 0 to 199, the log starts at 0", -1)
