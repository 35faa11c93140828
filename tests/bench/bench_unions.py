"""What rows of several types in one topic cost the committer, and defaults of AVRO, beside a plain topic.

The same rows each time, 12 columns and 141 B in protobuf: framed as those of a subject, in turns of one core.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import fastavro
import pyarrow as pa

from iceberg import layout, writer
from iceberg.layout import Binding, Bindings, Layout, Registered
from iceberg.rows import arrow_batches
from objectstore.compression import Compression
from schema import framing
from schema.registry import protobuf
from schema.registry.avro import schema as avro_schema
from tests.bench.bench_schema import ROUNDS
from tests.bench.bench_tables import WIDE, slices_of, wide_values
from tests.bench.figure import Figure, interleaved
from tests.unit.schema import samples

ROWS = 50_000
TYPES = 4
ADDED = 4
"""Fields that the newer AVRO schema has besides."""
SUBJECT = Binding(1, b"", "", follows=True)


def following(*registered: Registered) -> Layout:
    """The table of a topic whose records name one of these schemas."""
    return layout.build(None, Bindings((SUBJECT,), 1, (1,), registered, frozenset({registered[0].framed})))


def of_protobuf(types: int) -> Layout:
    """By schemas 1, 2, …, each with a message of its own; a single one has its columns in `value`."""
    named = []
    for at in range(1, types + 1):
        text = WIDE.decode().replace("package wide", f"package wide{at}")
        files = protobuf.descriptor_set(protobuf.parse(text, {}).canonical, {})
        named.append(Registered((at, (0,)), files, f"wide{at}.Row", apart=types > 1))
    return following(*named)


def framed(values: Sequence[bytes], type_of: Callable[[int], int]) -> list[memoryview]:
    """Batches of records, each behind the frame of its type."""
    frames = [framing.prefix(at, (0,)) for at in range(1, TYPES + 1)]
    return slices_of([frames[type_of(at)] + each for at, each in enumerate(values)], Compression.NONE)


def rate(table: Layout, slices: list[memoryview], column: Callable[[pa.Array], object]) -> float:
    """Rows per CPU second; `column` is shown a few of what they are as values."""
    (first, *_) = arrow_batches(table, 0, slices[:1], 0, TYPES)
    values = first.column("value")
    if "__err__" in values.type.names and values.field("__err__").null_count < len(values):
        raise AssertionError(f"rows are bad: {values.to_pylist()}")
    column(values)
    start = time.process_time()
    writer.write_file(table, 0, slices, 0, ROWS)
    return ROWS / (time.process_time() - start)


def need(met: bool) -> None:
    """The columns are those that are to be measured."""
    if not met:
        raise AssertionError("rows have other columns than they should")


def unions() -> Iterable[Figure]:
    """Of protobuf: one type, and four, record by record and batch by batch."""
    values = wide_values(ROWS)
    one, several = of_protobuf(1), of_protobuf(TYPES)
    plain = framed(values, lambda at: 0)
    mixed = framed(values, lambda at: at % TYPES)
    in_turn = framed(values, lambda at: at // 500 % TYPES)

    def structs(values: pa.Array) -> None:
        need("page" not in values.type.names and len(values.type) >= TYPES)

    alone, every, each = interleaved(
        [
            lambda: rate(one, plain, lambda values: need("page" in values.type.names)),
            lambda: rate(several, mixed, structs),
            lambda: rate(several, in_turn, structs),
        ],
        ROUNDS,
    )
    title = f"committer, rows of 12 columns as {TYPES} types"
    yield Figure(f"{title}, another with each record", every, "rows/s/core", "one type", alone)
    yield Figure(f"{title}, another with each batch", each, "rows/s/core", "one type", alone)


def avro_of(added: int) -> dict[str, Any]:
    """The schema of the rows, with so many further fields."""
    fields = samples.message_type(WIDE, "wide.Row").message_class.DESCRIPTOR.fields
    kinds = {"string": "string", "float": "double", "bool": "boolean"}
    known = [{"name": each.name, "type": kinds.get(_kind(each), "long")} for each in fields]
    more = [
        {"name": f"more{at}", "type": ("string", "long")[at % 2], "default": ("none", 7)[at % 2]}
        for at in range(added)
    ]
    return {"type": "record", "name": "Row", "fields": [*known, *more]}


def _kind(field: Any) -> str:
    return {field.CPPTYPE_STRING: "string", field.CPPTYPE_DOUBLE: "float", field.CPPTYPE_BOOL: "bool"}.get(
        field.cpp_type, "int"
    )


def defaults() -> Iterable[Figure]:
    """Of AVRO: rows of the newest schema, and of one that lacks fields of the newest."""
    row = samples.message_type(WIDE, "wide.Row").message_class
    older, newer = (avro_schema.parse(json.dumps(avro_of(added)), {}).canonical for added in (0, ADDED))
    parsed, values = fastavro.parse_schema(avro_of(0)), []
    for each in wide_values(ROWS):
        made, found = io.BytesIO(), row.FromString(each)
        fastavro.schemaless_writer(
            made, parsed, {field.name: getattr(found, field.name) for field in row.DESCRIPTOR.fields}
        )
        values.append(framing.prefix(1, (0,))[: framing.ID_END] + made.getvalue())
    slices = slices_of(values, Compression.NONE)
    plain, filled = (
        following(Registered((1, None), message="Row", schema_type="AVRO", form=older, newer=each))
        for each in (None, (newer, ()))
    )

    def full(values: pa.Array) -> None:
        need(values.field("more0").to_pylist()[0] == "none" and values.field("more1").to_pylist()[0] == 7)

    alone, both = interleaved(
        [
            lambda: rate(plain, slices, lambda values: need("more0" not in values.type.names)),
            lambda: rate(filled, slices, full),
        ],
        ROUNDS,
    )
    title = f"committer, AVRO rows of 12 columns, and {ADDED} defaults of a newer schema"
    yield Figure(title, both, "rows/s/core", "without", alone)


def figures() -> Iterable[Figure]:
    """All of them, on one core."""
    pa.set_cpu_count(1)
    yield from unions()
    yield from defaults()
