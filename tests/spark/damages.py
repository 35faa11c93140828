"""Damages that a table may have, each with what the audit has to say of it: kind, offset and column.

Each is a change of the sound rows of one partition (zoo_table.py), so that all of them are found in one run.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from math import nan
from typing import Any

from iceberg.spark.verdict import CHANGED, COLUMN, DOUBLED, GAP, MISSING, PLACE
from tests.spark.zoo_table import (
    BROKEN,
    DEFAULTS,
    END,
    FRAMED,
    FRAMED_RAW,
    FULL,
    MISTYPED,
    NAMELESS,
    ODD,
    PLAIN,
    RAW,
    TOMBSTONE,
    Row,
    message,
)

Rows = list[Row]
Found = tuple[str, int, str]
NO_PARTITION = -1
"""Of a row whose partition is null, and so of none."""
OTHER_PARTITIONS = 1_000
"""From this one on the topic has no partitions: a damage that makes one takes this and its own number."""


@dataclass(frozen=True)
class Damage:
    """What is done to the rows, and what has to be found; nothing else may be."""

    name: str
    change: Callable[[Rows], object]
    found: frozenset[Found]
    where: int | None = None
    """In which partition, if not in its own: OTHER_PARTITIONS or NO_PARTITION."""

    def in_flat(self) -> frozenset[Found]:
        """What has to be found in a flat table: its columns are called without `value`."""
        return frozenset((kind, offset, in_flat(column)) for kind, offset, column in self.found)


def in_flat(column: str) -> str:
    """What a column of `value` is called in a flat table."""
    return column if column in ("value.__raw__", "value.__err__") else column.removeprefix("value.")


def _damage(name: str, change: Callable[[Rows], object], *found: Found, where: int | None = None) -> Damage:
    return Damage(name, change, frozenset(found), where)


def _set(
    name: str, offset: int, column: str, value: Any, *others: Found, at: str = "", part: str = "value"
) -> Damage:
    """One cell is another; `column` may go into structs by dots; `at` is what follows it in the finding."""

    def change(rows: Rows) -> None:
        *above, last = column.split(".")
        target = rows[offset][part]
        for step in above:
            target = target[step]
        target[last] = value(target[last]) if callable(value) else value

    return _damage(name, change, (COLUMN, offset, f"{part}.{column}{at}"), *others)


def _shifted(rows: Rows) -> None:
    values = [rows[offset]["value"]["f_int64"] for offset in (FULL, DEFAULTS, ODD)]
    for offset, value in zip((DEFAULTS, ODD, FULL), values, strict=True):
        rows[offset]["value"]["f_int64"] = value


def _swapped(rows: Rows) -> None:
    value = rows[FULL]["value"]
    value["f_sint64"], value["f_sfixed64"] = value["f_sfixed64"], value["f_sint64"]


def _everything_wrong(rows: Rows) -> None:
    for row in rows:
        if row["value"] is not None and row["value"]["f_int64"] is not None:
            row["value"]["f_int64"] += 1


def _emptied(value: Row) -> None:
    for name in value:
        if name != "__raw__":
            value[name] = None


def _by_the_newest(rows: Rows) -> None:
    """As if the text had been read by the schema that is bound now."""
    value = rows[FULL]["value"]
    value["f_string"], value["f_string__32"] = b"text", None


def _as_if_unframed(rows: Rows) -> None:
    value = rows[FRAMED]["value"]
    value["f_string"], value["f_string__32"], value["added"] = value["f_string__32"].encode(), None, ""


def _decoded_though_nothing_was_bound(rows: Rows, offset: int) -> None:
    raw = rows[offset]["value"]["__raw__"]
    rows[offset]["value"] = {**deepcopy(rows[FULL]["value"]), "__raw__": raw}


def _other_bytes(rows: Rows) -> None:
    """The bytes of another good message under columns that stay."""
    rows[FULL]["value"]["__raw__"] = message()(f_int64=1).SerializeToString()


def _other_message(rows: Rows) -> None:
    """Bytes and columns agree, and are another record's."""
    rows[DEFAULTS]["value"] = deepcopy(rows[FULL]["value"])


def _tombstone_as_struct(rows: Rows) -> None:
    rows[TOMBSTONE]["value"] = dict.fromkeys(rows[FULL]["value"])


def _tombstone_as_empty(rows: Rows) -> None:
    rows[TOMBSTONE]["value"] = deepcopy(rows[DEFAULTS]["value"])


def _moved(rows: Rows, row: int, **place: int | None) -> None:
    rows[row]["kafka"].update(place)


