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
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)

from iceberg import ledger, lineage, manifest_avro, manifests, sorting
from iceberg.arrow_types import numbers
from iceberg.groups import Group
from iceberg.head import Head
from iceberg.row_ids import Fingerprint, fingerprint
from iceberg.sealed import read
from iceberg.snapshots import SnapshotBuilder
from iceberg.warehouse import OutsideWarehouse, Warehouse
from objectstore.offset_ranges import joined
from objectstore.store import NotFound, ObjectStore

FILES_MAX = 20_000
"""Files that one commit may take away and bring."""
FILE_ROWS_MAX = 50_000_000
"""Rows of one file: where each of them lies is in memory while the file is looked at (12 bytes, and 32 more
where rows have ids).
"""
HASHED_ROWS = 1 << 20  # at once: the hashes take a multiple of what is hashed
FILES_AT_ONCE = 2
SNAPSHOT_ID_MAX = (1 << 63) - 1
COLUMNS = ("kafka.partition", "kafka.offset")
NUMBERS = (lineage.ROW_ID, lineage.SEQUENCE)
_TAIL = 8
"""Bytes at a Parquet file's end: the footer's length (4), and PAR1."""
FOOTER_MAX = 16 << 20


class Content(NamedTuple):
    """What a file holds: stretches of offsets without a hole, [start, end), ascending; ids of its columns;
    which of its rows has which id, where rows have ids (lineage.py).
    """

    stretches: list[tuple[int, int]]
    columns: frozenset[int]
    ids: Fingerprint = Fingerprint()


class Inherited(NamedTuple):
    """What rows have that do not say so themselves: the id of the file's first row (None: they must say), and
    by which commit they came.
    """

    row_id: int | None
    sequence: int


class Unlike(ValueError):
    """The engine's snapshot is not the same table in other files. The message says what to do."""


