"""Rows of a data file to come, gathered and given back in a table's sort order.

A commit's file is sorted in memory (`Gathered`). A file that compaction makes may be many times as large:
its rows are sorted in runs that wait compressed, and only what they are compared by is held of all of them
(`Runs`). CPU work only, as writer.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from iceberg import sorting
from iceberg.sorting import Order

RUN_BYTES = 64 << 20
"""Bytes of Arrow memory that are sorted at once; a longer merge has several such runs."""
BATCH_ROWS = 16_384
BATCH_BYTES = 4 << 20
"""Rows are given back in batches of so many, or of so many bytes, about."""


class Gathered:
    """Rows in memory with what they are compared by. `size`: bytes of both."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._rows: list[pa.RecordBatch] = []
        self._keys: list[pa.RecordBatch] = []
        self.size = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        keys = sorting.keys_of(batch, self._order)
        self._rows.append(batch)
        self._keys.append(keys)
        self.size += batch.nbytes + keys.nbytes

    def given(self) -> tuple[pa.Table, pa.Table]:
        """The rows in order, and their keys; they are forgotten here. There is one at least."""
        rows, keys = pa.Table.from_batches(self._rows), pa.Table.from_batches(self._keys)
        self._rows, self._keys, self.size = [], [], 0
        places = sorting.indices(keys, self._order)
        return rows.take(places), keys.take(places)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows in order."""
        yield from in_batches(self.given()[0])


def in_batches(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """The same rows in batches."""
    whole, size = rows.combine_chunks(), batch_rows(len(rows), rows.nbytes)
    for start in range(0, len(rows), size):
        yield from whole.slice(start, size).to_batches()


def batch_rows(rows: int, size: int) -> int:
    """Rows of a batch where so many have `size` bytes."""
    return max(1, min(BATCH_ROWS, rows * BATCH_BYTES // max(1, size)))


class Runs:
    """Rows of any number. `keys_size`: bytes of Arrow memory that what they are compared by takes."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._gathered = Gathered(order)
        self._runs: list[_Run] = []
        self._keys: list[pa.Table] = []
        self._size = 0
        self.keys_size = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._gathered.take(batch)
        if self._gathered.size >= RUN_BYTES:
            self._end_run()

    def _end_run(self) -> None:
        rows, keys = self._gathered.given()
        self._size += rows.nbytes
        self.keys_size += keys.nbytes
        self._keys.append(keys)
        self._runs.append(_Run(rows))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows in order, once. There is one at least."""
        if not self._runs:
            yield from self._gathered.batches()
            return
        if self._gathered.size:
            self._end_run()
        numbers = [pa.repeat(pa.scalar(at, pa.int32()), len(keys)) for at, keys in enumerate(self._keys)]
        places = sorting.indices(pa.concat_tables(self._keys), self._order)
        # Each run is in order itself, so its rows are wanted one after the other.
        wanted = pa.concat_arrays(numbers).take(places)
        self._keys = []
        size = batch_rows(len(wanted), self._size)
        for start in range(0, len(wanted), size):
            yield from self._next(wanted.slice(start, size))

    def _next(self, wanted: pa.Array) -> Iterator[pa.RecordBatch]:
        """The next rows: of each the run that has it."""
        counts = {each["values"]: each["counts"] for each in wanted.value_counts().to_pylist()}
        rows = pa.concat_tables(self._runs[at].next(counts[at]) for at in sorted(counts))
        # Where each of these, which stand run by run, belongs; and of each place which it is.
        belongs = pc.array_sort_indices(wanted)
        yield from rows.take(pc.array_sort_indices(belongs)).combine_chunks().to_batches()


class _Run:
    """Sorted rows, compressed, which are read once."""

    def __init__(self, rows: pa.Table) -> None:
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
        with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
            for each in in_batches(rows):
                writer.write_batch(each)
        self._source = pa.ipc.open_stream(sink.getvalue(), options=pa.ipc.IpcReadOptions(use_threads=False))
        self._rest = rows.schema.empty_table()

    def next(self, count: int) -> pa.Table:
        """So many rows; there are as many left."""
        parts = [self._rest]
        while (have := sum(map(len, parts))) < count:
            parts.append(pa.Table.from_batches([self._source.read_next_batch()]))
        rows = pa.concat_tables(parts)
        self._rest = rows.slice(count)
        return rows.slice(0, count) if have > count else rows
