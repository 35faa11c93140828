"""One Parquet file of rows and of row groups of other files, which are copied as they are.

To decode rows and encode them anew is nine tenths of what one file of several costs. Large row groups stay as
they are; small ones would make a file that is slow to read, so their rows are gathered. CPU work only. It
takes the memory of the file that is made, whose parts stay where they were read to, and of a row group.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.parquet as pq

from iceberg.parquet_footer import (
    MAGIC,
    Footer,
    Struct,
    UnreadableFooter,
    footer_of,
    moved,
    stored_bytes,
    whole,
)
from iceberg.writer import RowGroups, octets, open_writer

COPIED_BYTES_MIN = 1 << 20
"""Bytes that a row group has at least in its file to be copied."""


class Splicing:
    """A file that is made: `take` rows and `copy` files in turn, then `finish`."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._gathered = RowGroups(schema)
        self._rows: pa.BufferOutputStream | None = None  # a file of rows, while there are some
        self._writer: pq.ParquetWriter | None = None
        self._parts = [memoryview(MAGIC)]  # of the file, in their order
        self._size = len(MAGIC)
        self._groups: list[Struct] = []
        self._model = _empty(schema)

    @property
    def nans(self) -> Collection[int]:
        """Columns that are NaN in some row so far, by id."""
        return self._gathered.nans

    def copyable(self, content: memoryview) -> Footer | None:
        """The footer of a file whose row groups can be copied, and are worth it; else None."""
        try:
            footer = footer_of(content)
            worth = footer.groups and all(stored_bytes(each) >= COPIED_BYTES_MIN for each in footer.groups)
        except (UnreadableFooter, KeyError, TypeError):
            return None  # Arrow's reader will say what is wrong
        return footer if worth and footer.alike(self._model) else None

    def take(self, batch: pa.RecordBatch) -> None:
        """Rows behind those that are there."""
        for group in self._gathered.take(batch):
            self._write(group)

    def copy(self, content: memoryview, footer: Footer, reals: pa.Table) -> None:
        """All row groups of a file that is `copyable`. `reals`: its columns that may be NaN."""
        self._end_rows()
        self._gathered.look(reals)
        self._append(content, footer)

    def finish(self) -> list[memoryview]:
        """The file, in its parts."""
        if not self._groups:
            self._gather()
            return [octets(self._written())]
        self._end_rows()
        self._keep(memoryview(whole(self._model, self._groups)))
        return self._parts

    def _keep(self, part: memoryview) -> None:
        self._parts.append(part)
        self._size += part.nbytes

    def _append(self, content: memoryview, footer: Footer) -> None:
        by = self._size - len(MAGIC)
        self._keep(content[len(MAGIC) : footer.data_end])
        self._groups += [moved(each, by, len(self._groups) + at) for at, each in enumerate(footer.groups)]

    def _write(self, group: pa.Table) -> None:
        if self._writer is None:
            self._rows = pa.BufferOutputStream()
            self._writer = open_writer(self._rows, self._schema)
        self._writer.write_table(group)

    def _gather(self) -> None:
        for group in self._gathered.rest():
            self._write(group)

    def _end_rows(self) -> None:
        """Append what was gathered since the last copy."""
        self._gather()
        if self._writer is not None:
            content = octets(self._written())
            self._append(content, footer_of(content))

    def _written(self) -> pa.Buffer:
        """The file of rows; none afterwards."""
        if self._writer is None or self._rows is None:
            return _file_of(self._schema)
        self._writer.close()
        content = self._rows.getvalue()
        self._rows = self._writer = None
        return content


def _file_of(schema: pa.Schema) -> pa.Buffer:
    """A file of such columns without rows."""
    sink = pa.BufferOutputStream()
    open_writer(sink, schema).close()
    return sink.getvalue()


def _empty(schema: pa.Schema) -> Footer:
    return footer_of(octets(_file_of(schema)))
