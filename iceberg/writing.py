"""What writes a table's files, as committers know it. Imports nothing that reads or makes Parquet: who has a
layout, or a file's rows, has that by then (objectstore/late.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from iceberg.groups import FILES_MAX

if TYPE_CHECKING:
    from coordination.state.types import Span
    from iceberg.layout import Layout
    from iceberg.merging import Expected, Merge
    from iceberg.sorting import Order
    from iceberg.writer import FileContent
    from objectstore.transactions import Aborted


class WriterDied(Exception):
    """The helper ended or failed while it wrote a file. Nothing was stored; a new one serves the next try."""


class FileWriter(Protocol):
    """Writes Parquet files; see iceberg.writer.write_files."""

    async def write(
        self,
        layout: Layout,
        partition: int,
        slices: Sequence[memoryview],
        start: int,
        end: int,
        aborted: Sequence[Aborted] = (),
        spans: Sequence[Span] = (),
        files_max: int = FILES_MAX,
    ) -> list[FileContent]:
        """The rows with start ≤ offset < end but aborted ones.

        Raises CorruptBatch, MissingSchemas, TooManyFiles and WriterDied.
        """
        ...

    def merging(self, fields: str, partition: int, order: Order = (), numbers: bool = False) -> Merging:
        """Make one file of several; see iceberg.merging.Merge."""
        ...


class Merging(Protocol):
    """One merge. Whatever becomes of it, it is dropped in the end."""

    async def add(self, content: memoryview, expected: Expected) -> None:
        """Take a file's rows. Raises UnfitFile and WriterDied."""
        ...

    async def finish(self) -> FileContent:
        """The file. Raises UnfitFile and WriterDied."""
        ...

    async def drop(self) -> None:
        """Forget it. Idempotent."""
        ...


class ThreadWriter:
    """Writes in a thread of this process."""

    async def write(
        self,
        layout: Layout,
        partition: int,
        slices: Sequence[memoryview],
        start: int,
        end: int,
        aborted: Sequence[Aborted] = (),
        spans: Sequence[Span] = (),
        files_max: int = FILES_MAX,
    ) -> list[FileContent]:
        """See FileWriter."""
        from iceberg import writer

        write = partial(writer.write_files, layout, partition, slices, start, end, aborted, spans, files_max)
        return await asyncio.to_thread(write)

    def merging(self, fields: str, partition: int, order: Order = (), numbers: bool = False) -> Merging:
        """See FileWriter."""
        from iceberg.merging import Merge

        return _ThreadMerging(Merge(fields, partition, order, numbers))


class _ThreadMerging:
    def __init__(self, merge: Merge) -> None:
        self._merge = merge

    async def add(self, content: memoryview, expected: Expected) -> None:
        await asyncio.to_thread(self._merge.add, content, expected)

    async def finish(self) -> FileContent:
        return await asyncio.to_thread(self._merge.finish)

    async def drop(self) -> None:
        pass
