"""Where files are written: in a thread, or in a helper process that leaves the agent's interpreter alone.

Turning records into columns is Python work of milliseconds; helper.py says why not in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from coordination.helper import Helper, HelperDied
from coordination.state.types import Span
from iceberg import writer
from iceberg.layout import Layout, LayoutBasis, MissingSchemas
from iceberg.writer import Bounds, FileContent
from objectstore.batch import CorruptBatch
from objectstore.transactions import Aborted

WRITE_SECONDS_MAX = 300.0
"""Longest time for one file before the helper is taken for hung and ended."""


class WriterDied(Exception):
    """The helper ended or failed while it wrote a file. Nothing was stored; a new one serves the next try."""


class FileWriter(Protocol):
    """Writes one Parquet file; see iceberg.writer.write_file."""

    async def write(
        self,
        layout: Layout,
        partition: int,
        slices: Sequence[memoryview],
        start: int,
        end: int,
        aborted: Sequence[Aborted] = (),
        spans: Sequence[Span] = (),
    ) -> FileContent | None:
        """The rows with start ≤ offset < end but aborted ones.

        Raises CorruptBatch, MissingSchemas and WriterDied.
        """
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
    ) -> FileContent | None:
        """See FileWriter."""
        write = partial(writer.write_file, layout, partition, slices, start, end, aborted, spans)
        return await asyncio.to_thread(write)


@dataclass(frozen=True, slots=True)
class Request:
    """What the helper is asked for; `lengths` of the slices that follow."""

    basis: LayoutBasis
    partition: int
    start: int
    end: int
    lengths: list[int]
    aborted: Sequence[Aborted] = ()
    spans: Sequence[Span] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What the helper says: an error, schemas it lacks, or the file's facts; the file's bytes follow."""

    corrupt: str = ""
    missing: Sequence[int] = ()
    failed: str = ""
    rows: int = 0
    bounds: dict[int, Bounds] = field(default_factory=dict)
    split_offsets: list[int] = field(default_factory=list)


class ProcessWriter:
    """Writes in a helper process, started when first needed; one file at a time."""

    def __init__(self) -> None:
        self._helper = Helper("iceberg.writer_process", WRITE_SECONDS_MAX)

    @property
    def pid(self) -> int | None:
        """The helper's process id; None while there is none."""
        return self._helper.pid

    async def write(
        self,
        layout: Layout,
        partition: int,
        slices: Sequence[memoryview],
        start: int,
        end: int,
        aborted: Sequence[Aborted] = (),
        spans: Sequence[Span] = (),
    ) -> FileContent | None:
        """See FileWriter."""
        lengths = [len(each) for each in slices]
        request = Request(layout.basis, partition, start, end, lengths, aborted, [*spans])
        try:
            answer, content = await self._helper.ask(request, slices)
        except HelperDied as error:
            raise WriterDied(str(error)) from error
        assert isinstance(answer, Answer)
        if answer.corrupt:
            raise CorruptBatch(answer.corrupt)
        if answer.missing:
            raise MissingSchemas(answer.missing)
        if answer.failed:
            raise WriterDied(f"the helper failed to write a file: {answer.failed}")
        return FileContent(content, answer.rows, answer.bounds, answer.split_offsets) if answer.rows else None

    async def close(self) -> None:
        """End the helper. Idempotent."""
        await self._helper.close()
