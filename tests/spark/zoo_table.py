"""A small sound table with everything that a column can be, as Floe writes it: what the damages are done to.

Every partition holds the same records, of two schemas and of none; `rows` are those of one of them.
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from coordination.state.types import Span
from iceberg import layout, metadata
from iceberg.layout import Binding, Bindings, Layout
from iceberg.rows import arrow_batches
from iceberg.spark.history import HistoryRow, bytes_hash, headers_hash
from iceberg.spark.schemas import KEY, VALUE, Schema, TopicSchemas
from objectstore import batch
from schema import framing
from tests.unit.schema import samples

Row = dict[str, Any]
Headers = tuple[tuple[str, bytes | None], ...]

V1, V2, KEYS = 1, 2, 3
OWN, TOP = ("__raw__", "__err__"), ("kafka", "key", "value", "headers")
NEWER = (
    samples.ZOO.replace(b"string f_string = 14;", b"bytes f_string = 14;")  # another type: another column
    .replace(b"int32 f_int32 = 3;", b"int64 wider = 3;")  # renamed and widened: the same column
    .replace(b"Node tree = 44;", b"Node tree = 44; string added = 60;")
)
STAMP_MS = 1_700_000_000_123


@dataclass(frozen=True)
class Rec:
    """A record, and what was bound when it was appended."""

    key: bytes | None
    value: bytes | None
    bound: tuple[int, int] = (KEYS, V1)
    headers: Headers = ()
    timestamp_type: int = 0


FULL, DEFAULTS, ODD, TOMBSTONE, BROKEN, MISTYPED, PLAIN, FRAMED, NAMELESS, RAW, FRAMED_RAW = range(11)
"""Offsets of the records, by what they are for."""

END = 11


@cache
def message(source: bytes = samples.ZOO, name: str = "zoo.All") -> Any:
    """The class of a message."""
    return samples.message_type(source, name).message_class


def _full() -> Any:
    made = message()(
        f_double=1.5, f_float=0.25, f_int32=-3, f_int64=1 << 40, f_uint32=(1 << 32) - 1,
        f_uint64=(1 << 64) - 1, f_sint32=-5, f_sint64=-6, f_fixed32=7, f_fixed64=8, f_sfixed32=-9,
        f_sfixed64=-10,
        f_bool=True, f_string="text", f_bytes=b"\x00\xff", f_enum=1, o_int32=0, o_string="", o_uint64=0,
        colours=[1, 2, 77], many_uint64=[1, 1 << 63], many_string=["a", "b", "a"], c_string="chosen",
    )  # fmt: skip
    leaves = made.leaf, made.leaves.add(), made.leaves.add(), made.by_name["x"], made.by_name["y"]
    for name, leaf in zip(("one", "two", "three", "four", "five"), leaves, strict=True):
        leaf.MergeFromString(_leaf(name).SerializeToString())
    made.by_number[1], made.by_number[2] = "eins", "zwei"
    made.colours_by_name["sky"] = 2
    made.at.FromMicroseconds(1_600_000_000_123_456)
    made.took.FromMicroseconds(-1_500_001)
    made.times.add().FromMicroseconds(1)
    made.spans.add().FromMicroseconds(2)
    made.times_by_name["now"].FromMicroseconds(3)
    made.w_int64.value, made.w_uint64.value, made.w_bool.value = 0, 1 << 63, False
    made.w_string.value, made.w_bytes.value, made.w_double.value = "", b"", 2.5
    made.w_strings.add().value = "w"
    made.tree.label, made.tree.left.label = "root", "left"
    made.any.Pack(_leaf("packed"))
    return made


def _leaf(name: str) -> Any:
    return message(samples.ZOO, "zoo.Leaf")(name=name, numbers=[1, 2], colour=1)


@cache
def records() -> list[Rec]:
    """What every partition holds, by offset."""
    full = _full().SerializeToString(deterministic=True)
    odd = message()(f_double=-0.0, f_float=float("nan"), f_enum=77, f_int32=-(1 << 31), o_int32=0)
    odd.at.seconds, odd.at.nanos = -1, 1_999
    newer = message(NEWER)(wider=1 << 40, f_string=b"bytes now", added="new").SerializeToString()
    key = _leaf("key").SerializeToString()
    first_again = framing.prefix(V1, samples.message_type(samples.ZOO, "zoo.All").indexes) + full
    later = (KEYS, V2)
    return [
        Rec(key, full, headers=(("trace", b"\x00"), ("empty", b""), ("nothing", None))),
        Rec(b"", b""),
        Rec(key, odd.SerializeToString()),
        Rec(None, None),
        Rec(key, b"\xff\xff"),
        Rec(key, b"\x1a\x01a"),  # f_int32 with a length
        Rec(key, newer, later, (("h", b"1"),), timestamp_type=1),
        Rec(key, first_again, later, timestamp_type=1),
        Rec(key, b"\x00\x00\x00\x00\x63\x00" + full, later, timestamp_type=1),  # schema 99 was never bound
        Rec(None, full, (0, 0), timestamp_type=1),
        Rec(key, first_again, (0, 0), timestamp_type=1),
    ]


@cache
def table_layout(*, flat: bool = False) -> Layout:
    """The table's columns under its bindings."""
    values = (
        Binding(V1, samples.descriptor_set(samples.ZOO), "zoo.All"),
        Binding(V2, samples.descriptor_set(NEWER), "zoo.All"),
    )
    keys = (Binding(KEYS, samples.descriptor_set(samples.ZOO), "zoo.Leaf"),)
    return layout.build(Bindings(keys, KEYS, (KEYS,)), Bindings(values, V2, (V1, V2)), flat=flat)


