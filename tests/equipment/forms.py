"""Which nullable fields of answers were null, empty or full: clients tell them apart, few tests name them."""

from __future__ import annotations

import dataclasses
import importlib
import re
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from agent.net.wire.api import Api

NULL, EMPTY, FULL = "null", "empty", "full"

Forms = dict[str, set[str]]
_watchers: list[Forms] = []


@contextmanager
def watched() -> Iterator[Forms]:
    """Collects, while it is entered, `API.field.field` → the forms that were seen in decoded answers."""
    found: Forms = {}
    _watchers.append(found)
    try:
        yield found
    finally:
        _watchers.remove(found)


@contextmanager
def unwatched() -> Iterator[None]:
    """What is asked meanwhile is no part of a question."""
    kept, _watchers[:] = list(_watchers), []
    try:
        yield
    finally:
        _watchers[:] = kept


def note(api: str, answer: Any) -> None:
    """Whoever decodes an answer in a test shows it here."""
    for found in _watchers:
        _walk(api, answer, found)


def _walk(path: str, value: Any, found: Forms) -> None:
    kind: type = type(value)
    for name, nullable in _fields(kind):
        each = getattr(value, name)
        at = f"{path}.{name}"
        if nullable:
            form = NULL if each is None else FULL if dataclasses.is_dataclass(each) or len(each) else EMPTY
            found.setdefault(at, set()).add(form)
        for inner in each if isinstance(each, list) else (each,):
            if dataclasses.is_dataclass(inner):
                _walk(at, inner, found)


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """The fields of a message that may be null, or hold more fields."""
    hints = typing.get_type_hints(kind, include_extras=False)
    rows = []
    for each in dataclasses.fields(kind):
        hint = hints[each.name]
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else ()
        rows.append((each.name, types.NoneType in options))
    return tuple(rows)


def nullable_fields(api: Api) -> Iterator[str]:
    """The paths of all nullable fields of an API's answer, in their order."""
    name = re.sub(r"(?<!^)([A-Z])", r"_\1", api.name).lower()
    module = importlib.import_module(f"agent.net.wire.generated.{name}")
    yield from _nullable(api.name, getattr(module, f"{api.name}Response"))


def _nullable(path: str, kind: type) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    for name, nullable in _fields(kind):
        if nullable:
            yield f"{path}.{name}"
        for inner in _messages(hints[name]):
            yield from _nullable(f"{path}.{name}", inner)


def _messages(hint: Any) -> Iterator[type]:
    if dataclasses.is_dataclass(hint):
        yield typing.cast(type, hint)
    for inside in typing.get_args(hint):
        yield from _messages(inside)
