"""Decoders over sample messages, for tests and benches."""

from __future__ import annotations

from iceberg import arrow_types, evolution, mapping
from iceberg.column_ids import VALUE_ID, ColumnIds
from iceberg.decoder import Decoder
from tests.unit.schema import samples


def decoder(source: bytes, name: str) -> Decoder:
    """A decoder for the values of a fresh table."""
    kind = samples.message_type(source, name)
    shape = mapping.shape(kind.descriptor)
    fields, ids = evolution.with_message(
        evolution.new_fields(), VALUE_ID, shape, kind.name, ColumnIds(), names=True
    )
    columns = next(each for each in fields if each["id"] == VALUE_ID)["type"]["fields"]
    return Decoder(kind, shape, arrow_types.message_fields(shape, VALUE_ID, kind.name, ids, columns))
