"""Manifests and manifest lists, written and read in memory with pyiceberg's Avro code.

CPU work only: call it in a thread.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from functools import lru_cache
from types import TracebackType
from typing import Any, Literal, NamedTuple

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, PrimitiveType
from pyiceberg.utils.datetime import EPOCH_DATE

from iceberg.column_metrics import ColumnMetrics
from iceberg.evolution import OFFSET_ID, PARTITION_ID, TIMESTAMP_ID
from iceberg.metadata import current_schema
from iceberg.partitioning import UNPARTITIONED, Group
from iceberg.sealed import Damaged, sealed
from iceberg.small_files import LiveFile
from iceberg.writer import Bounds, FileContent

SCHEMAS_REMEMBERED = 64
_CODEC: Literal["deflate"] = "deflate"
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
    files: Iterable[AddedFile | DataFile],
    sequence_number: int | None = None,
) -> Written:
    """A manifest of files that the snapshot adds.

    `sequence_number`: that of their rows, where these were in the table before; None: the snapshot's own.
    """
    output = _Output(location)
    with write_manifest(2, table.spec, table.schema, output, snapshot_id, _CODEC) as writer:
        for each in files:
            writer.add_entry(
                ManifestEntry.from_args(
                    status=ManifestEntryStatus.ADDED,
                    snapshot_id=snapshot_id,
                    sequence_number=sequence_number,
                    data_file=each if isinstance(each, DataFile) else _data_file(each),
                )
            )
    return Written(output.content, writer.to_manifest_file())


def write_merged(
    location: str,
    table: Form,
    snapshot_id: int,
    manifests: Sequence[ManifestFile],
    contents: Mapping[str, bytes],
) -> Written:
    """One manifest with the live files of several; who added them and when stays as it was."""
    output = _Output(location)
    source = _MemoryIO(contents)
    with write_manifest(2, table.spec, table.schema, output, snapshot_id, _CODEC) as writer:
        for manifest in manifests:
            for entry in _entries(manifest, source):
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
    source = _MemoryIO(contents)
    read = {False: _entries, True: _removed_entries}
    found = [
        entry for one in sources for entry in read[one.removed](one.manifest, source) if one.takes(entry)
    ]
    taken = [each.data_file for each in sorted(found, key=lambda each: each.file_sequence_number or 0)]
    return write_added(location, table, snapshot_id, taken) if taken else None


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
    source = _MemoryIO({manifest.manifest_path: content})
    found = _entries(manifest, source)
    old = [extent is not None and goes(extent) for extent in map(_extent, found)]
    if True not in old:
        return None
    removed = Removed()
    output = _Output(location)
    with write_manifest(2, table.spec, table.schema, output, snapshot_id, _CODEC) as writer:
        for entry, gone in zip(found, old, strict=True):
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
    output, source, removed = _Output(location), _MemoryIO(contents), Removed()
    with write_manifest(2, table.spec, table.schema, output, snapshot_id, _CODEC) as writer:
        for entry in (entry for manifest in manifests for entry in _entries(manifest, source)):
            file = entry.data_file
            if file.file_path in gone:
                writer.delete(entry)
                removed = removed.plus(Removed(1, file.record_count, file.file_size_in_bytes))
            else:
                writer.existing(entry)
    return Written(output.content, writer.to_manifest_file()), removed


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
            rows, size = file.record_count, file.file_size_in_bytes
            found.append(LiveFile(partition, first, last, rows, size, file.file_path, group_of(file)))
    return found


def live(manifest: ManifestFile) -> bool:
    """Whether a manifest names files that are in the table; the next snapshot leaves out the others."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return any(count is None or count > 0 for count in counts)


def of_engine(file: DataFile) -> AddedFile:
    """A file that another engine has stored. Whether it is sorted is not looked at, nor said."""
    file[_SORT_ORDER] = None
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


