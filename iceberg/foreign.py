"""Commits of other engines to a topic's table: a snapshot of operation `replace`, with the same rows.

Spark's or Trino's rewrite of data files or manifests is taken over when it holds what the table holds:
offset by offset, read from the files themselves, each new file with offsets of one partition, as all files
of such a table (retention and readers go by their bounds). The snapshot that becomes the table's is made
here, with the engine's files and id and the table's ledger; the engine's manifests are not used (it removes
them itself when it sees that). Decoded columns are not compared here: the audit does that.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestFile

from iceberg import ledger, manifests
from iceberg.head import Head
from iceberg.sealed import read
from iceberg.snapshots import SnapshotBuilder
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.store import NotFound, ObjectStore

FILES_MAX = 20_000
"""Files that one commit may take away and bring."""
ROWS_MAX = 200_000_000
"""Rows of them, whose offsets are held in memory (8 bytes each) partition by partition."""
FILES_AT_ONCE = 8
COLUMNS = ("kafka.partition", "kafka.offset")
_TAIL = 8
"""Bytes at a Parquet file's end: the footer's length (4), and PAR1."""
FOOTER_MAX = 16 << 20


class Unlike(ValueError):
    """The engine's snapshot is not the same table in other files. The message says what to do."""


class Replacement:
    """One commit of an engine to the table `head`."""

    def __init__(self, store: ObjectStore, warehouse: Warehouse, head: Head) -> None:
        self._store = store
        self._warehouse = warehouse
        self._head = head
        self._folder = warehouse.key(head.metadata["location"]) + "/"

    async def made(
        self,
        builder: SnapshotBuilder,
        manifest_list: str,
        snapshot_id: int,
        by: str,
        now_ms: int,
    ) -> Head:
        """The head with the snapshot, stored and not yet visible. Raises Unlike and StoreError."""
        listed = await self._listed(manifest_list)
        before = {each.manifest_path: each for each in filter(manifests.live, self._head.manifests)}
        after = {each.manifest_path: each for each in filter(manifests.live, listed)}
        old = await self._files(each for path, each in before.items() if path not in after)
        new = await self._files(each for path, each in after.items() if path not in before)
        gone = [each for path, each in old.items() if path not in new]
        come = [each for path, each in new.items() if path not in old]
        await self._require_same(gone, come)
        metadata = self._head.metadata
        topic_id = bytes.fromhex(self._head.topic_id)
        known = ledger.next_offsets(metadata, topic_id)
        told = {**ledger.summary(topic_id, known, (), by), ledger.BY: by}
        if not gone:  # and none come: manifests alone were rewritten
            return await builder.regroup(metadata, self._head.manifests, snapshot_id, told, now_ms)
        return await builder.replace(
            metadata,
            self._head.manifests,
            [manifests.of_engine(each) for each in come],
            {each.file_path for each in gone},
            snapshot_id,
            told,
            now_ms,
        )

    async def _listed(self, location: str) -> list[ManifestFile]:
        content = await self._own(location, "manifest list", None)
        return await asyncio.to_thread(manifests.read_list, location, content)

    async def _own(self, location: str, what: str, length: int | None) -> bytes:
        try:
            if not self._warehouse.key(location).startswith(self._folder):
                raise OutsideWarehouse(location)
            return await read(self._store, self._warehouse, location, length)
        except OutsideWarehouse:
            raise Unlike(
                f"{what} {location}: it must lie below the table's own folder {self._folder}"
            ) from None
        except NotFound:
            raise Unlike(f"{what} {location} is not there") from None

    async def _files(self, listed: Iterable[ManifestFile]) -> dict[str, DataFile]:
        """The live data files of manifests, by location."""
        found: dict[str, DataFile] = {}
        for manifest in listed:
            if manifest.content == ManifestContent.DELETES:
                raise Unlike(f"{manifest.manifest_path} has delete files: a topic's table takes none")
            content = await self._own(manifest.manifest_path, "manifest", manifest.manifest_length)
            for entry in await asyncio.to_thread(manifests.entries, manifest, content):
                file = entry.data_file
                if file.file_path in found:
                    raise Unlike(f"{file.file_path} is named twice")
                found[file.file_path] = file
            if len(found) > FILES_MAX:
                raise Unlike(f"over {FILES_MAX} files change in one commit: rewrite fewer at once")
        return found

    async def _require_same(self, gone: Sequence[DataFile], come: Sequence[DataFile]) -> None:
        """That the files which come have exactly the offsets of those which go."""
        rows = Counter(gone=sum(_rows(gone).values()), come=sum(_rows(come).values()))
        if rows["gone"] != rows["come"]:
            raise Unlike(f"{rows['gone']} rows would go and {rows['come']} come")
        if rows["gone"] > ROWS_MAX:
            raise Unlike(f"{rows['gone']} rows in one commit, {ROWS_MAX} at most: rewrite fewer at once")
        for each in come:
            self._require_fit(each)
        left, right = _by_partition(gone), _by_partition(come)
        if left.keys() != right.keys():
            raise Unlike(f"files of the partitions {sorted(left)} would go, of {sorted(right)} come")
        for partition, files in left.items():
            old, new = await self._offsets(partition, files), await self._offsets(partition, right[partition])
            if not await asyncio.to_thread(old.equals, new):
                raise Unlike(
                    f"partition {partition}: the files that come do not hold the offsets of those that go"
                )

    def _require_fit(self, file: DataFile) -> None:
        """That a file is as Floe's own are."""
        if file.content != DataFileContent.DATA or file.file_format != FileFormat.PARQUET:
            raise Unlike(f"{file.file_path} is no Parquet file of rows")
        try:
            inside = self._warehouse.key(file.file_path).startswith(self._folder)
        except OutsideWarehouse:
            inside = False
        if not inside:
            raise Unlike(f"{file.file_path} does not lie below the table's own folder {self._folder}")
        if manifests.extent_of(file) is None:
            raise Unlike(
                f"{file.file_path} holds more than one partition, or has no bounds of kafka.partition and "
                "kafka.offset: rewrite one partition at a time (where => 'kafka.partition = 0'), with metrics"
            )

    async def _offsets(self, partition: int, files: Sequence[DataFile]) -> pa.Array:
        """All offsets of files, ascending over all of them. Raises Unlike where they are not."""
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def of(file: DataFile) -> pa.Array:
            async with slots:
                return await self._offsets_of(partition, file)

        found = pa.concat_arrays(await asyncio.gather(*map(of, files)))
        if not await asyncio.to_thread(_ascends, found):
            raise Unlike(
                f"partition {partition}: files overlap, or their offsets do not ascend: sort by kafka.offset"
            )
        return found

    async def _offsets_of(self, partition: int, file: DataFile) -> pa.Array:
        key, size = self._warehouse.key(file.file_path), file.file_size_in_bytes
        try:
            tail = await self._store.get_range(key, max(0, size - _TAIL), _TAIL)
            length = int.from_bytes(tail[:4], "little") + _TAIL
            if tail[4:] != b"PAR1" or not _TAIL < length <= min(size, FOOTER_MAX):
                raise Unlike(f"{file.file_path} is no Parquet file of {size} bytes")
            footer = await self._store.get_range(key, size - length, length)
            ranges = await asyncio.to_thread(_ranges, footer, size)
            parts = await self._store.get_ranges(key, ranges)
        except NotFound:
            raise Unlike(f"{file.file_path} is not there") from None
        except (pa.ArrowException, OSError, KeyError) as error:
            raise Unlike(f"{file.file_path} cannot be read: {error}") from error
        pieces = {size - length: footer} | {at: part for (at, _), part in zip(ranges, parts, strict=True)}
        found = await asyncio.to_thread(_read, pieces, size)
        partitions, offsets = found
        if len(offsets) != file.record_count:
            raise Unlike(f"{file.file_path} has {len(offsets)} rows, its manifest says {file.record_count}")
        if len(offsets) and not pc.all(pc.equal(partitions, partition)).as_py():
            raise Unlike(f"{file.file_path} has rows of other partitions than {partition}")
        extent = manifests.extent_of(file)
        told = None if extent is None else (extent.first_offset, extent.last_offset)
        if len(offsets) and told != (offsets[0].as_py(), offsets[-1].as_py()):
            raise Unlike(f"{file.file_path}: its offsets are not those of its bounds, or not in their order")
        return offsets


