"""Files are written in a helper process, which leaves the agent's interpreter alone.

Turning records into columns is Python work of milliseconds; helper.py says why not in a thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, count

from coordination.helper import Helper, HelperDied
from coordination.state.types import Span
from iceberg.column_metrics import ColumnMetrics
from iceberg.groups import FILES_MAX, Values
from iceberg.layout import Layout, LayoutBasis, MissingSchemas
from iceberg.merging import Expected, UnfitFile
from iceberg.sorting import Order
from iceberg.writer import Bounds, FileContent, TooManyFiles
from iceberg.writing import Merging, WriterDied
from objectstore.batch import CorruptBatch
from objectstore.transactions import Aborted

WRITE_SECONDS_MAX = 300.0
"""Longest time for one file before the helper is taken for hung and ended."""


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
    files_max: int = FILES_MAX


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What the helper is asked for, of merge `number`: to begin it (`fields`), to take a file (`expected`,
    whose bytes follow), to drop it, or else to finish it.
    """

    number: int
    fields: str = ""
    partition: int = 0
    order: Order = ()
    numbers: bool = False
    expected: Expected | None = None
    drop: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """A file as far as the helper tells of it; its bytes, `size` of them, follow."""

    size: int
    rows: int
    bounds: dict[int, Bounds]
    split_offsets: list[int]
    columns: dict[int, ColumnMetrics]
    values: Values

    @classmethod
    def of(cls, file: FileContent) -> Made:
        """A file without its bytes."""
        return cls(file.size, file.rows, file.bounds, file.split_offsets, file.columns, file.values)

    def read(self, content: memoryview) -> FileContent:
        """Inverse of `of`."""
        return FileContent([content], self.rows, self.bounds, self.split_offsets, self.columns, self.values)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the helper says: an error, schemas it lacks, or the files' facts; the files' bytes follow."""

    corrupt: str = ""
    unfit: str = ""
    missing: MissingSchemas | None = None
    failed: str = ""
    too_many: bool = False
    files: Sequence[Made] = ()


class ProcessWriter:
    """Writes in a helper process, started when first needed; one file at a time."""

    def __init__(self) -> None:
        self._helper = Helper("iceberg.writer_process", WRITE_SECONDS_MAX)
        self._merges = count(1)

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
        files_max: int = FILES_MAX,
    ) -> list[FileContent]:
        """See FileWriter."""
        lengths = [len(each) for each in slices]
        request = Request(layout.basis, partition, start, end, lengths, aborted, [*spans], files_max)
        return await self.ask(request, slices)

    def merging(self, fields: str, partition: int, order: Order = (), numbers: bool = False) -> Merging:
        """See FileWriter. Files of other topics are written while it goes on."""
        return _ProcessMerging(self, MergeRequest(next(self._merges), fields, partition, order, numbers))

    async def ask(
        self, request: Request | MergeRequest, slices: Sequence[memoryview] = ()
    ) -> list[FileContent]:
        """The files that the helper made. Raises what its callers raise."""
        try:
            answer, content = await self._helper.ask(request, slices)
        except HelperDied as error:
            raise WriterDied(str(error)) from error
        assert isinstance(answer, Answer)
        if answer.corrupt:
            raise CorruptBatch(answer.corrupt)
        if answer.unfit:
            raise UnfitFile(answer.unfit)
        if answer.missing is not None:
            raise answer.missing
        if answer.failed:
            raise WriterDied(f"the helper failed to write a file: {answer.failed}")
        if answer.too_many:
            raise TooManyFiles
        ends = accumulate(each.size for each in answer.files)
        return [
            each.read(content[end - each.size : end]) for each, end in zip(answer.files, ends, strict=True)
        ]

    async def close(self) -> None:
        """End the helper. Idempotent."""
        await self._helper.close()


class _ProcessMerging:
    """A merge in the helper, which forgets it when it ends: then the next step raises WriterDied."""

    def __init__(self, writer: ProcessWriter, request: MergeRequest) -> None:
        self._writer = writer
        self._begin: MergeRequest | None = request
        self._number = request.number
        self._over = False

    async def add(self, content: memoryview, expected: Expected) -> None:
        if self._begin is not None:
            begin, self._begin = self._begin, None
            await self._ask(begin)
        await self._ask(MergeRequest(self._number, expected=expected), content)

    async def finish(self) -> FileContent:
        (found,) = await self._ask(MergeRequest(self._number))
        self._over = True
        return found

    async def _ask(self, request: MergeRequest, *content: memoryview) -> list[FileContent]:
        try:
            return await self._writer.ask(request, content)
        except BaseException:  # the helper has forgotten it, or was ended
            self._over = True
            raise

    async def drop(self) -> None:
        if self._over or self._begin is not None:
            return
        self._over = True
        with suppress(WriterDied):
            await self._writer.ask(MergeRequest(self._number, drop=True))
