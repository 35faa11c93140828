"""What manifests say of a file's columns: no row is left out by it, whatever the values are.

The judges are pyiceberg's evaluator, which leaves files out as engines do, and Arrow, which looks at rows.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotNull,
    StartsWith,
)
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema

from iceberg import arrow_types, column_metrics, manifests, writer
from iceberg.column_metrics import next_bytes, next_text
from iceberg.evolution import OFFSET_ID
from schema.descriptors import load
from tests.unit.iceberg import rig as rigs
from tests.unit.schema import samples

KINDS = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf]),
    "double": st.floats() | st.sampled_from([0.0, -0.0, math.nan]),
    "decimal(20, 0)": st.integers(0, 2**64 - 1).map(Decimal),
    "string": st.text(alphabet=st.sampled_from("aé\ud7ff\U0010ffff\U00010000\uffff"), max_size=20)
    | st.text(),
    "binary": st.binary(max_size=20) | st.sampled_from([b"\xff" * 17, b"\xff" * 15 + b"\x00\x01"]),
    "timestamptz": st.integers(-(2**62), 2**62),
}
"""Iceberg's types of decoded columns, and values of them."""
REALS = ("float", "double")
FIELDS = [{"id": 20 + at, "name": f"c{at}", "required": False, "type": kind} for at, kind in enumerate(KINDS)]
KAFKA = {
    "id": 1, "name": "kafka", "required": True,
    "type": {"type": "struct", "fields": [
        {"id": 2, "name": "partition", "required": True, "type": "int"},
        {"id": 3, "name": "offset", "required": True, "type": "long"},
        {"id": 4, "name": "timestamp", "required": False, "type": "timestamptz"},
    ]},
}  # fmt: skip
VALUE = {"id": 8, "name": "value", "required": False, "type": {"type": "struct", "fields": [
    {"id": 9, "name": "deep", "required": False, "type": {"type": "struct", "fields": FIELDS}}]}}  # fmt: skip
SCHEMA = Schema.model_validate({"type": "struct", "schema-id": 0, "fields": [KAFKA, VALUE]})
ARROW = pa.schema([arrow_types.whole(KAFKA), arrow_types.whole(VALUE)])

Row = dict[str, Any] | None

ROWS = st.lists(
    st.none() | st.fixed_dictionaries({f"c{at}": st.none() | of for at, of in enumerate(KINDS.values())}),
    min_size=1,
    max_size=8,
)


def stored(rows: list[Row], group: int) -> tuple[pa.Table, DataFile]:
    """The rows in a file of row groups of so many, and what a manifest says of it."""
    deep = ARROW.field("value").type.field("deep").type
    tops = [{"deep": row} if row is not None else None for row in rows]
    kafka = [{"partition": 0, "offset": at, "timestamp": at} for at in range(len(rows))]
    columns = [pa.array(kafka, ARROW.field("kafka").type), pa.array(tops, ARROW.field("value").type)]
    assert deep.num_fields == len(KINDS)
    table = pa.Table.from_arrays(columns, schema=ARROW)
    sink = pa.BufferOutputStream()
    gathered = writer.RowGroups(ARROW)
    with writer.open_writer(sink, ARROW) as out:
        for start in range(0, len(rows), group):
            list(gathered.take(table.slice(start, group).combine_chunks().to_batches()[0]))
            for each in gathered.rest():
                out.write_table(each)
    made = writer.facts([writer.octets(sink.getvalue())], ARROW, gathered.nans)
    read = pq.read_table(io.BytesIO(made.content))
    return read, manifests._data_file(manifests.added_file("file:///x", made))


def questions(name: str, value: Any) -> Iterator[tuple[BooleanExpression, str]]:
    """Filters that engines leave files out by."""
    for kind, how in (
        (EqualTo, "equal"), (LessThan, "less"), (LessThanOrEqual, "less_equal"),
        (GreaterThan, "greater"), (GreaterThanOrEqual, "greater_equal"),
    ):  # fmt: skip
        yield kind(name, value), how


