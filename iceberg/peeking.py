"""Looks into a table for people: its files, where one record is in them, the first rows of a file. Bounded.

Everything is read from the store as it is now, and nothing is remembered. Parquet is read in threads, through
ranges of the file, until a budget of bytes is spent.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from iceberg import history, ledger, manifests
from iceberg import metadata as table_metadata
from iceberg.evolution import KAFKA_ID
from iceberg.head import Head, load
from iceberg.sealed import read
from iceberg.segments import SegmentReader
from iceberg.small_files import LiveFile
from objectstore.turns import in_turns

if TYPE_CHECKING:
    from collections.abc import Awaitable

    import pyarrow.parquet as pq

    from iceberg.metadata import Metadata
    from iceberg.warehouse import Warehouse
    from objectstore.store import ObjectStore

_T = TypeVar("_T")

PAGE_BYTES: Final = 64 * 1024
"""Of a column that are read ahead."""
OFFSET: Final = "offset"
"""Of the column of what Kafka knows, whose name a table may change."""


class TooLarge(ValueError):
    """It is more than one look may read."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one look: bytes of metadata and its list of manifests, manifests that are read, bytes of a data file
    that are read, and how long one read of it may take, seconds.
    """

    metadata_bytes_max: int
    manifests_max: int
    file_bytes_max: int
    read_s_max: float


class Files(NamedTuple):
    """Data files. `looked_at` of `of` manifests were read, the newest first."""

    files: Sequence[LiveFile]
    looked_at: int
    of: int


class Snapshots(NamedTuple):
    """Some of a table's snapshots, the newest first, of `of` in all."""

    some: Sequence[Mapping[str, Any]]
    of: int


class Peeking:
    """Looks into tables of one warehouse.

    Each method raises StoreError, and ValueError (TooLarge) for what is not what a table's files are.
    """

    def __init__(self, store: ObjectStore, warehouse: Warehouse, bounds: Bounds) -> None:
        self._store, self._warehouse, self._bounds = store, warehouse, bounds

    async def head(self, location: str) -> Head:
        """The table's metadata and its manifests."""
        found = await self._store.head(self._warehouse.key(location))
        if found.size > self._bounds.metadata_bytes_max:
            raise TooLarge(
                f"its metadata has {found.size} bytes, {self._bounds.metadata_bytes_max} are looked at"
            )
        return await load(self._store, self._warehouse, location)

    async def files(self, head: Head, wanted: Callable[[LiveFile], bool], most: int) -> Files:
        """Up to `most` of the data files that are wanted, those of the newest manifests first."""
        live = sorted(filter(manifests.live, head.manifests), key=_sequence, reverse=True)
        taken: list[LiveFile] = []
        looked_at = 0
        for each in live[: self._bounds.manifests_max]:
            looked_at += 1
            if each.manifest_length > self._bounds.metadata_bytes_max:
                raise TooLarge(f"{each.manifest_path} has {each.manifest_length} bytes")
            content = await read(self._store, self._warehouse, each.manifest_path, each.manifest_length)
            taken += filter(wanted, await asyncio.to_thread(manifests.live_files, each, content))
            if len(taken) >= most:
                break
        return Files(taken[:most], looked_at, len(live))

    async def snapshots(self, metadata: Metadata, skip: int, most: int) -> Snapshots:
        """`most` of the table's snapshots, the newest first, without the first `skip`; those in its history's
        files (history.py) are read as far as they are among these.
        """
        known = history.of({"properties": {}, **metadata})
        inline = sorted(metadata.get("snapshots") or (), key=_number, reverse=True)
        base = [each for each in inline if each["snapshot-id"] == known.base]
        newest = [
            each for each in inline if each["snapshot-id"] != known.base and _number(each) > known.through
        ]
        found = newest[skip : skip + most]
        before, reader = len(newest), SegmentReader(self._store, self._warehouse, 0)
        for segment in reversed(known.segments):
            first = max(skip - before, 0)
            if first < segment.size and len(found) < most:
                texts = await reader.read(metadata, segment)
                held = (await in_turns(history.decode_steps(texts)))[::-1]
                found += held[first : first + most - len(found)]
            before += segment.size
        if skip <= before:
            found += base[: most - len(found)]
        return Snapshots(found, before + len(base))

    async def position(self, head: Head, file: LiveFile, offset: int) -> int | None:
        """The place of a record in a file, from 0; None where the file has none of this offset."""
        name = _column(head.metadata)
        return await self._opened(file, lambda parquet: _position(parquet, name, offset))

    async def rows(self, file: LiveFile, most: int) -> list[dict[str, Any]]:
        """The first rows of a file, as plain values by column."""
        return await self._opened(file, lambda parquet: _rows(parquet, most))

    async def _opened(self, file: LiveFile, work: Callable[[pq.ParquetFile], _T]) -> _T:
        source = _Ranges(self._store, self._warehouse.key(file.location), file.size, self._bounds)
        return await asyncio.to_thread(_in_thread, source, work)


