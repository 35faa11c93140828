"""Columns of one message in a file that has those of others too."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def conformed(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array as a column of `kind`, which has all that it has, maybe more, maybe in another order."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        children = [_child(array, each) for each in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=_mask(array))
    if pa.types.is_list(kind):
        values = conformed(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=_mask(array))
    items = conformed(array.items, kind.item_type)
    return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=_mask(array))


def _child(array: pa.StructArray, wanted: pa.Field) -> pa.Array:
    at = array.type.get_field_index(wanted.name)
    return conformed(array.field(at), wanted.type) if at >= 0 else pa.nulls(len(array), wanted.type)


def _mask(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def interleaved(parts: Sequence[tuple[Sequence[int], pa.Array]], length: int) -> pa.Array:
    """One array of `length` rows: row n of a part is row rows[n], those that no part has are null."""
    positions: list[int | None] = [None] * length
    at = 0
    for rows, _ in parts:
        for row in rows:
            positions[row] = at
            at += 1
    return pa.concat_arrays([array for _, array in parts]).take(pa.array(positions, pa.int64()))