def may_match(file: DataFile, question: BooleanExpression) -> bool:
    """Whether a reader looks into the file."""
    return bool(_InclusiveMetricsEvaluator(SCHEMA, question).eval(file))


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, group=st.integers(1, 8), asked=st.data())
@example(rows=[{"c3": math.nan}, {"c3": 1.0}], group=1, asked=None)
@example(rows=[{"c4": -0.0}], group=1, asked=None)
@example(rows=[{"c6": "a" * 15 + "\U0010ffff" * 5}, None], group=1, asked=None)
@example(rows=[{"c7": b"\xff" * 20}], group=1, asked=None)
def test_no_row_is_left_out_by_what_a_manifest_says(rows: list[Row], group: int, asked: Any) -> None:
    rows = [
        None if row is None else {name: row.get(name) for name in (f["name"] for f in FIELDS)} for row in rows
    ]
    table, file = stored(rows, group)
    for at, (kind, values) in enumerate(KINDS.items()):
        column = pc.struct_field(table.column("value"), ["deep", f"c{at}"])
        name = f"value.deep.c{at}"
        assert file.null_value_counts[20 + at] == column.null_count
        assert may_match(file, IsNull(name)) or not column.null_count
        assert may_match(file, NotNull(name)) or column.null_count == len(column)
        if kind in REALS:  # Java's order has -0.0 below 0.0, Python's has not
            zeroes = bytes(4 if kind == "float" else 8)
            assert (file.lower_bounds or {}).get(20 + at) != zeroes
            assert (file.upper_bounds or {}).get(20 + at) != zeroes[1:] + b"\x80"
        if kind == "timestamptz":
            column = column.cast(pa.int64())
        present = column.drop_null().to_pylist()
        others = [asked.draw(values)] if asked is not None else []
        for value in [*present, *others]:
            if kind in REALS and not math.isfinite(value):
                continue  # pyiceberg takes an infinite literal for one beyond its type
            for question, how in questions(name, value):
                hits = getattr(pc, how)(column, pa.scalar(value, column.type))
                if kind in REALS and "greater" in how:
                    hits = pc.or_kleene(hits, pc.is_nan(column))  # as Spark has it
                assert may_match(file, question) or not pc.any(hits).as_py(), (question, present)
            if kind == "string" and value:
                assert may_match(file, StartsWith(name, value[:3])) or value not in present


@given(st.text(min_size=1, max_size=4), st.text(max_size=4))
def test_the_next_text_is_greater_than_all_that_begin_so(text: str, more: str) -> None:
    found = next_text(text)
    assert found is None or (found.encode() > (text + more).encode() and len(found) <= len(text))
    assert found is not None or set(text) == {"\U0010ffff"}


@given(st.binary(min_size=1, max_size=4), st.binary(max_size=4))
def test_the_next_bytes_are_greater_than_all_that_begin_so(content: bytes, more: bytes) -> None:
    found = next_bytes(content)
    assert found is None or (found > content + more and len(found) <= len(content))
    assert found is not None or set(content) == {0xFF}


def test_a_bounded_number_of_columns_is_told_of_and_none_inside_lists() -> None:
    many = [{"id": 100 + at, "name": f"n{at}", "required": False, "type": "int"} for at in range(150)]
    listed = {"type": "list", "element-id": 90, "element": "int", "element-required": True}
    deep = {"id": 99, "name": "deep", "required": False, "type": {"type": "struct", "fields": many[:1]}}
    tags = {"id": 98, "name": "tags", "required": False, "type": listed}
    top = {"id": 8, "name": "value", "required": False, "type": {"type": "struct", "fields": [
        tags, deep, *many[1:]]}}  # fmt: skip
    found = [
        each.number for each in column_metrics.leaves([arrow_types.whole(KAFKA), arrow_types.whole(top)])
    ]
    assert found == [*range(101, 201)], "those of less nesting first"


@pytest.mark.parametrize("merged", [False, True])
async def test_a_point_query_reads_few_files(tmp_path: Path, merged: bool) -> None:
    async with rigs.running(tmp_path) as rig:
        await rig.create_topic(partitions=1)
        await rig.bind(samples.FLIGHTS, "nyc.Flight")
        kind = load(samples.descriptor_set(samples.FLIGHTS), "nyc.Flight").message_class
        committer = rig.committer()
        for number in range(20):
            values = [
                kind(flight=number * 10 + at, carrier=f"c{number:02}").SerializeToString() for at in range(3)
            ]
            await rig.produce(values)
            await rig.drain(committer)
        if merged:
            done = await committer.compact()
            assert done is not None
        head = await rig.head()
        schema = Schema.model_validate(head.metadata["schemas"][-1])
        files = [
            entry.data_file
            for each in head.manifests
            for entry in manifests.entries(each, await rig.store.get(rig.warehouse.key(each.manifest_path)))
        ]
        for question in (EqualTo("value.flight", 71), EqualTo("value.carrier", "c07")):
            judge = _InclusiveMetricsEvaluator(schema, question)
            assert sum(bool(judge.eval(each)) for each in files) == 1
        judge = _InclusiveMetricsEvaluator(schema, NotNull("value.__err__"))
        assert not any(judge.eval(each) for each in files), "what cannot be decoded is found by it"
        flight = schema.find_field("value.flight")
        offsets = sorted(
            (
                from_bytes(schema.find_type("kafka.offset"), each.lower_bounds[OFFSET_ID]),
                from_bytes(flight.field_type, each.lower_bounds[flight.field_id]),
            )
            for each in files
        )
        assert offsets[0] == (0, 0)
        assert {each.sort_order_id for each in files} == {None}
