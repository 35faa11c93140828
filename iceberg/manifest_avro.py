"""pyiceberg's Avro code over bytes in memory, for format versions 2 and 3.

pyiceberg 0.12 knows version 3's schemas but neither writes them nor reads what they have more: here its own
writers write by them, and everything is read by them, since what version 2 lacks of them is optional. CPU
work only: call it in a thread.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Literal

from pyiceberg.avro.file import AvroFile, AvroOutputFile
from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriterV2,
    ManifestWriterV2,
    PartitionFieldSummary,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.typedef import TableVersion

from iceberg.sealed import sealed

READ: Literal[3] = 3
"""By which version's schemas everything is read, and held in memory."""
_CODEC: Literal["deflate"] = "deflate"
_FIRST_ROW_ID = [each.name for each in DATA_FILE_TYPE[READ].fields].index("first_row_id")
_MANIFEST_FIRST_ROW_ID = [each.name for each in MANIFEST_LIST_FILE_SCHEMAS[READ].fields].index("first_row_id")


def data_file(**arguments: Any) -> DataFile:
    """A data file as manifests name it."""
    return DataFile.from_args(READ, **arguments)


def first_row_id(file: DataFile) -> int | None:
    """The id of a data file's first row; None where its rows have none, or not yet (format version 3)."""
    found: int | None = file[_FIRST_ROW_ID]
    return found


def set_first_row_id(file: DataFile, number: int | None) -> None:
    """Say which id its first row has."""
    file[_FIRST_ROW_ID] = number


def manifest_first_row_id(manifest: ManifestFile) -> int | None:
    """From which id on the rows are numbered of its files that do not say their first one; None: they have
    none.
    """
    found: int | None = manifest[_MANIFEST_FIRST_ROW_ID]
    return found


class OwnManifest(ManifestFile):
    """A manifest that was just written. `unnumbered`: rows of its live files that do not say which ids they
    have, and get theirs from the manifest list.
    """

    unnumbered: int = 0


class ManifestWriter(ManifestWriterV2):
    """Writes a manifest of data files. A context manager."""

    def __init__(
        self, version: TableVersion, spec: PartitionSpec, schema: Schema, output: Output, snapshot_id: int
    ) -> None:
        super().__init__(spec, schema, output, snapshot_id, _CODEC)
        self._version = version
        self._unnumbered = 0

    @property
    def version(self) -> TableVersion:
        """The format version."""
        return self._version

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        """pyiceberg's own, over records as they are read here."""
        return AvroOutputFile[ManifestEntry](
            output_file=self._output_file,
            file_schema=self._with_partition(self.version),
            record_schema=self._with_partition(READ),
            schema_name="manifest_entry",
            metadata=self._meta,
        )

    def prepare_entry(self, entry: ManifestEntry) -> ManifestEntry:
        """Count the rows that have no ids yet."""
        live = entry.status != ManifestEntryStatus.DELETED
        if live and first_row_id(entry.data_file) is None:
            self._unnumbered += entry.data_file.record_count
        return super().prepare_entry(entry)

    def to_manifest_file(self) -> OwnManifest:
        """The manifest as its list names it, to which it is yet to be added."""
        found = OwnManifest(*super().to_manifest_file()._data, None)
        found.unnumbered = self._unnumbered
        return found


