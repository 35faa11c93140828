"""Flat tables (`floe.table.layout=flat`) as their readers see them: the value's columns at the top level.

The audit and the jobs know them by what docs/tables.md says, not by what writes them: what is at the top and
is none of the four columns of every table belongs inside `value`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from iceberg.spark.watermark import JobError

TOP = ("kafka", "key", "value", "headers")
TOP_IDS, VALUE_ID = (1, 6, 8, 11), 8
OWN = ("__raw__", "__err__")
_MET = re.compile(r"(kafka|key|value|headers)(__.*)?", re.IGNORECASE | re.DOTALL)
_APPENDED = re.compile(r"__[0-9]+$")


def is_flat(fields: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a table with these top-level fields (Iceberg's JSON) has columns of its values there."""
    return any(each["id"] not in TOP_IDS for each in fields)


def whole(fields: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The fields with all that is the value's inside `value`, as `whole_value` makes it."""
    others = [each for each in fields if each["id"] not in TOP_IDS]
    kept = [dict(each) for each in fields if each["id"] in TOP_IDS]
    for each in kept:
        if each["id"] == VALUE_ID:
            each["type"] = {**each["type"], "fields": [*each["type"]["fields"], *others]}
    return kept


def whole_value(fields: Sequence[Mapping[str, Any]]) -> Column:
    """`value` with its message's columns inside; null where it is, and all of them are."""
    value = F.col("value")
    if not is_flat(fields):
        return value
    own = next(each["type"]["fields"] for each in fields if each["id"] == VALUE_ID)
    others = [F.col(f"`{each['name']}`") for each in fields if each["id"] not in TOP_IDS]
    there = F.greatest(*(each.isNotNull() for each in (value, *others)))
    inside = [*(value[each["name"]].alias(each["name"]) for each in own), *others]
    return F.when(there, F.struct(*inside)).alias("value")


def told(path: str, flat: bool) -> str:
    """Where a column of the whole value stands in the table."""
    top, _, rest = path.partition(".")
    return rest if flat and top == "value" and rest and rest not in OWN else path


def value_type(table: T.StructType) -> T.StructType:
    """The whole struct `value` of a topic's table with this schema, for `decoder`: its column `value`, in a
    flat table with the columns of the message under the names of its fields.
    """
    value = table["value"].dataType
    assert isinstance(value, T.StructType), "a topic's table has a struct `value`"
    others = (each for each in table.fields if each.name not in TOP)
    return T.StructType(
        [*value.fields, *(T.StructField(_field(each.name), each.dataType) for each in others)]
    )


def spread(rows: DataFrame) -> DataFrame:
    """Rows of a topic's table of which `value` was made anew, whole, as the table has them.

    Raises JobError where the table is flat and `value` has none of its columns.
    """
    names = [each for each in rows.columns if each not in TOP]
    made = rows.schema["value"].dataType
    inside = made.names if isinstance(made, T.StructType) else []
    known = {each for each in names if _field(each) in inside}
    if not names:
        return rows
    if not known:
        raise JobError(
            "the table is flat, and what decodes gives none of its columns inside `value`: make it by "
            "decoder(…, value_type(spark.table(…).schema), …), or give a struct that has the message's fields"
        )
    value = F.col("value")
    own = F.when(
        value.isNotNull(), F.struct(*(value[each].alias(each) for each in OWN if each in inside))
    ).alias("value")
    return rows.select(*(own if each == "value" else _spread(each, known) for each in rows.columns))


def _spread(name: str, known: set[str]) -> Column:
    return F.col("value")[_field(name)].alias(name) if name in known else F.col(f"`{name}`")


def _field(name: str) -> str:
    """The field whose column has this name at the top level."""
    return _APPENDED.sub("", name) if _MET.fullmatch(name) else name
