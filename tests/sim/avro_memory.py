"""Avro schemas that were worked out once are not worked out again.

pyiceberg derives a file's schema and its reader anew for each file it opens, which is a tenth of a simulated
cluster's time. Both depend on nothing but the schemas, and readers have no state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyiceberg.avro import file as avro

REMEMBERED_MAX = 1000
"""Schemas, and readers; then all are forgotten."""


def remember() -> None:
    """From here on, in this process."""
    if getattr(avro.resolve_reader, "remembers", False):
        return
    derived, resolved, constructed = (
        avro.AvroFileHeader.get_schema,
        avro.resolve_reader,
        avro.construct_reader,
    )
    schemas: dict[str, Any] = {}
    readers: dict[tuple[object, ...], tuple[Any, ...]] = {}

    def get_schema(self: Any) -> Any:
        text = self.meta.get("avro.schema", "")
        if text not in schemas:
            _bound(schemas)
            schemas[text] = derived(self)
        return schemas[text]

    def resolve_reader(
        file_schema: Any,
        read_schema: Any,
        read_types: Mapping[int, Callable[..., Any]] = avro.EMPTY_DICT,
        read_enums: Mapping[int, Callable[..., Any]] = avro.EMPTY_DICT,
    ) -> Any:
        key = (id(file_schema), id(read_schema), tuple(read_types.items()), tuple(read_enums.items()))
        if key not in readers:
            _bound(readers)
            reader = resolved(file_schema, read_schema, dict(read_types), dict(read_enums))
            readers[key] = (reader, file_schema, read_schema)  # kept alive, so that no other has its id
        return readers[key][0]

    def construct_reader(
        file_schema: Any, read_types: Mapping[int, Callable[..., Any]] = avro.EMPTY_DICT
    ) -> Any:
        key = (id(file_schema), tuple(read_types.items()))
        if key not in readers:
            _bound(readers)
            readers[key] = (constructed(file_schema, dict(read_types)), file_schema)
        return readers[key][0]

    resolve_reader.remembers = True  # type: ignore[attr-defined]  # a mark for the next call
    avro.AvroFileHeader.get_schema = get_schema
    avro.resolve_reader, avro.construct_reader = resolve_reader, construct_reader


def _bound(known: dict[Any, Any]) -> None:
    if len(known) >= REMEMBERED_MAX:
        known.clear()
