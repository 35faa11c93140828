"""Rows of several Parquet files of a table → one file: columns by Iceberg field id, values as they are.

What the files lack of the table's columns is null, what has become wider since is widened (int to long, float
to double), and names are those of now. Nothing is decoded anew; row groups that are large and have the
table's columns are copied as they are (splicing.py). CPU work only: call it in a thread or in the helper
process. Memory: the file that is made, one of those that are read, and a row group; where rows are sorted
(sorted_rows.py), all of them once more, compressed, and what they are compared by.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg import arrow_types, lineage, row_ids
from iceberg.arrow_types import FIELD_ID
from iceberg.column_metrics import leaves
from iceberg.parquet_footer import Footer
from iceberg.parts import PartsReader
from iceberg.sorted_rows import Runs
from iceberg.sorting import Order
from iceberg.splicing import Splicing
from iceberg.writer import FileContent, facts

BATCH_ROWS = 16_384
"""Rows that are read at once."""

PLACES = ["kafka.partition", "kafka.offset"]

KEYS_BYTES_MAX = 256 << 20
"""Bytes of Arrow memory that what the rows are compared by may take, as far as it goes beyond one run."""

_WIDENED = {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}


class UnfitFile(Exception):
    """A file does not hold what its table says of it, so it is merged with no other. The message says why."""


class Expected(NamedTuple):
    """What a table's manifests say of a file: its name, rows, and first and last offset; the id of its first
    row, and by which commit its rows came, for those that do not say so themselves (lineage.py).
    """

    name: str
    rows: int
    first: int
    last: int
    row_id: int | None = None
    sequence: int | None = None


class Merge:
    """Makes one file: `add` the files in the order of their offsets, then `finish`.

    Its rows stand in the table's sort order; without one as they stood, file by file.
    """

    def __init__(self, fields: str, partition: int, order: Order = (), numbers: bool = False) -> None:
        """`fields`: the top level of the table's current Iceberg schema as JSON. `numbers`: rows have ids."""
        self._runs = Runs(order) if order else None
        self._plain = pa.schema([arrow_types.whole(each) for each in json.loads(fields)])
        self._schema = pa.schema([*self._plain, *row_ids.FIELDS]) if numbers else self._plain
        self._numbers = numbers
        self._ids: list[pa.Array] = []  # of the rows that were added, in whatever order
        self._reals = [".".join(each.path) for each in leaves(self._plain) if each.real]
        self._partition = partition
        self._made = Splicing(self._schema)
        self._offsets: list[pa.Array] = []  # of each file that was added, ascending
        self._written: list[pa.Array] = []  # in the order of the rows
        self._last = -1
        self._rows = 0

    def add(self, content: memoryview, expected: Expected) -> None:
        """Take all rows of a file. Raises UnfitFile; then the merge is of no use any more."""
        try:
            self._add(content, expected)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnfitFile(f"{expected.name} cannot be read: {error}") from error

    def _add(self, content: memoryview, expected: Expected) -> None:
        source = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)))
        if source.metadata.num_rows != expected.rows:
            raise UnfitFile(
                f"{expected.name} has {source.metadata.num_rows} rows, its manifest says {expected.rows}"
            )
        footer = self._made.copyable(content) if self._runs is None else None
        if footer is not None and not (self._numbers and _lacks_ids(source)):
            self._copy(source, content, footer, expected)
            return
        offsets = []
        same = source.schema_arrow.equals(self._schema, check_metadata=True)
        at = 0
        for batch in source.iter_batches(BATCH_ROWS, use_threads=False):
            fitted = batch if same else fit(batch, self._schema)
            if self._numbers:
                fitted = numbered(fitted, at, expected)
                self._ids.append(fitted.column(lineage.ROW_ID))
                at += len(fitted)
            offsets.append(self._checked(fitted, expected))
            self._rows += len(fitted)
            if self._runs is None:
                self._write(fitted)
            else:
                self._sort(fitted, self._runs)
        self._offsets.append(self._ascending(pa.concat_arrays(offsets), expected))

    def _copy(self, source: pq.ParquetFile, content: memoryview, footer: Footer, expected: Expected) -> None:
        """Take its row groups as they are. Of its rows, whose they are is looked at, and what may be NaN."""
        batches = source.iter_batches(BATCH_ROWS, columns=PLACES, use_threads=False)
        offsets = pa.concat_arrays([self._checked(each, expected) for each in batches])
        self._offsets.append(self._ascending(offsets, expected))
        self._written.append(offsets)
        if self._numbers:
            ids = source.read(columns=[lineage.ROW_ID], use_threads=False).column(lineage.ROW_ID)
            self._ids += ids.chunks
        self._rows += len(offsets)
        self._made.copy(content, footer, source.read(columns=self._reals, use_threads=False))

    def _checked(self, batch: pa.RecordBatch, expected: Expected) -> pa.Array:
        """The offsets of rows, which are this partition's."""
        kafka = batch.column(batch.schema.get_field_index("kafka"))
        if not pc.all(pc.equal(kafka.field("partition"), self._partition)).as_py():
            raise UnfitFile(f"{expected.name} has rows of another partition than {self._partition}")
        return kafka.field("offset")

    def _ascending(self, offsets: pa.Array, expected: Expected) -> pa.Array:
        """The offsets of a file in their order. Each is there once, within what the manifest says, and lies
        beyond those of the files before.
        """
        offsets = _sorted(offsets)
        if pc.any(pc.equal(offsets[1:], offsets[:-1])).as_py() or offsets[0].as_py() <= self._last:
            raise UnfitFile(f"{expected.name} has offsets twice, or of files before it, from {offsets[0]} on")
        if offsets[0].as_py() != expected.first:
            raise UnfitFile(f"{expected.name} begins at offset {offsets[0]}, its manifest says otherwise")
        self._last = offsets[-1].as_py()
        if self._last != expected.last:
            raise UnfitFile(f"{expected.name} ends at offset {self._last}, not at {expected.last}")
        return offsets

    def _sort(self, batch: pa.RecordBatch, runs: Runs) -> None:
        runs.take(batch)
        if runs.keys_size > KEYS_BYTES_MAX:
            raise UnfitFile(
                f"what {self._rows} rows are sorted by takes over {KEYS_BYTES_MAX} bytes: "
                "sort by less of long values, as truncate(16, value.page), in floe.table.sort"
            )

    def _write(self, batch: pa.RecordBatch) -> None:
        self._written.append(batch.column(batch.schema.get_field_index("kafka")).field("offset"))
        self._made.take(batch)

    def finish(self) -> FileContent:
        """The file. Its offsets are read back: they are those of the files that were added, and no others."""
        for batch in self._runs.batches() if self._runs is not None else ():
            self._write(batch)
        parts = self._made.finish()
        found = facts(parts, self._plain, self._made.nans)
        wanted = ["kafka.offset", *([lineage.ROW_ID] if self._numbers else [])]
        read = pq.ParquetFile(PartsReader(parts)).read(columns=wanted, use_threads=False)
        offsets = read.column("kafka").combine_chunks().field("offset")
        written, added = pa.concat_arrays(self._written), pa.concat_arrays(self._offsets)
        if found.rows != self._rows or not offsets.equals(written) or not _sorted(written).equals(added):
            raise UnfitFile("the file that was made does not hold the offsets of those that it was made of")
        if self._numbers:
            ids = read.column(lineage.ROW_ID).combine_chunks().sort()
            if not ids.equals(pa.concat_arrays(self._ids).sort()) or ids.null_count:
                raise UnfitFile("the file that was made does not hold the rows' ids of those it was made of")
        return found


