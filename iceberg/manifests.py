"""Manifests and manifest lists, written and read in memory with pyiceberg's Avro code.

CPU work only: call it in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from typing import Any, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, LongType, PrimitiveType
from pyiceberg.utils.datetime import EPOCH_DATE

from iceberg.column_metrics import ColumnMetrics
from iceberg.evolution import OFFSET_ID, PARTITION_ID, TIMESTAMP_ID
from iceberg.groups import UNPARTITIONED, Group
from iceberg.manifest_avro import (
    ManifestListWriter,
    ManifestWriter,
    Output,
    data_file,
    first_row_id,
    read_entries,
    set_first_row_id,
)
from iceberg.metadata import current_schema
from iceberg.sealed import Damaged
from iceberg.small_files import LiveFile
from iceberg.writer import Bounds, FileContent

SCHEMAS_REMEMBERED = 64
_SORT_ORDER = [each.name for each in DATA_FILE_TYPE[2].fields].index("sort_order_id")
_BOUND_TYPES: dict[int, PrimitiveType] = {
    PARTITION_ID: IntegerType(),
    OFFSET_ID: LongType(),
    TIMESTAMP_ID: LongType(),  # µs: the same bytes as a timestamptz
}


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that was stored. `size` in bytes."""

    location: str
    size: int
    rows: int
    bounds: Mapping[int, Bounds]
    split_offsets: Sequence[int]
    told: DataFile | None = None
    """What another engine's manifest says of it, with its metrics."""
    columns: Mapping[int, ColumnMetrics] = field(default_factory=dict)
    """Of decoded columns, by Iceberg id."""
    group: Group = UNPARTITIONED
    order_id: int = 0
    """Of the table's sort order that its rows stand in; 0: in none that it names."""


def added_file(
    location: str, made: FileContent, group: Group = UNPARTITIONED, order_id: int = 0
) -> AddedFile:
    """A file that Floe made and stored."""
    size, starts = made.size, made.split_offsets
    return AddedFile(location, size, made.rows, made.bounds, starts, None, made.columns, group, order_id)


@dataclass(frozen=True, slots=True)
class Written:
    """An Avro file to store, and what the next level says of it. Its name has a checksum (sealed.py)."""

    content: bytes
    manifest: ManifestFile


def write_added(
    location: str,
    table: Form,
    snapshot_id: int,
    files: Iterable[AddedFile],
    sequence_number: int | None = None,
) -> Written:
    """A manifest of files that the snapshot adds.

    `sequence_number`: that of their rows, where these were in the table before; None: the snapshot's own.
    """
    output = Output(location)
    with _writer(table, output, snapshot_id) as writer:
        for each in files:
            writer.add_entry(_added(snapshot_id, sequence_number, _data_file(each)))
    return Written(output.content, writer.to_manifest_file())


def _writer(table: Form, output: Output, snapshot_id: int) -> ManifestWriter:
    return ManifestWriter(table.version, table.spec, table.schema, output, snapshot_id)


def _added(snapshot_id: int, sequence_number: int | None, file: DataFile) -> ManifestEntry:
    """An entry of a file that the snapshot adds."""
    return ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED,
        snapshot_id=snapshot_id,
        sequence_number=sequence_number,
        data_file=file,
    )


def write_merged(
    location: str,
    table: Form,
    snapshot_id: int,
    manifests: Sequence[ManifestFile],
    contents: Mapping[str, bytes],
) -> Written:
    """One manifest with the live files of several; who added them and when stays as it was."""
    output = Output(location)
    with _writer(table, output, snapshot_id) as writer:
        for manifest in manifests:
            for entry in entries(manifest, contents[manifest.manifest_path]):
                writer.existing(entry)
    return Written(output.content, writer.to_manifest_file())


class Source(NamedTuple):
    """A manifest of which files are taken: of those it names as live, or as removed by its snapshot."""

    manifest: ManifestFile
    takes: Callable[[ManifestEntry], bool]
    removed: bool = False


def write_as_added(
    location: str,
    table: Form,
    snapshot_id: int,
    sources: Sequence[Source],
    contents: Mapping[str, bytes],
) -> Written | None:
    """One manifest of the files of several that are taken, as if the snapshot had added them.

    In the order in which they came into the table. None when none is taken.
    """
    read = {False: entries, True: _removed_entries}
    found = [
        entry
        for one in sources
        for entry in read[one.removed](one.manifest, contents[one.manifest.manifest_path])
        if one.takes(entry)
    ]
    if not found:
        return None
    output = Output(location)
    with _writer(table, output, snapshot_id) as writer:
        for each in sorted(found, key=lambda each: each.file_sequence_number or 0):
            # What the rows are known by stays: their ids, and by which commit they came.
            number = each.sequence_number if table.version > 2 else None
            writer.add_entry(_added(snapshot_id, number, each.data_file))
    return Written(output.content, writer.to_manifest_file())


