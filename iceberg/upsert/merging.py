"""Files of a run and new rows → the files that take their place: sorted by key, each key once.

CPU work, all of it inside Arrow: call it in a thread. Memory: the new rows, a file that is read, and the rows
of two that are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iceberg.column_metrics import ColumnMetrics, next_bytes
from iceberg.evolution import KEY_RAW_ID
from iceberg.merging import BATCH_ROWS, UnfitFile, fit
from iceberg.upsert.folding import GONE, keys_of, schema_of
from iceberg.upsert.plan import KeyFile
from iceberg.writer import FileContent, RowGroups, facts, octets, open_writer

BOUND_MAX = 1_024
"""Bytes of a key that a file's bounds have. Two keys that are one up to there are never parted."""
FILE_ARROW_BYTES_MAX = 256 << 20
"""Arrow bytes of the rows of one file, about, however well they compress."""


class KeyMerge:
    """Makes the files of one stretch of a run: `merge` its files in order, each with the new rows that it
    owns (or `begin` where there is no file yet), then `rest`.
    """

    def __init__(self, fields: str, partition: int, target_bytes: int, bytes_per_row: int) -> None:
        """`fields`: the top level of the latest table's schema as JSON. `bytes_per_row`: of a file that is
        made, about; `target_bytes`: what one shall have.
        """
        self._schema = schema_of(fields)
        self._partition = partition
        self._rows_max = max(1, target_bytes // max(1, bytes_per_row))
        self._pending = self._schema.empty_table()
        self.changed = False
        """Whether any row came, went or became another."""

    def begin(self, new: pa.Table) -> Iterator[FileContent]:
        """Rows where there is no file yet."""
        yield from self._append(self._puts(new))

    def merge(self, content: memoryview, file: KeyFile, new: pa.Table) -> Iterator[FileContent]:
        """The file's rows but those whose keys are new, and the new ones. Raises UnfitFile."""
        there = self._read(content, file)
        keys, puts = keys_of(there), self._puts(new)
        stays = pc.invert(pc.is_in(keys, keys_of(new)))
        kept = there.filter(stays)
        self.changed |= len(kept) < len(there)
        rows = pa.concat_tables([kept, puts])
        yield from self._append(rows.take(pc.sort_indices(keys_of(rows))))

    def _puts(self, new: pa.Table) -> pa.Table:
        puts = new.filter(pc.invert(new.column(GONE))).drop_columns([GONE])
        self.changed |= len(puts) > 0
        return puts

    def _read(self, content: memoryview, file: KeyFile) -> pa.Table:
        """The rows of a file, which are as its manifest says. Raises UnfitFile."""
        try:
            source = pq.ParquetFile(pa.BufferReader(pa.py_buffer(content)))
            batches = [fit(each, self._schema) for each in source.iter_batches(BATCH_ROWS, use_threads=False)]
            rows = pa.Table.from_batches(batches, self._schema)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnfitFile(f"{file.location} cannot be read: {error}") from error
        keys = keys_of(rows)
        own = pc.all(pc.equal(pc.struct_field(rows.column("kafka"), ["partition"]), self._partition)).as_py()
        ascending = pc.all(pc.greater(keys[1:], keys[:-1])).as_py() is not False
        if len(rows) != file.rows or not own or not ascending or keys[0].as_py()[:BOUND_MAX] != file.low:
            raise UnfitFile(
                f"{file.location} is not {file.rows} rows of partition {self._partition} sorted by key from "
                f"{file.low[:40]!r} on: drop the table, and it is made anew from the topic's"
            )
        return rows

    def _append(self, rows: pa.Table) -> Iterator[FileContent]:
        self._pending = pa.concat_tables([self._pending, rows])
        while len(self._pending) >= 2 * self._rows_of_file():
            yield from self._cut(self._rows_of_file())

    def _rows_of_file(self) -> int:
        """How many of the pending rows make a file."""
        by_memory: int = FILE_ARROW_BYTES_MAX * len(self._pending) // max(1, self._pending.nbytes)
        return max(1, min(self._rows_max, by_memory))

    def rest(self) -> Iterator[FileContent]:
        """The rows that are left, in one file or two alike."""
        if 2 * len(self._pending) > 3 * self._rows_of_file():
            yield from self._cut(len(self._pending) // 2)
        if len(self._pending):
            yield from self._cut(len(self._pending))

    def _cut(self, rows: int) -> Iterator[FileContent]:
        keys, count = keys_of(self._pending), len(self._pending)
        while rows < count and keys[rows].as_py()[:BOUND_MAX] == keys[rows - 1].as_py()[:BOUND_MAX]:
            rows += 1
        yield self._file(self._pending.slice(0, rows), keys[0].as_py(), keys[rows - 1].as_py())
        self._pending = self._pending.slice(rows)

    def _file(self, rows: pa.Table, first: bytes, last: bytes) -> FileContent:
        """The rows as Parquet, with bounds of their keys as exact as BOUND_MAX lets them be."""
        sink, parts = pa.BufferOutputStream(), RowGroups(self._schema)
        with open_writer(sink, self._schema) as writer:
            for batch in rows.to_batches(BATCH_ROWS):
                for group in parts.take(batch):
                    writer.write_table(group)
            for group in parts.rest():
                writer.write_table(group)
        found = facts([octets(sink.getvalue())], self._schema, parts.nans)
        upper = last if len(last) <= BOUND_MAX else next_bytes(last[:BOUND_MAX])
        told = ColumnMetrics(found.rows, 0, None, first[:BOUND_MAX], upper)
        return replace(found, columns={**found.columns, KEY_RAW_ID: told})