class Replacement:
    """One commit of an engine to the table `head`."""

    def __init__(self, store: ObjectStore, warehouse: Warehouse, head: Head) -> None:
        self._store = store
        self._warehouse = warehouse
        self._head = head
        self._folder = warehouse.key(head.metadata["location"]) + "/"
        self._current = ledger.current_snapshot(head.metadata) or {}
        self._numbers = lineage.end_of(self._current) is not None
        self._inherited: dict[str, Inherited] = {}  # by location, of files that go

    async def made(
        self,
        builder: SnapshotBuilder,
        manifest_list: str,
        snapshot_id: int,
        by: str,
        now_ms: int,
    ) -> Head:
        """The head with the snapshot, stored and not yet visible. Raises Unlike and StoreError."""
        if not 0 < snapshot_id <= SNAPSHOT_ID_MAX:
            raise Unlike(f"snapshot-id {snapshot_id}: it is 1 to {SNAPSHOT_ID_MAX}")
        if not self._head.manifests:
            raise Unlike("the table has no files")
        listed = await self._listed(manifest_list)
        before = {each.manifest_path: each for each in filter(manifests.live, self._head.manifests)}
        after = {each.manifest_path: each for each in filter(manifests.live, listed)}
        old = await self._files(each for path, each in before.items() if path not in after)
        new = await self._files(each for path, each in after.items() if path not in before)
        gone = [each.data_file for path, each in old.items() if path not in new]
        come = [each.data_file for path, each in new.items() if path not in old]
        if self._numbers:
            self._inherited = {path: _inherited(each) for path, each in old.items()}
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
        return await asyncio.to_thread(manifest_avro.read_list, location, content)

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

    async def _files(self, listed: Iterable[ManifestFile]) -> dict[str, ManifestEntry]:
        """The live data files of manifests, by location."""
        found: dict[str, ManifestEntry] = {}
        for manifest in listed:
            if manifest.content == ManifestContent.DELETES:
                raise Unlike(f"{manifest.manifest_path} has delete files: a topic's table takes none")
            content = await self._own(manifest.manifest_path, "manifest", manifest.manifest_length)
            for entry in await asyncio.to_thread(manifests.entries, manifest, content):
                path = entry.data_file.file_path
                if path in found:
                    raise Unlike(f"{path} is named twice")
                found[path] = entry
            if len(found) > FILES_MAX:
                raise Unlike(f"over {FILES_MAX} files change in one commit: rewrite fewer at once")
        return found

    async def _require_same(self, gone: Sequence[DataFile], come: Sequence[DataFile]) -> None:
        """That the files which come have exactly the offsets of those which go."""
        goes, comes = (sum(each.record_count for each in some) for some in (gone, come))
        if goes != comes:
            raise Unlike(f"{goes} rows would go and {comes} come")
        for each in come:
            self._require_fit(each)
        old, new = _by_partition(gone), _by_partition(come)
        if old.keys() != new.keys():
            going, coming = (sorted({partition for partition, _ in some}) for some in (old, new))
            raise Unlike(
                f"files of the partitions {going} would go, of {coming} come, or partitioned otherwise: "
                "rewrite files of one partition spec and value into files of the same"
            )
        for place in old:
            partition = place[0]
            before = await self._contents(partition, old[place], in_order=False)
            after = await self._contents(
                partition, new[place], in_order=not sorting.current(self._head.metadata)
            )
            # As many rows in all, so the same offsets of each partition are the same rows, none twice.
            if _offsets(before) != _offsets(after):
                raise Unlike(f"partition {partition}: files that come hold other offsets than those that go")
            wanted = frozenset[int]().union(*(each.columns for each in before))
            for file, content in zip(new[place], after, strict=True):
                lost = sorted(wanted - content.columns)
                if lost:
                    raise Unlike(f"{file.file_path} lacks columns of files that go: field ids {lost}")
            if _ids(before) != _ids(after):
                raise Unlike(
                    f"partition {partition}: rows would have another {lineage.ROW_ID} or {lineage.SEQUENCE} "
                    "than they have: rewrite with an engine that keeps both (row lineage of format version 3)"
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

    async def _contents(self, partition: int, files: Sequence[DataFile], in_order: bool) -> list[Content]:
        """What files of a partition hold. Raises Unlike where one is not as its manifest says, or its rows
        are not `in_order` of offsets though they should be.
        """
        slots = asyncio.Semaphore(FILES_AT_ONCE)

        async def of(file: DataFile) -> Content:
            async with slots:
                try:
                    return await self._content(partition, file, in_order)
                except NotFound:
                    raise Unlike(f"{file.file_path} is not there") from None
                except (pa.ArrowException, OSError, KeyError) as error:
                    raise Unlike(f"{file.file_path} cannot be read: {error}") from error

        return await asyncio.gather(*map(of, files))

    async def _content(self, partition: int, file: DataFile, in_order: bool) -> Content:
        if file.record_count > FILE_ROWS_MAX:
            raise Unlike(f"{file.file_path} has {file.record_count} rows, {FILE_ROWS_MAX} at most")
        key, size = self._warehouse.key(file.file_path), file.file_size_in_bytes
        if (await self._store.head(key)).size != size:
            raise Unlike(f"{file.file_path} has not the {size} bytes that its manifest says")
        tail = await self._store.get_range(key, max(0, size - _TAIL), _TAIL)
        length = int.from_bytes(tail[:4], "little") + _TAIL
        if tail[4:] != b"PAR1" or not _TAIL < length <= min(size, FOOTER_MAX):
            raise Unlike(f"{file.file_path} is no Parquet file")
        footer = await self._store.get_range(key, size - length, length)
        ranges, columns = await asyncio.to_thread(_looked_into, footer, size, self._numbers)
        parts = await self._store.get_ranges(key, ranges)
        pieces = {size - length: footer} | {at: part for (at, _), part in zip(ranges, parts, strict=True)}
        kept = Inherited(
            None, self._current["sequence-number"]
        )  # of rows that come (SnapshotBuilder.replace)
        inherited = self._inherited.get(file.file_path, kept) if self._numbers else None
        told = await asyncio.to_thread(_told, pieces, size, partition, file, in_order, inherited)
        return Content(told[0], columns, told[1])


def _by_partition(files: Iterable[DataFile]) -> dict[tuple[int, Group], list[DataFile]]:
    """By Kafka partition, and where they stand in the table's own partitioning."""
    found: dict[tuple[int, Group], list[DataFile]] = {}
    for each in files:
        extent = manifests.extent_of(each)
        if extent is None:
            raise Unlike(f"{each.file_path} does not say where it lies: leave it as it is")
        found.setdefault((extent.partition, manifests.group_of(each)), []).append(each)
    return found


def _inherited(entry: ManifestEntry) -> Inherited:
    return Inherited(manifest_avro.first_row_id(entry.data_file), entry.sequence_number or 0)


def _ids(contents: Iterable[Content]) -> Fingerprint:
    """Which rows of some files have which ids."""
    return reduce(Fingerprint.plus, (each.ids for each in contents), Fingerprint())


def _offsets(contents: Iterable[Content]) -> list[tuple[int, int]]:
    """All offsets of some files, as ranges in order and apart."""
    return joined(sorted(each for content in contents for each in content.stretches))


def _sparse(pieces: Mapping[int, bytes], size: int) -> Any:
    """A file of that size which has only these pieces: what lies between is never written or read."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # whoever asked for it closes it
    file.truncate(size)
    for at, piece in pieces.items():
        file.seek(at)
        file.write(piece)
    file.seek(0)
    return file


def _looked_into(footer: bytes, size: int, numbered: bool) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """Where the columns lie that say which records the rows are, and if these are `numbered` which ids they
    have (position and length), and all columns.
    """
    with _sparse({size - len(footer): footer}, size) as file:
        told = pq.read_metadata(file)
    found = []
    for group in map(told.row_group, range(told.num_row_groups)):
        columns = {each.path_in_schema: each for each in map(group.column, range(told.num_columns))}
        said = [each for each in NUMBERS if numbered and each in columns]
        for column in (columns[name] for name in (*COLUMNS, *said)):
            first = column.data_page_offset
            start = min(first, column.dictionary_page_offset or first)
            found.append((start, column.total_compressed_size))
    return found, frozenset(numbers(told.schema.to_arrow_schema()))


def _told(
    pieces: Mapping[int, bytes],
    size: int,
    partition: int,
    file: DataFile,
    in_order: bool,
    inherited: Inherited | None,
) -> tuple[list[tuple[int, int]], Fingerprint]:
    """The offsets of a file's rows (`_stretches`), and which of them has which id; `inherited`: None where
    rows have no ids.
    """
    with _sparse(pieces, size) as sparse:
        source = pq.ParquetFile(sparse)
        told = source.schema_arrow.names
        said = [each for each in NUMBERS if inherited is not None and each in told]
        rows = source.read(columns=[*COLUMNS, *said], use_threads=False)
    stretches = _stretches(rows.column("kafka"), partition, file, in_order)
    return stretches, Fingerprint() if inherited is None else _numbered(rows, file, inherited)


def _numbered(rows: pa.Table, file: DataFile, inherited: Inherited) -> Fingerprint:
    """Which of a file's rows has which id. Raises Unlike where that is not said."""
    nothing, first = pa.nulls(len(rows), pa.int64()), inherited.row_id
    said = [rows.column(each).combine_chunks() if each in rows.column_names else nothing for each in NUMBERS]
    ids = said[0] if first is None else pc.coalesce(said[0], pa.arange(first, first + len(rows)))
    if ids.null_count:
        raise Unlike(
            f"{file.file_path} does not say which {lineage.ROW_ID} its rows have: rewrite with an engine "
            "that keeps it (row lineage of format version 3)"
        )
    sequences = pc.coalesce(said[1], pa.scalar(inherited.sequence, pa.int64()))
    columns = rows.column("kafka").combine_chunks().field("offset"), ids, sequences
    found = Fingerprint()
    for start in range(0, len(rows), HASHED_ROWS):
        found = found.plus(fingerprint(*(each.slice(start, HASHED_ROWS) for each in columns)))
    return found


def _stretches(
    kafka: pa.ChunkedArray, partition: int, file: DataFile, in_order: bool
) -> list[tuple[int, int]]:
    """The offsets of a file's rows, which are as many as its manifest says, of the partition, none twice;
    `in_order`: they ascend from row to row.
    """
    both = pa.Table.from_struct_array(kafka).combine_chunks()
    partitions, offsets = both.column("partition"), both.column("offset")
    if kafka.null_count or partitions.null_count or offsets.null_count:
        raise Unlike(f"{file.file_path} has rows without a partition or an offset")
    if len(offsets) != file.record_count:
        raise Unlike(f"{file.file_path} has {len(offsets)} rows, its manifest says {file.record_count}")
    if not len(offsets) or not pc.all(pc.equal(partitions, partition)).as_py():
        raise Unlike(f"{file.file_path} has no rows, or rows of other partitions than {partition}")
    if not in_order:
        offsets = offsets.sort()
    steps = pc.subtract(offsets[1:], offsets[:-1])
    extent = manifests.extent_of(file)
    told = None if extent is None else (extent.first_offset, extent.last_offset)
    if pc.any(pc.less_equal(steps, 0)).as_py() or told != (offsets[0].as_py(), offsets[-1].as_py()):
        raise Unlike(f"{file.file_path}: its offsets do not ascend, or are not those of its bounds")
    holes = pc.indices_nonzero(pc.not_equal(steps, 1)).to_pylist()
    starts = offsets.take(pa.array([0, *(at + 1 for at in holes)])).to_pylist()
    ends = offsets.take(pa.array([*holes, len(offsets) - 1])).to_pylist()
    return [(start, end + 1) for start, end in zip(starts, ends, strict=True)]
