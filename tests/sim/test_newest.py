"""What the simulation says of a table of newest rows: each way to be wrong is told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.newest import Newest, compared, newest


def row(offset: int, key: bytes, value: bytes | None, partition: int = 0) -> dict[str, Any]:
    kafka = {"partition": partition, "offset": offset}
    return {"kafka": kafka, "key": {"__raw__": key}, "value": None if value is None else {"__raw__": value}}


EVERY: list[dict[str, Any]] = [
    row(3, b"a", b"3"),
    row(0, b"a", b"0"),
    row(1, b"b", b"1"),
    row(2, b"b", None),
    row(0, b"b", b"0", 1),
]
DUE: Newest = {(0, b"a"): (3, b"3"), (1, b"b"): (0, b"0")}
THERE = [EVERY[0], EVERY[4]]


def test_the_newest_are_found_in_any_order_and_partition_by_partition() -> None:
    assert newest(EVERY) == newest(EVERY[::-1]) == DUE
    assert compared("t", DUE, THERE) == []


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (THERE[:1], "None, the newest is (0, b'0')"),
        ([*THERE, row(1, b"b", b"1")], "(1, b'1'), the newest is None"),
        ([row(0, b"a", b"0"), THERE[1]], "(0, b'0'), the newest is (3, b'3')"),
        ([*THERE, THERE[0]], "two rows"),
        ([row(3, b"a", b"x"), THERE[1]], "(3, b'x'), the newest is (3, b'3')"),
    ],
    ids=["missing", "back", "older", "doubled", "changed"],
)
def test_each_way_to_differ_is_told(there: list[dict[str, Any]], told: str) -> None:
    (found,) = compared("t", DUE, there)
    assert (found.anomaly, found.key) == ("latest-differs", "t")
    assert told in found.detail