class Extent(NamedTuple):
    """What a data file's bounds say: its partition, its highest and its lowest offset."""

    partition: int
    last_offset: int
    first_offset: int


class Removed(NamedTuple):
    """Data files that a snapshot removes: how many, their rows and their bytes."""

    files: int = 0
    rows: int = 0
    size: int = 0

    def plus(self, other: Removed) -> Removed:
        """Both together."""
        return Removed(self.files + other.files, self.rows + other.rows, self.size + other.size)


def write_without(
    location: str,
    table: Form,
    snapshot_id: int,
    manifest: ManifestFile,
    content: bytes,
    goes: Callable[[Extent], bool],
) -> tuple[Written, Removed] | None:
    """The manifest with those of its files marked as deleted that go; None when none does.

    A file whose bounds do not say where it lies stays.
    """
    found = entries(manifest, content)
    old = [extent is not None and goes(extent) for extent in map(_extent, found)]
    if True not in old:
        return None
    removed = Removed()
    output = Output(location)
    with _writer(table, output, snapshot_id) as writer:
        for entry, gone in _deleted_last(zip(found, old, strict=True)):
            if not gone:
                writer.existing(entry)
                continue
            writer.delete(entry)
            file = entry.data_file
            removed = removed.plus(Removed(1, file.record_count, file.file_size_in_bytes))
    return Written(output.content, writer.to_manifest_file()), removed


def write_replaced(
    location: str,
    table: Form,
    snapshot_id: int,
    manifests: Sequence[ManifestFile],
    contents: Mapping[str, bytes],
    gone: Set[str],
) -> tuple[Written, Removed]:
    """One manifest of the live files of several, those at the locations `gone` marked as deleted."""
    output, removed = Output(location), Removed()
    with _writer(table, output, snapshot_id) as writer:
        found = [each for one in manifests for each in entries(one, contents[one.manifest_path])]
        for entry, goes in _deleted_last((each, each.data_file.file_path in gone) for each in found):
            file = entry.data_file
            if goes:
                writer.delete(entry)
                removed = removed.plus(Removed(1, file.record_count, file.file_size_in_bytes))
            else:
                writer.existing(entry)
    return Written(output.content, writer.to_manifest_file()), removed


def _deleted_last(found: Iterable[tuple[ManifestEntry, bool]]) -> list[tuple[ManifestEntry, bool]]:
    """Entries, and whether each goes. Whether such a one counts where rows are numbered by place, readers
    differ in (the specification says so, Java's does not).
    """
    return sorted(found, key=lambda each: each[1])


def names_any(manifest: ManifestFile, content: bytes, locations: Set[str]) -> bool:
    """Whether a manifest names one of these as a live file. Raises Damaged."""
    return any(each.data_file.file_path in locations for each in entries(manifest, content))


def live_files(manifest: ManifestFile, content: bytes) -> list[LiveFile]:
    """The live files of a manifest whose bounds say where they lie. Raises Damaged."""
    found = []
    for entry in entries(manifest, content):
        extent, file = _extent(entry), entry.data_file
        if extent is not None:
            partition, last, first = extent
            rows, size, ids = (
                file.record_count,
                file.file_size_in_bytes,
                (first_row_id(file), entry.sequence_number),
            )
            found.append(LiveFile(partition, first, last, rows, size, file.file_path, group_of(file), *ids))
    return found


def live(manifest: ManifestFile) -> bool:
    """Whether a manifest names files that are in the table; the next snapshot leaves out the others."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return any(count is None or count > 0 for count in counts)


def of_engine(file: DataFile) -> AddedFile:
    """A file that another engine has stored. Whether it is sorted is not looked at, nor said, and which ids
    its first row has is for the table to say.
    """
    file[_SORT_ORDER] = None
    set_first_row_id(file, None)
    size, rows = file.file_size_in_bytes, file.record_count
    return AddedFile(file.file_path, size, rows, {}, file.split_offsets or (), file, group=group_of(file))


def group_of(file: DataFile) -> Group:
    """A file's partition spec, and its values under it. The file was read from a manifest."""
    values = (file.partition[at] for at in range(len(file.partition)))
    return Group(file.spec_id, tuple(_plain(each) for each in values))


def _plain(value: Any) -> Any:
    """A partition value as Floe makes them: days since 1970 and µs are numbers."""
    return (value - EPOCH_DATE).days if isinstance(value, date) else value