def added(metadata: Metadata, partition: int, offset: int) -> Mapping[str, Any] | None:
    """The snapshot that added a record, of those that the metadata names and that tell their ranges."""
    for snapshot in metadata.get("snapshots") or ():
        try:
            ranges = ledger.ranges(snapshot.get("summary") or {})
        except ledger.LedgerError:  # another engine's, which may say anything
            continue
        if any(each.partition == partition and each.start <= offset < each.end for each in ranges):
            found: Mapping[str, Any] = snapshot
            return found
    return None


class _Ranges(io.RawIOBase):
    """A file of the store, for a thread: read by ranges until its budget is spent."""

    def __init__(self, store: ObjectStore, key: str, size: int, bounds: Bounds) -> None:
        super().__init__()
        self._store, self._key, self._size = store, key, size
        self._left, self._read_s_max = bounds.file_bytes_max, bounds.read_s_max
        self._loop = asyncio.get_running_loop()
        self._at = 0

    def readable(self) -> bool:
        """See io."""
        return True

    def seekable(self) -> bool:
        """See io."""
        return True

    def tell(self) -> int:
        """See io."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Raises OSError: TooLarge's text where the budget is spent, or what the store says."""
        rest = max(self._size - self._at, 0)
        length = rest if size is None or size < 0 else min(size, rest)
        if not length:
            return b""
        if length > self._left:
            raise OSError("more of the file would have to be read than one look may")
        self._left -= length
        data = self._get(self._store.get_range(self._key, self._at, length))
        self._at += len(data)
        return data

    def _get(self, reading: Awaitable[bytes]) -> bytes:
        async def wait() -> bytes:
            async with asyncio.timeout(self._read_s_max):
                return await reading

        return asyncio.run_coroutine_threadsafe(wait(), self._loop).result()


def _in_thread(source: _Ranges, work: Callable[[pq.ParquetFile], _T]) -> _T:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Pages as they are wanted: a column's whole piece may be larger than the budget.
        with pq.ParquetFile(source, pre_buffer=False, buffer_size=PAGE_BYTES) as parquet:
            return work(parquet)
    except (OSError, pa.ArrowException) as error:
        raise ValueError(f"the file cannot be looked at: {error}") from error


def _position(parquet: pq.ParquetFile, name: str, offset: int) -> int | None:
    before = 0
    for number in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(number)
        if _may_have(group, name, offset):
            column = parquet.read_row_group(number, columns=[name], use_threads=False).column(0)
            values = column.combine_chunks().flatten()[0].to_numpy(zero_copy_only=False)
            places = (values == offset).nonzero()[0]
            if len(places):
                return before + int(places[0])
        before += group.num_rows
    return None


def _may_have(group: pq.RowGroupMetaData, name: str, offset: int) -> bool:
    column = next(
        each
        for each in (group.column(number) for number in range(group.num_columns))
        if each.path_in_schema == name
    )
    found = column.statistics
    return found is None or not found.has_min_max or found.min <= offset <= found.max


def _rows(parquet: pq.ParquetFile, most: int) -> list[dict[str, Any]]:
    for some in parquet.iter_batches(batch_size=most, use_threads=False):
        found: list[dict[str, Any]] = some.slice(0, most).to_pylist()
        return found
    return []


def _column(metadata: Metadata) -> str:
    """The path of the column of offsets."""
    fields = table_metadata.current_fields(metadata)
    return f"{next(each['name'] for each in fields if each['id'] == KAFKA_ID)}.{OFFSET}"


def _number(snapshot: Mapping[str, Any]) -> int:
    """Its place in the order of commits; tables of format version 1 tell times only."""
    return int(snapshot.get("sequence-number") or snapshot.get("timestamp-ms") or 0)


def _sequence(manifest: Any) -> int:
    return int(manifest.sequence_number or 0)
