"""The verdict of `make restore-torture` bites: what is well has no finding, and each anomaly has its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.torture.restore_load import PARTITIONS, Load
from tests.torture.restore_verdict import Found, Row, judge, told

LOST_AT = 2
"""Transactions that were acknowledged when etcd was lost."""


@dataclass
class Case:
    """Two records of an idempotent and of a plain producer, three transactions, the second without an end."""

    load: Load = field(default_factory=lambda: Load(""))
    values: list[list[str]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.load.sent = {"i0": ["i0-0", "i0-1"], "p4": ["p4-0", "p4-1"]}
        self.load.transactions = [tuple(f"x5-{n}-{p}" for p in range(PARTITIONS)) for n in range(3)]
        self.values = [[f"x5-0-{p}", f"x5-2-{p}"] for p in range(PARTITIONS)]
        self.values[0] = ["i0-0", *self.values[0], "i0-1"]
        self.values[1] = ["p4-0", "p4-0", "p4-1", *self.values[1]]
        self.report = {"found": 4, "aborted": ["x5"], "damaged": []}

    def row(self) -> Row:
        found: Found = [list(enumerate(each)) for each in self.values]
        row = Row(1, "whole", "")
        judge(self.load, found, self.report, row, LOST_AT)
        return row


def test_what_is_well_has_no_finding() -> None:
    """A plain record twice is none, nor is a transaction whose end was not archived and that is told of."""
    row = Case().row()
    assert row.findings == []
    assert (row.acknowledged, row.lost, row.doubled, row.again) == (13, 0, 0, 1)
    assert (row.transactions, row.without_end) == (3, 1)


def _without(partition: int, value: str) -> Callable[[Case], None]:
    return lambda case: case.values[partition].remove(value)


def _more(partition: int, value: str) -> Callable[[Case], None]:
    return lambda case: case.values[partition].append(value)


def _swapped(case: Case) -> None:
    case.values[0].reverse()


def _untold(case: Case) -> None:
    case.report["aborted"] = ["x6"]


def _third_away(case: Case) -> None:
    for partition in range(PARTITIONS):
        case.values[partition].remove(f"x5-2-{partition}")


def _first_away_second_there(case: Case) -> None:
    for partition in range(PARTITIONS):
        case.values[partition].remove(f"x5-0-{partition}")
        case.values[partition].append(f"x5-1-{partition}")


@pytest.mark.parametrize(
    ("change", "finding", "lost", "doubled"),
    [
        (_without(0, "i0-1"), "i0: 1 acknowledged are missing, such as i0-1", 1, 0),
        (_without(1, "p4-1"), "p4: 1 acknowledged are missing, such as p4-1", 1, 0),
        (_more(0, "i0-1"), "1 records are doubled", 0, 1),
        (_more(1, "x5-0-1"), "1 records are doubled", 0, 1),
        (_swapped, "i0: out of order", 0, 0),
        (_without(2, "x5-0-2"), "x5-0-0: torn, 2 of 3 records are there", 0, 0),
        (_more(2, "x5-1-2"), "x5-1-0: torn, 1 of 3 records are there", 0, 0),
        (_untold, "x5-1-0 is missing, and x5 is not told of as aborted", 3, 0),
        (_third_away, "x5-2-0: acknowledged by the restored log, and missing", 3, 0),
        (_first_away_second_there, "x5-1-0 is there, an earlier one of x5 is not", 0, 0),
    ],
)
def test_each_anomaly_is_found(change: Callable[[Case], None], finding: str, lost: int, doubled: int) -> None:
    case = Case()
    change(case)
    row = case.row()
    assert row.findings == [finding]
    assert (row.lost, row.doubled) == (lost, doubled)
    assert finding in row.line()


def test_what_the_disaster_spoilt_is_told_and_nothing_else() -> None:
    report = {"damaged": [["log/f/1-2.log", "cut"]]}
    assert told("last piece cut", ["log/f/1-2.log"], report) == []
    assert told("newest snapshot damaged", ["snapshots/1.snap"], report) == [
        "snapshots/1.snap is damaged, and not told of"
    ]
    assert told("whole", [], report) == ["log/f/1-2.log is told of as damaged: cut"]
    assert told("last piece missing", ["log/f/1-2.log"], {"damaged": []}) == []
