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

from iceberg.column_ids import KEY_ID, VALUE_ID
from iceberg.evolution import HEADERS_ID, KAFKA_ID, OWN_IDS, Column

CONFIG = "floe.table.layout"
PROPERTY = "floe.layout"
"""Table property: FLAT or NESTED; a table without it is nested."""
FLAT, NESTED = "flat", "nested"

TOP_IDS = (KAFKA_ID, KEY_ID, VALUE_ID, HEADERS_ID)
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
    others = [each for each in columns if each["id"] not in TOP_IDS]
    if not others:
        return columns
    inside = [{**each, "name": nested_name(each["name"])} for each in others]
    return [
        {**each, "type": {**each["type"], "fields": [*each["type"]["fields"], *inside]}}
        if each["id"] == VALUE_ID
        else each
        for each in columns
        if each["id"] in TOP_IDS
    ]


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