def numbered(batch: pa.RecordBatch, at: int, expected: Expected) -> pa.RecordBatch:
    """The rows of a file from its `at`-th on, each with its id and the commit by which it came: as the file
    says, else as its manifest does. Raises ValueError where neither says.
    """
    if expected.row_id is None or expected.sequence is None:
        raise ValueError("its manifest does not say which ids its rows have")
    first = expected.row_id + at
    said = {
        lineage.ROW_ID: pa.arange(first, first + len(batch)),
        lineage.SEQUENCE: pa.repeat(pa.scalar(expected.sequence, pa.int64()), len(batch)),
    }
    for each in row_ids.FIELDS:
        column = pc.coalesce(batch.column(each.name), said[each.name])
        batch = batch.set_column(batch.schema.get_field_index(each.name), each, column)
    return batch


def _lacks_ids(source: pq.ParquetFile) -> bool:
    """Whether some row of a file with columns for it does not say its id, or by which commit it came."""
    read = source.read(columns=[each.name for each in row_ids.FIELDS], use_threads=False)
    return any(column.null_count for column in read.columns)


def _sorted(offsets: pa.Array) -> pa.Array:
    """Ascending. Those of most files are as they stand, and to look is a tenth of sorting them."""
    descend = pc.any(pc.less(offsets[1:], offsets[:-1])).as_py()
    return offsets.sort() if descend or offsets.null_count else offsets


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of `schema`, found by field id."""
    known = _by_id(batch.schema)
    columns = [_column(batch, known, wanted, len(batch)) for wanted in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(batch: Any, known: dict[bytes, tuple[int, pa.Field]], wanted: pa.Field, rows: int) -> pa.Array:
    """The column of a batch, or a struct's child, that has the id of `wanted`; null where there is none."""
    at, _ = known.get(wanted.metadata[FIELD_ID], (-1, wanted))
    if at >= 0:
        array = batch.field(at) if isinstance(batch, pa.StructArray) else batch.column(at)
        return _as(array, wanted)
    if not wanted.nullable:
        raise ValueError(f"there is no column {wanted.name}, which every row has")
    return pa.nulls(rows, wanted.type)


def _as(array: pa.Array, wanted: pa.Field) -> pa.Array:
    kind = wanted.type
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        known = _by_id(array.type)
        children = [_column(array, known, each, len(array)) for each in kind]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        values = _as(array.values, kind.value_field)
        return pa.ListArray.from_arrays(array.offsets, values, type=kind, mask=mask)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        keys, items = _as(array.keys, kind.key_field), _as(array.items, kind.item_field)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=kind, mask=mask)
    if array.type == kind:
        return array
    if (array.type, kind) in _WIDENED:
        return array.cast(kind)
    raise ValueError(f"column {wanted.name} is {array.type} there and {kind} in the table")


def _by_id(fields: pa.Schema | pa.StructType) -> dict[bytes, tuple[int, pa.Field]]:
    """Place and field by Iceberg id."""
    return {each.metadata[FIELD_ID]: (at, each) for at, each in enumerate(_each(fields)) if each.metadata}


def _each(fields: pa.Schema | pa.StructType) -> Iterator[pa.Field]:
    yield from fields