def schemas(partitions: int) -> TopicSchemas:
    """What the cluster says of the topic."""
    bound = [
        Schema(V1, VALUE, "zoo.All", samples.descriptor_set(samples.ZOO)),
        Schema(V2, VALUE, "zoo.All", samples.descriptor_set(NEWER)),
        Schema(KEYS, KEY, "zoo.Leaf", samples.descriptor_set(samples.ZOO)),
    ]
    return TopicSchemas(bound, {partition: _spans() for partition in range(partitions)})


def _spans() -> list[Span]:
    found: list[Span] = []
    for offset, each in enumerate(records()):
        if not found or found[-1][1:] != each.bound:
            found.append(Span(offset, *each.bound))
    return found


@cache
def _arrow() -> pa.Table:
    """One partition as Floe's committer writes it."""
    content = bytearray()
    for offset, each in enumerate(records()):
        given = [batch.NewRecord(STAMP_MS + offset, each.key, each.value, list(each.headers))]
        made = bytearray(batch.build(given, base_offset=offset))
        if each.timestamp_type:
            made = bytearray(batch.with_append_time(made, STAMP_MS + offset))
        content += made
    return pa.Table.from_batches(
        list(arrow_batches(table_layout(), 0, [memoryview(bytes(content))], 0, END, spans=_spans()))
    )


def rows(partition: int) -> list[Row]:
    """One partition's rows, to be changed at will."""
    found: list[Row] = deepcopy(_arrow().to_pylist())
    for row in found:
        row["kafka"]["partition"] = partition
    return found


def hoisted(row: Row) -> Row:
    """A row as a flat table has it: all of the value but its own two at the top level."""
    value = row["value"] or {}
    names = [each.name for each in table_layout().nested.field("value").type if each.name not in OWN]
    own = None if row["value"] is None else {name: value.get(name) for name in OWN}
    return {**row, "value": own, **{name: value.get(name) for name in names}}


def gathered(row: Row) -> Row:
    """Inverse of `hoisted`."""
    others = {name: each for name, each in row.items() if name not in TOP}
    value = None if row["value"] is None else {**row["value"], **others}
    return {**{name: each for name, each in row.items() if name in TOP}, "value": value}


def arrow_schema(*, flat: bool = False) -> pa.Schema:
    """The types of the rows; nothing is required, so that anything can be damaged."""
    own = table_layout(flat=flat).arrow
    return pa.schema([pa.field(each.name, _optional(each.type)) for each in own])


def _optional(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _optional(each.type)) for each in kind])
    return pa.list_(_optional(kind.value_type)) if pa.types.is_list(kind) else kind


def history(topic: str, partition: int) -> list[HistoryRow]:
    """What a consumer reads of one partition."""
    return [
        HistoryRow(
            topic, partition, offset, bytes_hash(each.key), bytes_hash(each.value),
            headers_hash(each.headers), STAMP_MS + offset, timestamp_type=each.timestamp_type,
        )
        for offset, each in enumerate(records())
    ]  # fmt: skip


def fields(*, flat: bool = False) -> list[dict[str, Any]]:
    """The table's columns in Iceberg's JSON, nothing required."""
    found: list[dict[str, Any]] = _not_required(deepcopy(table_layout(flat=flat).fields))
    return found


def _not_required(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_not_required(each) for each in kind]
    if isinstance(kind, dict):
        return {name: False if "required" in name else _not_required(each) for name, each in kind.items()}
    return kind


def empty_table(warehouse: Path, name: str, columns: list[dict[str, Any]]) -> None:
    """An Iceberg table of a Hadoop catalog with these columns, their ids and Floe's property."""
    where = warehouse / "db" / name
    (where / "metadata").mkdir(parents=True)
    ids = table_layout().ids
    properties = {"floe.columns": ids.to_json(), "write.parquet.compression-codec": "uncompressed"}
    made = metadata.new_table(
        "00000000-0000-4000-8000-000000000000", f"file://{where}", columns, ids.last, properties, STAMP_MS
    )
    del made["current-snapshot-id"]
    del made["schemas"][0]["identifier-field-ids"]  # these are to be damaged, so they are not required
    (where / "metadata" / "v1.metadata.json").write_text(json.dumps(made))
    (where / "metadata" / "version-hint.text").write_text("1")
