"""Records of one partition → one Parquet file in memory, with what the manifest must know of it.

CPU work only: call it in a thread. Every call into Arrow is bounded (iceberg/rows.py) or releases the
interpreter, so the agent's event loop stays responsive meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from coordination.state.types import Span
from iceberg import column_metrics, lineage
from iceberg.column_metrics import ColumnMetrics, NanWatch
from iceberg.evolution import OFFSET_ID, PARTITION_ID, RAW, TIMESTAMP_ID
from iceberg.groups import FILES_MAX, Values
from iceberg.layout import Layout
from iceberg.partitioning import split
from iceberg.parts import PartsReader
from iceberg.rows import arrow_batches
from iceberg.sorted_rows import Gathered
from iceberg.sorting import Order
from objectstore.transactions import Aborted

ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
"""A row group ends at this many rows or bytes of Arrow memory."""

SORTED_BYTES_MAX = 256 << 20
"""Bytes of Arrow memory of rows that one call holds to sort them. Beyond it, what most of them are of becomes
a file, and the rows that follow another.
"""

_PARTITION, _OFFSET, _TIMESTAMP = "kafka.partition", "kafka.offset", "kafka.timestamp"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Lowest and highest value of a column in a file."""

    lower: int
    upper: int


@dataclass(frozen=True, slots=True)
class FileContent:
    """A Parquet file, as parts of which none is empty. `bounds` by Iceberg field id: partition, offset,
    timestamp (µs); `columns`: others.
    """

    parts: Sequence[memoryview]
    rows: int
    bounds: dict[int, Bounds]
    split_offsets: list[int]
    columns: dict[int, ColumnMetrics] = field(default_factory=dict)
    values: Values = ()
    """The partition values of its rows."""

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return sum(part.nbytes for part in self.parts)

    @property
    def content(self) -> memoryview:
        """The file in one piece, which copies it where it has several parts."""
        return self.parts[0] if len(self.parts) == 1 else memoryview(b"".join(self.parts))


class TooManyFiles(Exception):
    """The rows have more partition values than one commit makes files: take fewer rows."""


def write_files(
    layout: Layout,
    partition: int,
    slices: Sequence[memoryview],
    start: int,
    end: int,
    aborted: Sequence[Aborted] = (),
    spans: Sequence[Span] = (),
    files_max: int = FILES_MAX,
) -> list[FileContent]:
    """The rows with start ≤ offset < end as Parquet, a file for each of their partition values, each in the
    layout's order; of very many rows that are sorted several files.

    `spans`: by which schemas they were judged; none: by those bound now. Raises layout.MissingSchemas,
    objectstore.batch.CorruptBatch, and TooManyFiles for more files than `files_max`.
    """
    files: dict[Values, _Writing] = {}
    made: list[FileContent] = []
    for batch in arrow_batches(layout, partition, slices, start, end, aborted, spans):
        for values, some in split(batch, layout.spec):
            if values not in files:
                files[values] = _Writing(layout.arrow, layout.order)
            files[values].take(some)
        if len(made) + len(files) > files_max:
            raise TooManyFiles
        if layout.order and sum(each.held for each in files.values()) >= SORTED_BYTES_MAX:
            values = max(files, key=lambda values: files[values].held)
            made.append(replace(files.pop(values).finish(), values=values))
    return [*made, *(replace(each.finish(), values=values) for values, each in files.items())]


def write_file(
    layout: Layout,
    partition: int,
    slices: Sequence[memoryview],
    start: int,
    end: int,
    aborted: Sequence[Aborted] = (),
    spans: Sequence[Span] = (),
) -> FileContent | None:
    """The same rows in one file, however they are partitioned; None when there is no row."""
    written = None
    for batch in arrow_batches(layout, partition, slices, start, end, aborted, spans):
        written = written or _Writing(layout.arrow, layout.order)
        written.take(batch)
    return None if written is None else written.finish()