def _rows_exchanged(rows: Rows) -> None:
    _moved(rows, BROKEN, offset=MISTYPED)
    _moved(rows, MISTYPED, offset=BROKEN)


def _again(rows: Rows, row: int, **place: int | None) -> None:
    rows.append(deepcopy(rows[row]))
    _moved(rows, -1, **place)


def _later(rows: Rows, offset: int, **time: int) -> None:
    rows[offset]["kafka"]["timestamp"] += timedelta(**time)


def _kafka(rows: Rows, offset: int, name: str, value: Any) -> None:
    rows[offset]["kafka"][name] = value


def _headers(rows: Rows, offset: int, headers: Any) -> None:
    rows[offset]["headers"] = headers


def _message(rows: Rows, offset: int, part: str, value: Any) -> None:
    rows[offset][part] = value


def _lost(rows: Rows, *offsets: int) -> None:
    for offset in sorted(offsets, reverse=True):
        del rows[offset]


def _columns(offset: int, *names: str) -> list[Found]:
    return [(COLUMN, offset, f"value.{name}") for name in names]


_EPOCH_MICRO = timedelta(microseconds=1)

DAMAGES = [
    # scalars
    _set("an int off by one", FULL, "wider", -2),
    _set("an int of a narrow column", FULL, "f_sint32", 5),
    _set("a long cut to 32 bits", FULL, "f_int64", 0),
    _set("an unsigned int as signed", FULL, "f_uint32", -1),
    _set("an unsigned long as signed", FULL, "f_uint64", Decimal(-1)),
    _set("an unsigned long off by one", FULL, "f_uint64", Decimal((1 << 64) - 2)),
    _set("a fixed64 as another", FULL, "f_fixed64", Decimal(80)),
    _set("a zigzag not undone", FULL, "f_sint64", 11),
    _set("a double in its last bit", FULL, "f_double", 1.5000000000000002),
    _set("a float of another sign", FULL, "f_float", -0.25),
    _set("-0.0 as 0.0", ODD, "f_double", 0.0),
    _set("NaN as 0.0", ODD, "f_float", 0.0),
    _set("NaN as null", ODD, "f_float", None),
    _set("0.0 as -0.0", DEFAULTS, "f_float", -0.0),
    _set("0.0 as NaN", DEFAULTS, "f_double", nan),
    _set("a bool turned", FULL, "f_bool", False),
    _set("a text in one letter", FULL, "f_string__32", "tex7"),
    _set("a text with a blank more", FULL, "f_string__32", "text "),
    _set("bytes cut short", FULL, "f_bytes", b"\x00"),
    _set("an enum's name", FULL, "f_enum", "BLUE"),
    _set("an enum as its number", FULL, "f_enum", "1"),
    _set("an unknown enum as the first name", ODD, "f_enum", "NONE"),
    # null and default
    _set("null for the default", DEFAULTS, "f_int64", None),
    _set("null for an empty text", DEFAULTS, "f_string__32", None),
    _set("null for empty bytes", DEFAULTS, "f_bytes", None),
    _set("null for an empty list", DEFAULTS, "colours", None),
    _set("null for an empty map", DEFAULTS, "by_name", None),
    _set("null for a default that was set", ODD, "o_int32", None),
    _set("the default for an optional field that is not set", DEFAULTS, "o_int32", 0),
    _set("an empty text for one that is not set", DEFAULTS, "o_string", ""),
    _set("a wrapper's default as null", FULL, "w_int64", None),
    _set("a wrapper's null as the default", DEFAULTS, "w_bool", False),
    _set("null for a message", FULL, "leaf", None),
    _set("an empty message for null", DEFAULTS, "leaf", {"name": "", "numbers": [], "colour": "NONE"}),
    _set("a member of a oneof that is not the chosen one", FULL, "c_int64", 0),
    _set("the chosen member of a oneof as null", FULL, "c_string", None),
    # inside others
    _set("a field of a message", FULL, "leaf.name", "two"),
    _set("an enum inside a message", FULL, "leaf.colour", "NONE"),
    _set("a list inside a message", FULL, "leaf.numbers", [1, 3], at="[1]"),
    _set("an element of a list", FULL, "many_string", ["a", "x", "a"], at="[1]"),
    _set("an element lost", FULL, "many_string", ["a", "b"]),
    _set("an element twice", FULL, "many_uint64", [Decimal(1), Decimal(1), Decimal(1 << 63)]),
    _set("elements in another order", FULL, "colours", ["BLUE", "RED", "77"], at="[0]"),
    _set("an unknown enum in a list", FULL, "colours", ["RED", "BLUE", "NONE"], at="[2]"),
    _set("messages of a list exchanged", FULL, "leaves", lambda old: old[::-1], at="[0].name"),
    _set("a field of a message in a list", FULL, "leaves", lambda old: [old[0], {**old[1], "colour": "BLUE"}],
         at="[1].colour"),
    _set("a value of a map", FULL, "by_number", [(1, "eins"), (2, "drei")], at="[2]"),
    _set("a pair of a map lost", FULL, "by_number", [(1, "eins")]),
    _set("a key of a map", FULL, "by_number", [(1, "eins"), (3, "zwei")]),
    _set("a key of a map twice", FULL, "by_number", [(1, "eins"), (2, "zwei"), (2, "zwei")]),
    _set("values of a map exchanged", FULL, "by_name", lambda old: [("x", old[1][1]), ("y", old[0][1])],
         at="['x'].name"),
    _set("a wrapper in a list", FULL, "w_strings", ["v"], at="[0]"),
    _set("the bytes of a message inside itself", FULL, "tree.left", b"\n\x04lefT"),
    _set("the bytes of an Any", FULL, "any", lambda old: old[:-1] + b"\x02"),
    # times
    _set("microseconds lost", FULL, "at", lambda old: old.replace(microsecond=123_000)),
    _set("nanoseconds rounded and not cut", ODD, "at", lambda old: old + _EPOCH_MICRO),
    _set("a time in a list", FULL, "times", lambda old: [old[0] + _EPOCH_MICRO], at="[0]"),
    _set("a time in a map", FULL, "times_by_name", lambda old: [("now", old[0][1] + _EPOCH_MICRO)],
         at="['now']"),
    _set("a duration's sign", FULL, "took", 1_500_001),
    _set("a duration in a list", FULL, "spans", [2_000], at="[0]"),
    # whole columns and rows
    _damage("a column shifted by one row", _shifted,
            *((COLUMN, offset, "value.f_int64") for offset in (FULL, DEFAULTS))),
    _damage("a column wrong in every row", _everything_wrong,
            *((COLUMN, offset, "value.f_int64") for offset in (FULL, DEFAULTS, ODD, PLAIN, FRAMED))),
    _damage("two columns exchanged", _swapped, *_columns(FULL, "f_sint64", "f_sfixed64")),
    _damage("bytes of another message, columns left", _other_bytes, (CHANGED, FULL, ""),
            *_columns(FULL, "f_double", "f_float", "wider", "f_int64", "f_uint32", "f_uint64", "f_sint32",
                      "f_sint64")),
    _damage("another record's bytes and columns", _other_message, (CHANGED, DEFAULTS, "")),
    # the key
    _set("a column of the key", FULL, "name", "kez", part="key"),
    _set("a list of the key", FULL, "numbers", [2, 1], at="[0]", part="key"),
    _set("a column of an empty key as null", DEFAULTS, "name", None, part="key"),
    _damage("an empty key as null", lambda rows: _message(rows, DEFAULTS, "key", None),
            (CHANGED, DEFAULTS, "")),
    _damage("a null key as empty",
            lambda rows: _message(rows, TOMBSTONE, "key", deepcopy(rows[DEFAULTS]["key"])),
            (CHANGED, TOMBSTONE, "")),
    # errors
    _set("an error on a good row", FULL, "__err__", "cannot be parsed"),
    _set("an empty error on a good row", DEFAULTS, "__err__", ""),
    _set("an error where nothing was bound", RAW, "__err__", "cannot be parsed"),
    _set("no error on a bad row", BROKEN, "__err__", None),
    _set("no error where a field is of another type", MISTYPED, "__err__", None),
    _set("no error on a frame that names no schema of the topic", NAMELESS, "__err__", None),
    _set("a column of a bad row", MISTYPED, "wider", 0),
    # schemas
    _damage("decoded by the newest binding", _by_the_newest, *_columns(FULL, "f_string", "f_string__32")),
    _damage("the frame's schema ignored", _as_if_unframed,
            *_columns(FRAMED, "f_string", "f_string__32", "added")),
    _set("a column that the row's schema does not have", FULL, "added", ""),
    _set("a column of the new schema", PLAIN, "f_string", b"text"),
    _set("a column of the old schema in a new row", PLAIN, "f_string__32", "bytes now"),
    _set("a widened column cut back", PLAIN, "wider", 0),
    _damage("a row not decoded at all", lambda rows: _emptied(rows[PLAIN]["value"]),
            *_columns(PLAIN, "f_double", "f_float", "wider", "f_int64", "f_uint32", "f_uint64", "f_sint32",
                      "f_sint64")),
    _damage("decoded though nothing was bound",
            lambda rows: _decoded_though_nothing_was_bound(rows, RAW),
            *_columns(RAW, "f_double", "f_float", "wider", "f_int64", "f_uint32", "f_uint64", "f_sint32",
                      "f_sint64")),
    _set("a framed record decoded though nothing was bound", FRAMED_RAW, "f_int64", 1 << 40),
    # the record itself
    _damage("a tombstone as an empty value", _tombstone_as_empty, (CHANGED, TOMBSTONE, "")),
    _damage("a tombstone as a struct of nulls", _tombstone_as_struct, (COLUMN, TOMBSTONE, "value")),
    _damage("an empty value as a tombstone", lambda rows: _message(rows, DEFAULTS, "value", None),
            (CHANGED, DEFAULTS, "")),
    _damage("no headers as null", lambda rows: _headers(rows, ODD, None), (CHANGED, ODD, "")),
    _damage("headers lost", lambda rows: _headers(rows, FULL, []), (CHANGED, FULL, "")),
    _damage("headers in another order", lambda rows: rows[FULL]["headers"].reverse(), (CHANGED, FULL, "")),
    _damage("a null header as empty", lambda rows: rows[FULL]["headers"][2].update(value=b""),
            (CHANGED, FULL, "")),
    _damage("a header that is null", lambda rows: rows[FULL]["headers"].append(None), (CHANGED, FULL, "")),
    _damage("a header without key", lambda rows: rows[PLAIN]["headers"][0].update(key=None),
            (CHANGED, PLAIN, "")),
    _damage("a timestamp a millisecond late", lambda rows: _later(rows, FULL, milliseconds=1),
            (CHANGED, FULL, "")),
    _damage("a timestamp a microsecond late", lambda rows: _later(rows, FULL, microseconds=1),
            (CHANGED, FULL, "")),
    _damage("no timestamp", lambda rows: _kafka(rows, FULL, "timestamp", None), (CHANGED, FULL, "")),
    _damage("the producer's time as the broker's", lambda rows: _kafka(rows, FULL, "timestamp_type", 1),
            (CHANGED, FULL, "")),
    _damage("the broker's time as the producer's", lambda rows: _kafka(rows, RAW, "timestamp_type", 0),
            (CHANGED, RAW, "")),
    _damage("no type of timestamp", lambda rows: _kafka(rows, FULL, "timestamp_type", None),
            (CHANGED, FULL, "")),
    # places
    _damage("a row twice", lambda rows: _again(rows, ODD), (DOUBLED, ODD, "")),
    _damage("a row missing", lambda rows: _lost(rows, ODD), (MISSING, ODD, ""), (GAP, ODD, "")),
    _damage("the last row missing", lambda rows: _lost(rows, END - 1), (MISSING, END - 1, ""),
            (GAP, END - 1, "")),
    _damage("the first row missing", lambda rows: _lost(rows, 0), (MISSING, 0, ""), (GAP, 0, "")),
    _damage("a partition missing", lambda rows: rows.clear(),
            *((MISSING, offset, "") for offset in range(END)), (GAP, 0, "")),
    _damage("two rows exchanged", _rows_exchanged,
            *((CHANGED, offset, "") for offset in (BROKEN, MISTYPED))),
    _damage("a row beyond the end", lambda rows: _again(rows, RAW, offset=END), (PLACE, END, "")),
    _damage("a row far beyond the end", lambda rows: _again(rows, RAW, offset=1 << 62), (PLACE, 1 << 62, "")),
    _damage("an offset of -1", lambda rows: _again(rows, RAW, offset=-1), (PLACE, -1, "")),
    _damage("an offset that is null", lambda rows: _again(rows, RAW, offset=None), (PLACE, -1, "")),
    _damage("a partition that is null", lambda rows: _again(rows, FULL, partition=None), (PLACE, FULL, ""),
            where=NO_PARTITION),
    _damage("a partition of -1", lambda rows: _again(rows, DEFAULTS, partition=-1), (PLACE, DEFAULTS, ""),
            where=NO_PARTITION),
    _damage("a partition too many", lambda rows: _again(rows, FULL, partition=OTHER_PARTITIONS),
            (PLACE, FULL, ""), where=OTHER_PARTITIONS),
]  # fmt: skip
"""Damage n is done to partition n."""
