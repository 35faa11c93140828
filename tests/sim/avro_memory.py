"""Avro schemas that were worked out once are not worked out again.

pyiceberg derives a file's schema, its reader and its writer anew for each file it opens, which is a seventh
of a simulated cluster's time. All depend on nothing but the schemas, and readers and writers have no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyiceberg.avro import file as avro
from pyiceberg.manifest import ManifestWriter
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

REMEMBERED_MAX = 1000
"""Schemas, and readers; then all are forgotten."""


class _Remembered:
    """One function of pyiceberg's, with what it answered. `key` names what an answer depends on."""

    def __init__(self, function: Callable[..., Any], key: Callable[..., Any]) -> None:
        self._function = function
        self._key = key
        self._known: dict[Any, tuple[Any, tuple[Any, ...]]] = {}

    def __call__(self, *given: Any, **named: Any) -> Any:
        key = self._key(*given, *named.values())
        if key not in self._known:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            # What was given is kept alive, so that nothing else gets its id.
            self._known[key] = (self._function(*given, **named), (*given, *named.values()))
        return self._known[key][0]

    def as_method(self) -> Callable[..., Any]:
        """As a function, which becomes a method where it is put into a class."""

        def method(*given: Any, **named: Any) -> Any:
            return self(*given, **named)

        return method


def remember() -> None:
    """From here on, in this process."""
    if isinstance(vars(avro)["resolve_reader"], _Remembered):
        return
    for function in ("resolve_reader", "construct_reader", "resolve_writer", "construct_writer"):
        setattr(avro, function, _Remembered(getattr(avro, function), _by_identity))
    for owner, name, key in (
        (avro.AvroFileHeader, "get_schema", lambda header: header.meta.get("avro.schema", "")),
        (AvroSchemaConversion, "iceberg_to_avro", lambda _, schema, schema_name: (id(schema), schema_name)),
        (ManifestWriter, "_with_partition", _by_partition),
    ):
        setattr(owner, name, _Remembered(getattr(owner, name), key).as_method())


def _by_identity(*given: Any) -> tuple[Any, ...]:
    """Schemas by their identity, for they are large; which types are read as what by value."""
    return tuple(tuple(each.items()) if hasattr(each, "items") else id(each) for each in given)


def _by_partition(writer: Any, format_version: int) -> tuple[int, str]:
    """A manifest's schema differs from others of its version in the type of the partition only."""
    return format_version, str(writer._spec.partition_type(writer._schema))
