"""What committers share, what bounds them, and what they say of a commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordination.clock import Clock
from iceberg.metadata import Retention
from iceberg.plan import Bounds
from iceberg.small_files import FileSizes
from iceberg.warehouse import Warehouse
from iceberg.writing import FileWriter, ThreadWriter
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore

if TYPE_CHECKING:
    from coordination.replica import Replica

MANIFESTS_MERGED_AT = 100
"""Small manifests that become one: Iceberg's own commit.manifest.min-count-to-merge."""
TYPES_MAX = 100
"""Types that have a struct in `key`, or in `value`, of one table, unless the configuration says otherwise."""


@dataclass(frozen=True, slots=True)
class CommitterOptions:
    """Limits of one commit and what a table keeps. Sizes in bytes, times in seconds."""

    rows_per_commit_max: int = 2_000_000
    bytes_per_commit_max: int = 256 << 20
    rows_per_file_max: int = 1_000_000
    bytes_per_file_max: int = 64 << 20
    files_in_flight_max: int = 4
    manifests_merged_at: int = MANIFESTS_MERGED_AT
    files: FileSizes = FileSizes()  # noqa: RUF009  # frozen
    retention: Retention = Retention()  # noqa: RUF009  # frozen
    orphan_grace_s: float = 86_400
    raw_bytes: bool = True
    types_max: int = TYPES_MAX
    latest_file_bytes: int = 32 << 20
    latest_bytes_max: int = 256 << 20

    @property
    def bounds(self) -> Bounds:
        """What one commit takes at most."""
        return Bounds(
            self.rows_per_commit_max,
            self.bytes_per_commit_max,
            self.rows_per_file_max,
            self.bytes_per_file_max,
        )


@dataclass(frozen=True, slots=True)
class Committed:
    """What one commit did. `more`: records are left. `problems`: why a message has no columns."""

    snapshot_id: int | None
    rows: int
    bytes: int
    files: int
    more: bool
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Parts:
    """What committers share."""

    replica: Replica
    reader: ChunkReader
    merged: MergedRanges
    store: ObjectStore
    warehouse: Warehouse
    clock: Clock
    options: CommitterOptions = CommitterOptions()  # frozen
    writer: FileWriter = field(default_factory=ThreadWriter)


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one compaction did: files that it read, files that it made, and the bytes of those."""

    snapshot_id: int
    files_read: int
    files: int
    bytes: int
