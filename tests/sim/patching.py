"""Something of the product replaced for a while, by what can be called as it is.

Product code moves: where a plain function becomes one that is awaited, or takes another argument, a
replacement that still is as it was would fail wherever it is called. Then a control breaks everything, and
shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import (
    Parameter,
    Signature,
    isasyncgenfunction,
    iscoroutinefunction,
    isfunction,
    ismodule,
    signature,
)
from types import SimpleNamespace
from typing import Any

_PLACED = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Unlike(AssertionError):
    """A replacement cannot stand for what it replaces."""


def altered(module: Any, **others: Any) -> Any:
    """What stands for a module in one place: its names, but for these."""
    for name, value in others.items():
        require_alike(f"{module.__name__}.{name}", getattr(module, name), value)
    return SimpleNamespace(**{**vars(module), **others})


@contextmanager
def patched(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """(where, attribute, value instead) of each, meanwhile. Raises Unlike."""
    saved = [(place, name, getattr(place, name)) for place, name, _ in changes]
    for (place, name, value), (_, _, usual) in zip(changes, saved, strict=True):
        require_alike(f"{getattr(place, '__name__', place)}.{name}", usual, value)
    for place, name, value in changes:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in saved:
            setattr(place, name, value)


def require_alike(name: str, usual: Any, other: Any) -> None:
    """Both are awaited or neither is, and one takes the arguments of the other; what stands for a module has
    all of its names. Raises Unlike."""
    if ismodule(usual):
        missing = [each for each in vars(usual) if not hasattr(other, each)]
        if missing:
            raise Unlike(f"{name} is replaced by what has no {', '.join(missing)}")
    if not (isfunction(usual) and isfunction(other)):
        return
    for kind in (iscoroutinefunction, isasyncgenfunction):
        if kind(usual) != kind(other):
            raise Unlike(f"{name}: {kind.__name__} is {kind(usual)} of it, {kind(other)} of its replacement")
    if not _takes(signature(other), signature(usual)):
        raise Unlike(f"{name}{signature(usual)} is replaced by {signature(other)}")


def _takes(other: Signature, usual: Signature) -> bool:
    """Whether a call with all arguments of `usual`, and one with those only that it must have, fit."""
    known = usual.parameters.values()
    for wanted in (known, [each for each in known if each.default is Parameter.empty]):
        placed = [each.name for each in wanted if each.kind in _PLACED]
        named = {each.name: None for each in wanted if each.kind is Parameter.KEYWORD_ONLY}
        try:
            other.bind(*placed, **named)
        except TypeError:
            return False
    return True
