"""A replacement that cannot be called as the product calls what it replaces is refused."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sim import patching
from tests.sim.patching import Unlike, altered, patched


class _Place:
    def plain(self, one: int, two: int = 0, *, named: int = 0) -> int:
        return one + two + named

    def untouched(self, one: int) -> int:
        return one

    async def awaited(self, one: int) -> int:
        return one


async def _awaited(self: Any, one: int) -> int:
    return -one


def _plain(self: Any, one: int) -> int:
    return -one


def test_what_is_replaced_comes_back() -> None:
    usual = _Place.plain
    with patched((_Place, "plain", lambda *_, **__: -1)):
        assert _Place().plain(1) == -1
    assert _Place.plain is usual
    assert _Place().plain(1) == 1


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("awaited", _plain),
        ("plain", _awaited),
        ("plain", _plain),
        ("plain", lambda self, one, two, named: 0),
        ("awaited", lambda *_: None),
    ],
    ids=["not awaited", "awaited", "one argument", "named by its place", "any arguments, not awaited"],
)
def test_an_odd_replacement_is_refused(name: str, other: Callable[..., Any]) -> None:
    usual, untouched = getattr(_Place, name), _Place.untouched
    with pytest.raises(Unlike, match=name), patched((_Place, "untouched", _plain), (_Place, name, other)):
        pass
    assert getattr(_Place, name) is usual
    assert _Place.untouched is untouched


def test_what_stands_for_a_module_has_all_of_its_names() -> None:
    holder = SimpleNamespace(patching=patching)
    with patched((holder, "patching", altered(patching, patched=lambda *_: None))):
        assert holder.patching.patched() is None
        assert holder.patching.Unlike is Unlike
    with (
        pytest.raises(Unlike, match="has no"),
        patched((holder, "patching", SimpleNamespace(patched=patched))),
    ):
        pass
    assert holder.patching is patching


def test_nor_is_one_of_them_odd() -> None:
    with pytest.raises(Unlike, match="require_alike"):
        altered(patching, require_alike=lambda one: None)
