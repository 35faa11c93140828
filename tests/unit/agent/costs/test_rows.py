"""A coefficient is its row of docs/benchmarks.md, as far as rows move with the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.costs import coefficients as measured
from agent.costs.coefficients import Coefficient

PAGE = Path(__file__).parents[4] / "docs" / "benchmarks.md"
NEAR = 1.25
"""A row that moved by more than a quarter is a reason to look at the coefficient."""
OF_KAFKA = (measured.KAFKA_PRODUCE_LARGE, measured.KAFKA_PRODUCE_DEFAULT, measured.KAFKA_FETCH)


def cells(name: str) -> list[str]:
    """The row of this name."""
    (found,) = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| {name} |")]
    return [each.strip() for each in found.strip("|").split("|")]


@pytest.mark.parametrize("told", measured.MEASURED, ids=lambda each: each.row)
def test_it_is_what_the_page_says(told: Coefficient) -> None:
    value, peer = cells(told.row)[1:3]
    shown = peer.rpartition(": ")[2] if told in OF_KAFKA else value.split(" ")[0]
    found = float(re.sub(",", "", shown))
    assert told.value / NEAR <= found <= told.value * NEAR, (told, value, peer)
    if told not in OF_KAFKA:
        assert value.endswith(told.unit) or f" {told.unit} of " in value


def test_every_kind_of_coefficient_is_there() -> None:
    assert len(measured.MEASURED) > 15
    assert {each.row for each in OF_KAFKA} <= {each.row for each in measured.MEASURED}
