"""Rows of flat tables (flat.py) as Arrow has them, and back."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from iceberg.arrow_types import FIELD_ID
from iceberg.column_ids import VALUE_ID
from iceberg.evolution import OWN_IDS
from iceberg.flat import TOP_IDS, flat_name, nested_name


def flat_schema(schema: pa.Schema) -> pa.Schema:
    """The Arrow form of a nested table → that of the flat one."""
    at = _value_at(schema)
    value = schema.field(at)
    own, others = _parted(value.type)
    kept = [value.with_type(pa.struct([*own.values()])) if n == at else each for n, each in enumerate(schema)]
    return pa.schema([*kept, *(each.with_name(flat_name(each.name, _id(each))) for each in others.values())])


def flat_rows(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a nested table as the flat one has them: null where `value` is. `schema`: theirs, flat."""
    at = _value_at(batch.schema)
    value = batch.column(at)
    own, others = _parted(value.type)
    children = value.flatten()
    kept = pa.StructArray.from_arrays(
        [value.field(n) for n in own], fields=list(own.values()), mask=value.is_null()
    )
    columns = [kept if n == at else each for n, each in enumerate(batch.columns)]
    return pa.RecordBatch.from_arrays([*columns, *(children[n] for n in others)], schema=schema)


def nested_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Inverse of `flat_rows`; rows of a nested table are what they are."""
    at, fields = _value_at(batch.schema), list(batch.schema)
    others = [n for n, each in enumerate(fields) if _id(each) not in TOP_IDS]
    if not others:
        return batch
    value = batch.column(at)
    inside = [*value.type, *(fields[n].with_name(nested_name(fields[n].name)) for n in others)]
    arrays = [*(value.field(n) for n in range(value.type.num_fields)), *(batch.column(n) for n in others)]
    whole = pa.StructArray.from_arrays(arrays, fields=inside, mask=value.is_null())
    kept = [n for n, each in enumerate(fields) if _id(each) in TOP_IDS]
    return pa.RecordBatch.from_arrays(
        [whole if n == at else batch.column(n) for n in kept],
        schema=pa.schema([fields[n].with_type(whole.type) if n == at else fields[n] for n in kept]),
    )


def _parted(kind: pa.StructType) -> tuple[dict[int, pa.Field], dict[int, pa.Field]]:
    """Floe's own fields of `value`, and the message's, each by its place."""
    fields = dict(enumerate(kind))
    own = {n: each for n, each in fields.items() if _id(each) in OWN_IDS}
    return own, {n: each for n, each in fields.items() if n not in own}


def _value_at(schema: Iterable[pa.Field]) -> int:
    return next(n for n, each in enumerate(schema) if _id(each) == VALUE_ID)


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])