class ManifestListWriter(ManifestListWriterV2):
    """Writes a manifest list. A context manager. `row_id`: the first that no row has before it (version 3),
    and after it.
    """

    def __init__(
        self,
        output: Output,
        snapshot_id: int,
        parent: int | None,
        sequence_number: int,
        row_id: int | None,
    ) -> None:
        super().__init__(output, snapshot_id, parent, sequence_number, _CODEC)
        self.row_id = row_id
        if row_id is not None:
            self._format_version = 3
            self._meta |= {"format-version": "3", "first-row-id": str(row_id)}

    def __enter__(self) -> ManifestListWriter:
        self._writer = AvroOutputFile[ManifestFile](
            output_file=self._output_file,
            record_schema=MANIFEST_LIST_FILE_SCHEMAS[READ],
            file_schema=MANIFEST_LIST_FILE_SCHEMAS[self._format_version],
            schema_name="manifest_file",
            metadata=self._meta,
        )
        self._writer.__enter__()
        return self

    def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
        """Number its rows that have no ids yet; a manifest that has its number keeps it (the specification's
        First Row ID Assignment).
        """
        found = super().prepare_manifest(manifest_file)
        if self.row_id is None or manifest_first_row_id(found) is not None:
            return found
        found = _copy(found)
        found[_MANIFEST_FIRST_ROW_ID] = self.row_id
        self.row_id += unnumbered(manifest_file)
        return found


def _copy(manifest: ManifestFile) -> ManifestFile:
    return ManifestFile(*manifest._data)


def unnumbered(manifest: ManifestFile) -> int:
    """Rows that get their ids from the list that a manifest is added to."""
    if isinstance(manifest, OwnManifest):
        return manifest.unnumbered
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)


def read_list(location: str, content: bytes) -> list[ManifestFile]:
    """The manifests of a snapshot."""
    with AvroFile[ManifestFile](
        Input(location, content),
        MANIFEST_LIST_FILE_SCHEMAS[READ],
        read_types={-1: ManifestFile, 508: PartitionFieldSummary},
        read_enums={517: ManifestContent},
    ) as reader:
        return [*reader]


def read_entries(manifest: ManifestFile, content: bytes) -> list[ManifestEntry]:
    """All files of a manifest, those that it calls removed too, with what they inherit of it."""
    with AvroFile[ManifestEntry](
        Input(manifest.manifest_path, content),
        MANIFEST_ENTRY_SCHEMAS[READ],
        read_types={-1: ManifestEntry, 2: DataFile},
        read_enums={0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
    ) as reader:
        found = [_inherited(each, manifest) for each in reader]
    _number(found, manifest_first_row_id(manifest))
    return found


def _inherited(entry: ManifestEntry, manifest: ManifestFile) -> ManifestEntry:
    """The entry with the sequence numbers, snapshot and partition spec that it has from its manifest."""
    own = entry.status == ManifestEntryStatus.ADDED or manifest.sequence_number == 0  # 0: of version 1
    if entry.snapshot_id is None and manifest.added_snapshot_id is not None:
        entry.snapshot_id = manifest.added_snapshot_id
    if entry.sequence_number is None and own:
        entry.sequence_number = manifest.sequence_number
    if entry.file_sequence_number is None and own:
        entry.file_sequence_number = manifest.sequence_number
    entry.data_file.spec_id = manifest.partition_spec_id
    return entry


def _number(entries: Sequence[ManifestEntry], row_id: int | None) -> None:
    """Say of each live file which id its first row has (First Row ID Inheritance); where the manifest has no
    number the rows of none of its files have ids.
    """
    for each in entries:
        file = each.data_file
        if row_id is None:
            set_first_row_id(file, None)
        elif first_row_id(file) is None and each.status != ManifestEntryStatus.DELETED:
            set_first_row_id(file, row_id)
            row_id += file.record_count


class _Stream(io.BytesIO):
    """A stream that hands its content over when it is closed."""

    def __init__(self, owner: Output) -> None:
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


class Output(OutputFile):
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
        """Not before it is stored."""
        return False

    def to_input_file(self) -> InputFile:
        """To read what was written."""
        return Input(self.location, self.content)

    def create(self, overwrite: bool = False) -> OutputStream:
        """To write it, once."""
        return _Stream(self)


class Input(InputFile):
    """pyiceberg's input file in memory."""

    def __init__(self, location: str, content: bytes) -> None:
        super().__init__(location)
        self._content = content

    def __len__(self) -> int:
        return len(self._content)

    def exists(self) -> bool:
        """It was read."""
        return True

    def open(self, seekable: bool = True) -> InputStream:
        """Its bytes."""
        return io.BytesIO(self._content)