def write_list(
    location: str,
    snapshot_id: int,
    parent: int | None,
    sequence_number: int,
    manifests: Sequence[ManifestFile],
) -> tuple[str, bytes]:
    """The manifest list of a snapshot: its location, with a checksum in its name, and its content."""
    output = _Output(location)
    with write_manifest_list(2, output, snapshot_id, parent, sequence_number, _CODEC) as writer:
        writer.add_manifests(list(manifests))
    return output.location, output.content


def read_list(location: str, content: bytes) -> list[ManifestFile]:
    """The manifests of a snapshot."""
    return list(read_manifest_list(_Input(location, content)))


def data_files(manifest: ManifestFile, content: bytes) -> list[str]:
    """Locations of the live files of a manifest."""
    return [each.data_file.file_path for each in entries(manifest, content)]


def entries(manifest: ManifestFile, content: bytes) -> list[ManifestEntry]:
    """The live files of a manifest with who added them. Raises Damaged."""
    return _entries(manifest, _MemoryIO({manifest.manifest_path: content}))


def _entries(manifest: ManifestFile, source: FileIO) -> list[ManifestEntry]:
    """The live files of a manifest, as many as its list says. Raises Damaged."""
    found = manifest.fetch_manifest_entry(source, discard_deleted=True)
    added, existing = manifest.added_files_count, manifest.existing_files_count
    if added is not None and existing is not None and len(found) != added + existing:
        raise Damaged(
            f"{manifest.manifest_path} names {len(found)} live files, its manifest list says "
            f"{added + existing}: one of the two is damaged; restore it from a backup"
        )
    return found


def _removed_entries(manifest: ManifestFile, source: FileIO) -> list[ManifestEntry]:
    """The files that a manifest's snapshot removed."""
    found = manifest.fetch_manifest_entry(source, discard_deleted=False)
    return [each for each in found if each.status == ManifestEntryStatus.DELETED]


class Form(NamedTuple):
    """What a manifest's files have in common: the table's columns and their partition spec."""

    schema: Schema
    spec: PartitionSpec


def form(metadata: Mapping[str, Any], spec_id: int) -> Form:
    """The form of new manifests of a table, of files of one of its specs."""
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == spec_id)
    schema = current_schema(metadata)
    return Form(_parsed(json.dumps(schema)), PartitionSpec.model_validate(spec))


@lru_cache(SCHEMAS_REMEMBERED)
def _parsed(schema: str) -> Schema:
    """As pyiceberg has it. To check the model takes longer than to write a manifest of some files."""
    return Schema.model_validate(json.loads(schema))


def _data_file(file: AddedFile) -> DataFile:
    if file.told is not None:
        return file.told
    bounds = [(number, _BOUND_TYPES[number], each) for number, each in file.bounds.items()]
    columns = file.columns
    found = DataFile.from_args(
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


class _Stream(io.BytesIO):
    """A stream that hands its content over when it is closed."""

    def __init__(self, owner: _Output) -> None:
        super().__init__()
        self._owner = owner

    def close(self) -> None:
        if not self.closed:
            self._owner.written(self.getvalue())
        super().close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Output(OutputFile):
    """pyiceberg's output file in memory. Once it is written its location has the checksum of its content."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.content = b""

    def written(self, content: bytes) -> None:
        """The stream was closed."""
        self.content, self._location = content, sealed(self._location, content)

    def __len__(self) -> int:
        return len(self.content)

    def exists(self) -> bool:
        return False

    def to_input_file(self) -> InputFile:
        return _Input(self.location, self.content)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _Stream(self)


class _Input(InputFile):
    """pyiceberg's input file in memory."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        return True

    def open(self, seekable: bool = True) -> InputStream:
        return io.BytesIO(self._content)


class _MemoryIO(FileIO):
    """pyiceberg's file access over contents that were read before."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        super().__init__()
        self._contents = contents

    def new_input(self, location: str) -> InputFile:
        return _Input(location, self._contents[location])

    def new_output(self, location: str) -> OutputFile:
        return _Output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise PermissionError(f"{location}: only maintenance deletes files")
