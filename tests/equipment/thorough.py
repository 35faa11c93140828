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


def asked(request: pytest.FixtureRequest, parameter: str) -> list[Any]:
    """Its values in the tests of the fixture's module that are to run, for what they all need at once."""
    here: list[Any] = [
        each for each in request.session.items if getattr(each, "module", None) is request.module
    ]
    found = [each.callspec.params for each in here if hasattr(each, "callspec")]
    return [each[parameter] for each in found if parameter in each]