class _Writing:
    """A file that is being written, opened with its first row group; several are side by side."""

    def __init__(self, schema: pa.Schema, order: Order) -> None:
        self._schema = schema
        self._unsorted = Gathered(order) if order else None
        self._groups = RowGroups(schema)
        self._sink = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None

    @property
    def held(self) -> int:
        """Bytes of rows that wait to be sorted."""
        return self._unsorted.size if self._unsorted is not None else 0

    def take(self, batch: pa.RecordBatch) -> None:
        if self._unsorted is not None:
            self._unsorted.take(batch)
        else:
            self._add(batch)

    def _add(self, batch: pa.RecordBatch) -> None:
        for group in self._groups.take(batch):
            self._write(group)

    def _write(self, group: pa.Table) -> None:
        if self._writer is None:
            self._writer = open_writer(self._sink, self._schema)
        self._writer.write_table(group)

    def finish(self) -> FileContent:
        """The file; it has rows."""
        if self._unsorted is not None:
            for batch in self._unsorted.batches():
                self._add(batch)
        for group in self._groups.rest():
            self._write(group)
        assert self._writer is not None, "a file is begun with rows"
        self._writer.close()
        return facts([octets(self._sink.getvalue())], self._schema, self._groups.nans)


def open_writer(sink: pa.BufferOutputStream, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer of a table's files: how they are compressed and encoded."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        use_dictionary=_dictionary_columns(schema),
        store_schema=False,
    )


class RowGroups:
    """Gathers the rows of one file until they are a row group."""

    def __init__(self, schema: pa.Schema) -> None:
        self._watch = NanWatch(schema)
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._size = 0

    def take(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add rows; a row group once there are enough."""
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._size += batch.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._size >= ROW_GROUP_BYTES:
            yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """What is gathered, if anything."""
        if self._gathered:
            rows = pa.Table.from_batches(self._gathered)
            self.look(rows)
            yield rows
            self._gathered, self._rows, self._size = [], 0, 0

    def look(self, rows: pa.Table) -> None:
        """Whether one of them is NaN; of rows that go into the file by another way, too."""
        self._watch.look(rows)

    @property
    def nans(self) -> Collection[int]:
        """Columns that are NaN in some row so far, by id."""
        return self._watch.found


def octets(content: pa.Buffer) -> memoryview:
    """A buffer's bytes, which Arrow calls signed: S3 clients refuse that."""
    return memoryview(content).cast("B")


def facts(parts: Sequence[memoryview], schema: pa.Schema, nans: Collection[int]) -> FileContent:
    """What the footer says, read back: the pair of what was written. `nans`: columns with NaN, by id."""
    metadata = pq.read_metadata(PartsReader(parts))
    columns = {metadata.row_group(0).column(at).path_in_schema: at for at in range(metadata.num_columns)}
    bounds: dict[int, Bounds] = {}
    for number, path in ((PARTITION_ID, _PARTITION), (OFFSET_ID, _OFFSET), (TIMESTAMP_ID, _TIMESTAMP)):
        found = [metadata.row_group(at).column(columns[path]) for at in range(metadata.num_row_groups)]
        lowest = [_number(each.statistics.min_raw) for each in found]
        highest = [_number(each.statistics.max_raw) for each in found]
        bounds[number] = Bounds(min(lowest), max(highest))
    starts = [_start(metadata.row_group(at).column(0)) for at in range(metadata.num_row_groups)]
    told = column_metrics.of_file(metadata, schema, nans)
    return FileContent(parts, metadata.num_rows, bounds, starts, told)


def _number(raw: object) -> int:
    assert isinstance(raw, int), f"statistics hold {raw!r}"
    return raw


def _start(column: pq.ColumnChunkMetaData) -> int:
    if column.has_dictionary_page and column.dictionary_page_offset is not None:
        return min(int(column.dictionary_page_offset), int(column.data_page_offset))
    return int(column.data_page_offset)


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    """All columns but those whose values hardly repeat."""
    unlike = {_OFFSET, _TIMESTAMP, f"value.{RAW}", lineage.ROW_ID}
    return [path for each in schema for path in _paths(each.name, each.type) if path not in unlike]


def _paths(path: str, kind: pa.DataType) -> Iterator[str]:
    """Parquet's names of the leaves below a column."""
    if pa.types.is_struct(kind):
        for each in kind:
            yield from _paths(f"{path}.{each.name}", each.type)
    elif pa.types.is_list(kind):
        yield from _paths(f"{path}.list.element", kind.value_type)
    elif pa.types.is_map(kind):
        yield from _paths(f"{path}.key_value.key", kind.key_type)
        yield from _paths(f"{path}.key_value.value", kind.item_type)
    else:
        yield path
