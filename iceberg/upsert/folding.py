"""Rows of an append table → the newest row of each key, sorted by key.

CPU work, all of it inside Arrow: call it in a thread. Memory: what was folded, and rows as many again that
wait for it; beyond `FOLDED_BYTES_MAX` it stops with TooMuch, and fewer offsets are taken.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg import arrow_types, flat, flat_rows
from iceberg.arrow_types import FIELD_ID
from iceberg.column_ids import VALUE_ID
from iceberg.evolution import OWN_IDS, RAW
from iceberg.merging import BATCH_ROWS, UnfitFile, fit
from iceberg.upsert.columns import Envelope

FOLDED_BYTES_MAX = 512 << 20
"""Arrow bytes of the rows that a turn holds of one partition."""
GATHERED_ROWS = 262_144
"""Rows that wait to be folded at most."""
GONE = "gone"
"""Name of the last column of folded rows: whether the row takes its key away."""

_PUTS, _DELETE = ("c", "u", "r"), "d"


class TooMuch(Exception):
    """The new rows of these offsets are more than memory is meant for: take fewer offsets."""


class Folded(NamedTuple):
    """The newest row of each key, sorted by key, with the column GONE behind those of the latest table.

    `read`: rows that were looked at; `keyless`: of them without a key; `unusable`: of them envelopes that
    say no row. Neither of these changes anything.
    """

    rows: pa.Table
    read: int = 0
    keyless: int = 0
    unusable: int = 0


class Fold:
    """Of one Kafka partition: `add` files in any order, then `done`."""

    def __init__(self, source: str, target: str, envelope: Envelope | None, bytes_max: int) -> None:
        """`source`, `target`: the top-level fields of the append and the latest table as JSON."""
        self._source = schema_of(source)
        self._target = schema_of(target)
        self._nested = schema_of(json.dumps(flat.nested(json.loads(target))))
        self._envelope = envelope
        self._bytes_max = bytes_max
        self._schema = self._target.append(pa.field(GONE, pa.bool_(), nullable=False))
        self._newest = self._schema.empty_table()
        self._gathered: list[pa.RecordBatch] = []
        self._waiting = self._read = self._keyless = self._unusable = 0

    def add(self, content: memoryview, name: str, rows: int, partition: int, start: int, end: int) -> None:
        """Take a file's rows with start ≤ offset < end. Raises UnfitFile and TooMuch.

        `rows`: how many the file has as its manifest says; `partition`: whose they all are.
        """
        try:
            source = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)))
            if source.metadata.num_rows != rows:
                raise UnfitFile(f"{name} has {source.metadata.num_rows} rows, its manifest says {rows}")
            for batch in source.iter_batches(BATCH_ROWS, use_threads=False):
                fitted = flat_rows.nested_rows(fit(batch, self._source))
                kafka = fitted.column("kafka")
                if not pc.all(pc.equal(kafka.field("partition"), partition)).as_py():
                    raise UnfitFile(f"{name} has rows of another partition than {partition}")
                offsets = kafka.field("offset")
                inside = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
                self._take(fitted.filter(inside))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnfitFile(f"{name} cannot be read: {error}") from error

    def _take(self, batch: pa.RecordBatch) -> None:
        self._read += len(batch)
        has_key = pc.is_valid(_inside(batch, "key", RAW))
        self._keyless += len(batch) - (pc.sum(has_key).as_py() or 0)
        batch = batch.filter(has_key)
        for each in self._told(batch):
            self._gathered.append(each)
            self._waiting += len(each)
        if self._waiting >= GATHERED_ROWS or sum(each.nbytes for each in self._gathered) > self._bytes_max:
            self._fold()

    def _told(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows that say something of their key, with the columns of the latest table and GONE."""
        value = batch.column("value")
        if self._envelope is None:
            yield self._with(batch, value, value.is_null())
            return
        children = {int(each.metadata[FIELD_ID]): at for at, each in enumerate(value.type)}
        op = pc.struct_field(value, [children[self._envelope.op]])
        after = pc.struct_field(value, [children[self._envelope.after]])
        gone = pc.or_(value.is_null(), pc.fill_null(pc.equal(op, _DELETE), False))
        puts = pc.and_(pc.is_in(op, pa.array(_PUTS)), after.is_valid())
        says = pc.or_(gone, pc.fill_null(puts, False))
        self._unusable += len(batch) - (pc.sum(says).as_py() or 0)
        own = [at for number, at in children.items() if number in OWN_IDS]
        arrays = [*(value.field(at) for at in own), *after.flatten()]
        fields = [*(value.type.field(at) for at in own), *after.type]
        rows = pa.StructArray.from_arrays(arrays, fields=_distinct(fields), mask=value.is_null())
        yield self._with(batch, rows, gone).filter(says)

    def _with(self, batch: pa.RecordBatch, value: pa.Array, gone: pa.Array) -> pa.RecordBatch:
        at = next(n for n, each in enumerate(batch.schema) if int(each.metadata[FIELD_ID]) == VALUE_ID)
        field = batch.schema.field(at).with_type(value.type)
        fitted = fit(batch.set_column(at, field, value), self._nested)
        fitted = fitted if self._nested == self._target else flat_rows.flat_rows(fitted, self._target)
        return pa.RecordBatch.from_arrays([*fitted.columns, gone], schema=self._schema)

    def _fold(self) -> None:
        """Take the gathered rows into the newest."""
        rows = pa.concat_tables([self._newest, pa.Table.from_batches(self._gathered, self._schema)])
        self._gathered, self._waiting = [], 0
        if rows.nbytes > 2 * self._bytes_max:
            raise TooMuch
        self._newest = newest(rows)
        if self._newest.nbytes > self._bytes_max:
            raise TooMuch

    def done(self) -> Folded:
        """What was folded. Raises TooMuch."""
        if self._gathered:
            self._fold()
        return Folded(self._newest, self._read, self._keyless, self._unusable)


def schema_of(fields: str) -> pa.Schema:
    """The Arrow form of a table's top-level fields in JSON, with all that is inside."""
    return pa.schema([arrow_types.whole(each) for each in json.loads(fields)])


def newest(rows: pa.Table) -> pa.Table:
    """The row of the greatest offset of each key, sorted by key (bytes, unsigned)."""
    if not len(rows):
        return rows
    keys = keys_of(rows)
    order = pc.sort_indices(
        pa.table({"key": keys, "offset": _inside(rows, "kafka", "offset")}),
        sort_keys=[("key", "ascending"), ("offset", "descending")],
    )
    sorted_keys = keys.take(order)
    first = pa.concat_arrays([pa.array([True]), pc.not_equal(sorted_keys[1:], sorted_keys[:-1])])
    return rows.take(order.filter(first)).combine_chunks()


def keys_of(rows: pa.Table) -> pa.Array:
    """The keys of rows that all have one."""
    found = _inside(rows, "key", RAW)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _inside(rows: Any, column: str, name: str) -> Any:
    """A column inside a struct, null where that is."""
    return pc.struct_field(rows.column(column), [name])


def _distinct(fields: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields under names of their own; they are found by id."""
    return [each.with_name(f"{at}") for at, each in enumerate(fields)]
