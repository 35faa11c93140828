"""What commits of a table store beside its rows: objects and bytes by kind, over many commits.

All is real but the Parquet files: one is made, and others are told of like it, with their own offsets and as
many bytes as a file has here. Metadata does not look into them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from coordination.state.types import Span
from iceberg import writer
from iceberg.committer import Committer, CommitterOptions
from iceberg.groups import FILES_MAX
from iceberg.layout import Layout
from iceberg.merging import Expected
from iceberg.small_files import FileSizes
from iceberg.sorting import Order
from iceberg.writer import Bounds, FileContent
from objectstore import batch
from objectstore.adapters.memory import MemoryStore
from objectstore.store import PLAIN, Buffer, PutMode
from objectstore.transactions import Aborted
from tests.unit.iceberg import rig as rigs
from tests.unit.iceberg.rig import Rig
from tests.unit.schema import samples

FILE_BYTES = 1_000
RECORDS = 20
PARTITION_ID, OFFSET_ID = 2, 3
KINDS = ("int64", "string", "double")

_KIND = re.compile(r"(\.metadata\.json|\.history|\.parquet|-snap\.x|-([a-z])\d+\.x[0-9a-f]{16}\.avro)")
_MANIFESTS = {"m": "added", "a": "merged", "r": "replaced", "d": "replaced", "b": "base"}
_NAMES = {".metadata.json": "metadata", ".history": "history", ".parquet": "rows", "-snap.x": "list"}


class CountingStore(MemoryStore):
    """Counts what is put below `tables/`."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        found = _KIND.search(key.rsplit("/", 1)[-1]) if "tables/" in key else None
        if found is not None:
            kind = _MANIFESTS[found[2]] if found[2] else _NAMES[found[1]]
            self.objects[kind] += 1
            self.bytes[kind] += sum(memoryview(part).nbytes for part in parts)
        return await super().put(key, parts, mode)


class LikeOne:
    """A FileWriter whose files are told of like one that was made."""

    def __init__(self) -> None:
        self._first: FileContent | None = None
        self._count = 0

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
        self._first = self._first or writer.write_file(layout, partition, slices, start, end)
        return [self.like(partition, start, end - 1, end - start, FILE_BYTES)]

    def like(self, partition: int, first: int, last: int, rows: int, size: int) -> FileContent:
        """A file of these offsets; its bytes are its own."""
        assert self._first is not None
        self._count += 1
        own = {PARTITION_ID: Bounds(partition, partition), OFFSET_ID: Bounds(first, last)}
        parts = [memoryview(self._count.to_bytes(8, "big") * (size // 8))]
        return replace(self._first, parts=parts, rows=rows, bounds=self._first.bounds | own)

    def merging(self, fields: str, partition: int, order: Order = (), numbers: bool = False) -> LikeAll:
        """See FileWriter."""
        return LikeAll(self, partition)


class LikeAll:
    """A merge of such files."""

    def __init__(self, files: LikeOne, partition: int) -> None:
        self._files = files
        self._partition = partition
        self._size = 0
        self._expected: list[Expected] = []

    async def add(self, content: memoryview, expected: Expected) -> None:
        """See Merging."""
        self._size += len(content)
        self._expected.append(expected)

    async def finish(self) -> FileContent:
        """See Merging."""
        first, last = self._expected[0].first, self._expected[-1].last
        rows = sum(each.rows for each in self._expected)
        return self._files.like(self._partition, first, last, rows, self._size)

    async def drop(self) -> None:
        """See Merging."""


@dataclass
class Spent:
    """What some commits stored beside rows, compactions between them included."""

    commits: int
    objects: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    @property
    def objects_per_commit(self) -> float:
        """PUTs."""
        return (self.objects.total() - self.objects["rows"]) / self.commits

    @property
    def bytes_per_commit(self) -> float:
        """Bytes."""
        return (self.bytes.total() - self.bytes["rows"]) / self.commits


@dataclass
class Busy:
    """A topic that gets records in each partition before each commit, and its table."""

    rig: Rig
    store: CountingStore
    committer: Committer
    content: bytes
    partitions: int

    async def commits(self, count: int) -> Spent:
        """So many commits, each followed by a compaction where one is due."""
        objects, size = self.store.objects.copy(), self.store.bytes.copy()
        for _ in range(count):
            for partition in range(self.partitions):
                await self.rig.store_batch(self.content, partition)
            assert await self.committer.run_once() is not None
            if self.committer.compaction_due:
                await self.committer.compact()
        return Spent(count, self.store.objects - objects, self.store.bytes - size)


@asynccontextmanager
async def busy(
    folder: Path,
    partitions: int,
    columns: int = 0,
    options: CommitterOptions | None = None,
    **configs: str,
) -> AsyncIterator[Busy]:
    """A topic whose values are messages of so many columns; 0: only bytes."""
    options = options or CommitterOptions(files=FileSizes(busy_percent_max=100))
    store = CountingStore()
    async with rigs.running(folder, options, store=store) as rig:
        await rig.create_topic(partitions=partitions, **configs)
        value = b"x" * 50
        if columns:
            await rig.bind(wide(columns), "p.M")
            message = samples.message_type(wide(columns), "p.M").message_class()
            for number in range(columns):
                values = (number * 1_000_003, f"text number {number}", number * 1.5)
                setattr(message, f"column_{number}", values[number % 3])
            value = message.SerializeToString()
        records = [batch.NewRecord(1_700_000_000_000, b"k", value) for _ in range(RECORDS)]
        committer = Committer(replace(rig.parts, writer=LikeOne()), "t")
        yield Busy(rig, store, committer, batch.build(records), partitions)


def wide(columns: int) -> bytes:
    """A message of so many fields."""
    fields = " ".join(f"{KINDS[at % 3]} column_{at} = {at + 1};" for at in range(columns))
    return f'syntax = "proto3"; package p; message M {{ {fields} }}'.encode()
