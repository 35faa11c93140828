"""Avro schemas that were worked out once are not worked out again.

pyiceberg derives a file's schema and its reader anew for each file it opens, which is a tenth of a simulated
cluster's time. Both depend on nothing but the schemas, and readers have no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.avro import file as avro

REMEMBERED_MAX = 1000
"""Schemas, and readers; then all are forgotten."""


class _Remembered:
    """One function of pyiceberg's, with what it answered. `key` names what an answer depends on."""

    def __init__(self, function: Callable[..., Any], key: Callable[..., Any]) -> None:
        self._function = function
        self._key = key
        self._known: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, *given: Any) -> Any:
        key = self._key(*given)
        if key not in self._known:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            # What was given is kept alive, so that nothing else gets its id.
            self._known[key] = (self._function(*given), given)
        return self._known[key][0]


def remember() -> None:
    """From here on, in this process."""
    if isinstance(avro.resolve_reader, _Remembered):
        return
    derived = _Remembered(avro.AvroFileHeader.get_schema, lambda header: header.meta.get("avro.schema", ""))

    def get_schema(header: Any) -> Any:  # a function, for it becomes a method
        return derived(header)

    avro.AvroFileHeader.get_schema = get_schema
    avro.resolve_reader = _Remembered(avro.resolve_reader, _by_identity)
    avro.construct_reader = _Remembered(avro.construct_reader, _by_identity)


def _by_identity(*given: Any) -> tuple[Any, ...]:
    """Schemas by their identity, for they are large; which types are read as what by value."""
    return tuple(tuple(each.items()) if hasattr(each, "items") else id(each) for each in given)
