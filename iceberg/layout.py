"""What a topic's table looks like under its current bindings, ready to turn records into rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from iceberg import arrow_types, evolution, mapping
from iceberg.decoder import Decoder
from iceberg.evolution import ColumnIds
from iceberg.mapping import MappingError, Struct
from schema import descriptors, framing
from schema.descriptors import DescriptorError, MessageType
from schema.validator import BoundSchema

LAYOUTS_MAX = 256
"""Layouts kept ready; the least used is built anew when needed. All topics without schemas share one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Keys or values: how their bytes become columns. Without decoder they are raw bytes."""

    decoder: Decoder | None = None
    prefix: bytes = b""

    def payload(self, record: bytes) -> bytes:
        """The message inside a record, framed or not. Raises FramingError."""
        if record[:1] != b"\x00":
            return record
        if record.startswith(self.prefix):
            return record[len(self.prefix) :]
        return record[framing.parse(record).start :]


@dataclass(frozen=True, slots=True)
class Binding:
    """A bound schema as far as a layout needs it; can be sent to another process."""

    schema_id: int
    descriptor_set: bytes
    message: str

    @classmethod
    def of(cls, bound: BoundSchema | None) -> Binding | None:
        """The part of a schema in the replicated state that matters here."""
        return None if bound is None else cls(bound.schema_id, bound.descriptor_set, bound.message)


@dataclass(frozen=True, slots=True)
class LayoutBasis:
    """All that a layout follows from: equal bases give equal layouts, in any process."""

    key: Binding | None
    value: Binding | None
    ids: str
    previous: str
    raw_bytes: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns and the decoders that fill them.

    `fields` is the Iceberg schema's top level, `arrow` what the files hold (columns that only old files
    have are missing there). `problems` says why a bound message has no columns.
    """

    basis: LayoutBasis
    fields: list[dict[str, Any]]
    ids: ColumnIds
    arrow: pa.Schema
    key: Part
    value: Part
    raw_bytes: bool = True
    problems: tuple[str, ...] = ()


def build(
    key: BoundSchema | None,
    value: BoundSchema | None,
    *,
    ids: ColumnIds | None = None,
    previous: Iterable[Mapping[str, Any]] = (),
    raw_bytes: bool = True,
) -> Layout:
    """The layout under these bindings. `ids` and `previous` come from the table; none when it is new.

    `raw_bytes` False leaves `__raw__` null where the value was decoded.
    """
    ids_text = (ids or ColumnIds()).to_json()
    basis = LayoutBasis(Binding.of(key), Binding.of(value), ids_text, json.dumps([*previous]), raw_bytes)
    return from_basis(basis)


@lru_cache(LAYOUTS_MAX)
def from_basis(basis: LayoutBasis) -> Layout:
    """The layout that follows from `basis`, shared by all that ask: nobody changes it."""
    key, value = basis.key, basis.value
    ids = ColumnIds.from_json(basis.ids)
    previous: list[dict[str, Any]] = json.loads(basis.previous)
    problems: list[str] = []
    key_kind, key_shape = _shape(key, problems)
    value_kind, value_shape = _shape(value, problems)
    fields = evolution.table_fields(key_shape, value_shape, ids, previous)
    by_name = {each["name"]: each for each in fields}
    keys, key_part = _part(key, key_kind, key_shape, "k", ids, by_name["key"])
    values, value_part = _part(value, value_kind, value_shape, "v", ids, by_name["value"])
    arrow = pa.schema(
        [
            arrow_types.plain_field(by_name["kafka"]),
            arrow_types.field("key", evolution.KEY_ID, pa.struct(keys)),
            arrow_types.field("value", evolution.VALUE_ID, pa.struct(values)),
            arrow_types.plain_field(by_name["headers"]),
        ]
    )
    return Layout(basis, fields, ids, arrow, key_part, value_part, basis.raw_bytes, tuple(problems))


def _shape(bound: Binding | None, problems: list[str]) -> tuple[MessageType | None, Struct | None]:
    if bound is None:
        return None, None
    try:
        kind = descriptors.load(bound.descriptor_set, bound.message)
        return kind, mapping.shape(kind.descriptor)
    except (DescriptorError, MappingError) as error:
        problems.append(f"schema {bound.schema_id} ({bound.message}) has no columns: {error}")
        return None, None


def _part(
    bound: Binding | None,
    kind: MessageType | None,
    shape: Struct | None,
    path: str,
    ids: ColumnIds,
    column: Mapping[str, Any],
) -> tuple[list[pa.Field], Part]:
    columns = column["type"]["fields"]
    fields = [arrow_types.plain_field(each) for each in columns if each["name"] in evolution.OWN_NAMES]
    if bound is None or kind is None or shape is None:
        return fields, Part()
    decoded = arrow_types.message_fields(shape, path, ids, columns)
    prefix = framing.prefix(bound.schema_id, kind.indexes)
    return [*fields, *decoded], Part(Decoder(kind, shape, decoded), prefix)