def _rows(files: Iterable[DataFile]) -> Mapping[str, int]:
    return {each.file_path: each.record_count for each in files}


def _by_partition(files: Iterable[DataFile]) -> dict[int, list[DataFile]]:
    found: dict[int, list[tuple[int, DataFile]]] = {}
    for each in files:
        extent = manifests.extent_of(each)
        if extent is None:
            raise Unlike(f"{each.file_path} does not say where it lies: leave it as it is")
        found.setdefault(extent.partition, []).append((extent.first_offset, each))
    return {
        partition: [file for _, file in sorted(some, key=lambda one: one[0])]
        for partition, some in found.items()
    }


def _ascends(offsets: pa.Array) -> bool:
    return pc.all(pc.greater(offsets[1:], offsets[:-1])).as_py() is not False


def _sparse(pieces: Mapping[int, bytes], size: int) -> Any:
    """A file of that size which has only these pieces: what lies between is never written or read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever asked for it closes it
    file.truncate(size)
    for at, piece in pieces.items():
        file.seek(at)
        file.write(piece)
    file.seek(0)
    return file


def _ranges(footer: bytes, size: int) -> list[tuple[int, int]]:
    """Where the columns lie that say which records the rows are: position and length."""
    with _sparse({size - len(footer): footer}, size) as file:
        told = pq.read_metadata(file)
    found = []
    for group in range(told.num_row_groups):
        columns = {
            told.row_group(group).column(each).path_in_schema: told.row_group(group).column(each)
            for each in range(told.num_columns)
        }
        for name in COLUMNS:
            column = columns[name]
            start = column.dictionary_page_offset or column.data_page_offset
            found.append((min(start, column.data_page_offset), column.total_compressed_size))
    return found


def _read(pieces: Mapping[int, bytes], size: int) -> tuple[pa.Array, pa.Array]:
    with _sparse(pieces, size) as file:
        table = pq.ParquetFile(file).read(columns=list(COLUMNS), use_threads=False)
    kafka = table.column("kafka").combine_chunks()
    return kafka.field("partition"), kafka.field("offset")
