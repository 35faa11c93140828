"""`make test` takes a part of some tests; those marked `thorough` are for `make thorough`, `make torture`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, values: Iterable[object]) -> list[Any]:
    """Values for `parametrize`: the first, and each `count`-th behind it, in `make test` as well."""
    return [
        pytest.param(value, marks=() if number % count == 0 else pytest.mark.thorough)
        for number, value in enumerate(values)
    ]
