"""Decoders over sample messages, for tests and benches."""

from __future__ import annotations

from iceberg import arrow_types, evolution, mapping
from iceberg.decoder import Decoder
from iceberg.evolution import ColumnIds
from tests.unit.schema import samples


def decoder(source: bytes, name: str) -> Decoder:
    """A decoder for the values of a fresh table."""
    kind = samples.message_type(source, name)
    shape = mapping.shape(kind.descriptor)
    ids = ColumnIds()
    fields = evolution.table_fields(None, shape, ids)
    columns = next(each for each in fields if each["name"] == "value")["type"]["fields"]
    return Decoder(kind, shape, arrow_types.message_fields(shape, "v", ids, columns))
