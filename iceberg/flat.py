"""`floe.table.layout=flat`: the columns of the value's message stand at the table's top level.

All that decides about columns works on the nested form, where they are inside `value`: ids, evolution,
decoding. Here it is turned into the flat one and back, of Iceberg's fields and of rows. A column keeps its
id, by which it is known on both sides; what is at the top without one of Floe's own ids is a message's.

Some names meet Floe's own there: such a column gets its id appended, as elsewhere. So that the way back needs
nothing but the name, that is done to every name that could be the outcome of it (`key`, `key__17`,
`value__x`): what has an id appended is then never another column's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from iceberg.arrow_types import FIELD_ID
from iceberg.column_ids import KEY_ID, VALUE_ID
from iceberg.evolution import HEADERS_ID, KAFKA_ID, OWN_IDS, Column

CONFIG = "floe.table.layout"
PROPERTY = "floe.layout"
"""Table property: FLAT or NESTED; a table without it is nested."""
FLAT, NESTED = "flat", "nested"

_TOP_IDS = (KAFKA_ID, KEY_ID, VALUE_ID, HEADERS_ID)
_MET = re.compile(r"(?:kafka|key|value|headers)(?:__.*)?", re.IGNORECASE | re.DOTALL)
"""Names that are not left as they are; partition fields of flat tables begin so, too (partitioning.py)."""
_APPENDED = re.compile(r"__[0-9]+\Z")
_PARTITION_ID_FIRST = 1000  # the specification's: a table that was never partitioned has none


def flat_name(name: str, number: int) -> str:
    """What a column of the value's message is called at the top level."""
    return f"{name}__{number}" if _MET.fullmatch(name) else name


def nested_name(name: str) -> str:
    """Inverse of flat_name."""
    return _APPENDED.sub("", name) if _MET.fullmatch(name) else name


def is_appended(name: str) -> bool:
    """Whether a name ends as one that has an id appended."""
    return _APPENDED.search(name) is not None


def flattened(fields: Iterable[Mapping[str, Any]]) -> list[Column]:
    """A nested table's top-level fields in Iceberg's JSON → those of the flat one."""
    kept, hoisted = [], []
    for each in fields:
        column = dict(each)
        if each["id"] == VALUE_ID:
            inside = each["type"]["fields"]
            own = [one for one in inside if one["id"] in OWN_IDS]
            others = (one for one in inside if one["id"] not in OWN_IDS)
            column["type"] = {**each["type"], "fields": own}
            hoisted = [{**one, "name": flat_name(one["name"], one["id"])} for one in others]
        kept.append(column)
    return [*kept, *hoisted]


def nested(fields: Iterable[Mapping[str, Any]]) -> list[Column]:
    """Inverse of `flattened`; a nested table's fields are what they are."""
    columns = [dict(each) for each in fields]
    others = [each for each in columns if each["id"] not in _TOP_IDS]
    if not others:
        return columns
    inside = [{**each, "name": nested_name(each["name"])} for each in others]
    return [
        {**each, "type": {**each["type"], "fields": [*each["type"]["fields"], *inside]}}
        if each["id"] == VALUE_ID
        else each
        for each in columns
        if each["id"] in _TOP_IDS
    ]


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
    others = [n for n, each in enumerate(fields) if _id(each) not in _TOP_IDS]
    if not others:
        return batch
    value = batch.column(at)
    inside = [*value.type, *(fields[n].with_name(nested_name(fields[n].name)) for n in others)]
    arrays = [*(value.field(n) for n in range(value.type.num_fields)), *(batch.column(n) for n in others)]
    whole = pa.StructArray.from_arrays(arrays, fields=inside, mask=value.is_null())
    kept = [n for n, each in enumerate(fields) if _id(each) in _TOP_IDS]
    return pa.RecordBatch.from_arrays(
        [whole if n == at else batch.column(n) for n in kept],
        schema=pa.schema([fields[n].with_type(whole.type) if n == at else fields[n] for n in kept]),
    )


def is_flat(metadata: Mapping[str, Any]) -> bool:
    """Whether a table says that it is flat."""
    return bool(metadata["properties"].get(PROPERTY) == FLAT)


def is_settled(metadata: Mapping[str, Any], fields: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a table of these fields stays laid out as it is, whatever its config says from now on.

    Iceberg moves no column into another struct, so the first column of a value's message settles it; so does
    a partition field, whose name goes by the layout.
    """
    value = next(each for each in nested(fields) if each["id"] == VALUE_ID)
    has_columns = any(each["id"] not in OWN_IDS for each in value["type"]["fields"])
    return has_columns or bool(metadata["last-partition-id"] >= _PARTITION_ID_FIRST)


def refusal(wanted: bool, flat: bool) -> str:
    """What operators are told where a table is not laid out as its config says; empty where it is."""
    if flat == wanted:
        return ""
    told, now = (FLAT, NESTED) if wanted else (NESTED, FLAT)
    view = (
        "SELECT kafka, key, value.*, headers FROM it" if wanted else "SELECT *, struct(…) AS message FROM it"
    )
    return (
        f"{CONFIG}={told}: the table is {now} already and stays so, since Iceberg moves no column to another "
        f"place: set the config back to {now}; a view ({view}) shows it otherwise, and a topic that is "
        "deleted and created anew gets a table as its config says"
    )


def told(before: Mapping[str, str], flat: bool) -> dict[str, str]:
    """The property that says so; nothing for a table that is nested and never said otherwise."""
    if not flat and PROPERTY not in before:
        return {}
    return {PROPERTY: FLAT if flat else NESTED}


def _parted(kind: pa.StructType) -> tuple[dict[int, pa.Field], dict[int, pa.Field]]:
    """Floe's own fields of `value`, and the message's, each by its place."""
    fields = dict(enumerate(kind))
    own = {n: each for n, each in fields.items() if _id(each) in OWN_IDS}
    return own, {n: each for n, each in fields.items() if n not in own}


def _value_at(schema: Iterable[pa.Field]) -> int:
    return next(n for n, each in enumerate(schema) if _id(each) == VALUE_ID)


def _id(field: pa.Field) -> int:
    return int(field.metadata[FIELD_ID])