def _extent(entry: ManifestEntry) -> Extent | None:
    return extent_of(entry.data_file)


def extent_of(file: DataFile) -> Extent | None:
    """Where a file lies, by its bounds; None where they do not say, or name several partitions."""
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    if PARTITION_ID not in lower or lower[PARTITION_ID] != upper.get(PARTITION_ID):
        return None
    if OFFSET_ID not in upper or OFFSET_ID not in lower:
        return None
    return Extent(
        int(from_bytes(_BOUND_TYPES[PARTITION_ID], lower[PARTITION_ID])),
        int(from_bytes(_BOUND_TYPES[OFFSET_ID], upper[OFFSET_ID])),
        int(from_bytes(_BOUND_TYPES[OFFSET_ID], lower[OFFSET_ID])),
    )


class WrittenList(NamedTuple):
    """A manifest list to store: its location, with a checksum in its name, and its content. `next_row_id`:
    the first id that no row has; None below format version 3.
    """

    location: str
    content: bytes
    next_row_id: int | None


def write_list(
    location: str,
    snapshot_id: int,
    parent: int | None,
    sequence_number: int,
    manifests: Sequence[ManifestFile],
    row_id: int | None = None,
) -> WrittenList:
    """The manifest list of a snapshot. `row_id`: from which on it numbers rows that have no ids yet (format
    version 3); None: of version 2.
    """
    output = Output(location)
    with ManifestListWriter(output, snapshot_id, parent, sequence_number, row_id) as writer:
        writer.add_manifests(list(manifests))
    return WrittenList(output.location, output.content, writer.row_id)


def data_files(manifest: ManifestFile, content: bytes) -> list[str]:
    """Locations of the live files of a manifest."""
    return [each.data_file.file_path for each in entries(manifest, content)]


def entries(manifest: ManifestFile, content: bytes) -> list[ManifestEntry]:
    """The live files of a manifest with who added them, as many as its list says. Raises Damaged."""
    found = [each for each in read_entries(manifest, content) if each.status != ManifestEntryStatus.DELETED]
    added, existing = manifest.added_files_count, manifest.existing_files_count
    if added is not None and existing is not None and len(found) != added + existing:
        raise Damaged(
            f"{manifest.manifest_path} names {len(found)} live files, its manifest list says "
            f"{added + existing}: one of the two is damaged; restore it from a backup"
        )
    return found


def _removed_entries(manifest: ManifestFile, content: bytes) -> list[ManifestEntry]:
    """The files that a manifest's snapshot removed."""
    return [each for each in read_entries(manifest, content) if each.status == ManifestEntryStatus.DELETED]


class Form(NamedTuple):
    """What a manifest's files have in common: the table's columns, their partition spec, and by which format
    version they are told.
    """

    schema: Schema
    spec: PartitionSpec
    version: TableVersion = 2


def form(metadata: Mapping[str, Any], spec_id: int) -> Form:
    """The form of new manifests of a table, of files of one of its specs."""
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == spec_id)
    schema = current_schema(metadata)
    version = metadata["format-version"]
    return Form(_parsed(json.dumps(schema)), PartitionSpec.model_validate(spec), version)


@lru_cache(SCHEMAS_REMEMBERED)
def _parsed(schema: str) -> Schema:
    """As pyiceberg has it. To check the model takes longer than to write a manifest of some files."""
    return Schema.model_validate(json.loads(schema))


def _data_file(file: AddedFile) -> DataFile:
    if file.told is not None:
        return file.told
    bounds = [(number, _BOUND_TYPES[number], each) for number, each in file.bounds.items()]
    columns = file.columns
    found = data_file(
        content=DataFileContent.DATA,
        file_path=file.location,
        file_format=FileFormat.PARQUET,
        partition=Record(*file.group.values),
        record_count=file.rows,
        file_size_in_bytes=file.size,
        column_sizes={},
        value_counts={number: file.rows for number, _, _ in bounds}
        | {number: each.values for number, each in columns.items()},
        null_value_counts={number: 0 for number, _, _ in bounds}
        | {number: each.nulls for number, each in columns.items()},
        nan_value_counts={number: each.nans for number, each in columns.items() if each.nans is not None},
        lower_bounds={number: to_bytes(kind, each.lower) for number, kind, each in bounds}
        | {number: each.lower for number, each in columns.items() if each.lower is not None},
        upper_bounds={number: to_bytes(kind, each.upper) for number, kind, each in bounds}
        | {number: each.upper for number, each in columns.items() if each.upper is not None},
        key_metadata=None,
        split_offsets=list(file.split_offsets),
        equality_ids=None,
        sort_order_id=file.order_id or None,
    )
    found.spec_id = file.group.spec_id
    return found
