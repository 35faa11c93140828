"""The columns of a latest table, which follow from those of the topic's append table, with the same ids.

Plain: the same columns. Debezium: `value` has its own two and those of the envelope's `after`; a column that
`after` does not have any more stays, for the rows that have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from iceberg.column_ids import VALUE_ID
from iceberg.evolution import OWN_IDS
from iceberg.latest_ids import DEBEZIUM

Column = dict[str, Any]


class EnvelopeError(ValueError):
    """The topic's values are no envelopes; the message says what is missing and the remedy."""


class Envelope(NamedTuple):
    """Where the parts of an envelope are: the ids of columns of `value`."""

    op: int
    after: int


def envelope_in(fields: Sequence[Mapping[str, Any]]) -> Envelope:
    """The envelope of an append table's columns. Raises EnvelopeError."""
    inside = {each["name"]: each for each in _value(fields)["type"]["fields"]}
    op, after = inside.get("op"), inside.get("after")
    if op is None or op["type"] != "string":
        raise EnvelopeError(_lacks("op of type string"))
    if after is None or not isinstance(after["type"], dict) or after["type"]["type"] != "struct":
        raise EnvelopeError(_lacks("after that is a message"))
    return Envelope(op["id"], after["id"])


def _lacks(what: str) -> str:
    return (
        f"floe.table.envelope=debezium: the topic's value has no field {what}: bind the message of the "
        "envelope to the topic, or set floe.table.envelope=none"
    )


def latest_fields(
    fields: Sequence[Mapping[str, Any]], envelope: str, before: Sequence[Mapping[str, Any]]
) -> list[Column]:
    """The columns of the latest table. `fields`: of the append table; `before`: those it has, if any.

    Raises EnvelopeError.
    """
    if envelope != DEBEZIUM:
        return [dict(each) for each in fields]
    return [_of_after(each, fields, before) if each["id"] == VALUE_ID else dict(each) for each in fields]


def _of_after(
    value: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]
) -> Column:
    number = envelope_in(fields).after
    after = next(each for each in value["type"]["fields"] if each["id"] == number)
    own = [each for each in value["type"]["fields"] if each["id"] in OWN_IDS]
    known = {each["id"] for each in after["type"]["fields"]}
    old = _value(before)["type"]["fields"] if before else ()
    left = [each for each in old if each["id"] not in known and each["id"] not in OWN_IDS]
    taken: set[str] = set()
    inside = [_free(each, taken) for each in (*own, *after["type"]["fields"], *left)]
    return {**value, "type": {**value["type"], "fields": inside}}


def _free(column: Mapping[str, Any], taken: set[str]) -> Column:
    """The column, under a name that none before it has: readers fold case."""
    name = column["name"]
    while name.lower() in taken:
        name = f"{name}__{column['id']}"
    taken.add(name.lower())
    return {**column, "name": name}


def _value(fields: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    return next(each for each in fields if each["id"] == VALUE_ID)
