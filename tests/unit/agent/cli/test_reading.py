"""Which records a command reads."""

from __future__ import annotations

import json

import pytest

from agent.cli.reading import shares
from agent.cli.requests import Bounds
from tests.unit.agent.cli.conftest import Dev


@pytest.mark.parametrize(
    ("there", "count", "taken"),
    [
        ([1_000, 0, 0, 0, 0, 0], 50, [50, 0, 0, 0, 0, 0]),
        ([1_000, 3, 7], 30, [20, 3, 7]),
        ([1_000, 3, 700], 30, [14, 3, 13]),
        ([5, 5, 5], 4, [1, 1, 2]),
        ([5, 5], 100, [5, 5]),
        ([5, 5], 1, [0, 1]),
        ([0], 5, [0]),
        ([], 5, []),
    ],
)
def test_partitions_share_the_newest_records_by_what_they_have(
    there: list[int], count: int, taken: list[int]
) -> None:
    found = shares([Bounds(number, 1, 100, 100 + end) for number, end in enumerate(there)], count)
    assert sum(found.values()) == min(count, sum(there))
    assert sorted(found[number] for number in range(len(there))) == sorted(taken)
    assert all(found[number] <= there[number] for number in found)


def test_as_many_as_asked_for_where_one_partition_has_all(dev: Dev) -> None:
    dev.run("topic", "create", "uneven", "--partitions", "6")
    dev.run("produce", "uneven", "--partition", "4", stdin="x\n" * 100)
    asked = ("topic", "rules", "uneven", "--rule", "size(value) > 9", "--last", "50", "--output", "json")
    assert json.loads(dev.run(*asked, status=1).out)["records"] == 50
