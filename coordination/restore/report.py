"""What a restore found, as an operator needs it: what is certain, what was found again, what is in doubt."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from coordination.state.restored import PositionCut


@dataclass(slots=True)
class PartitionFound:
    """Of one partition. Records below `certain_end` are where they were; those behind it were found again.

    `found`: records appended behind it. Of these `plain` have no producer's sequence, so some may be there
    twice, or may never have been acknowledged; `unsequenced` had one that did not fit, and stand at the end.
    `repeated` were in the log already. `unended`: records of transactions without an archived end.
    """

    topic: str
    partition: int
    certain_end: int
    end: int = 0
    found: int = 0
    plain: int = 0
    unsequenced: int = 0
    repeated: int = 0
    unended: int = 0


@dataclass(slots=True)
class TopicBack:
    """A topic that is deleted in what is archived, and of which chunks behind that have `records`.

    Nobody can tell whether it was undeleted and they were acknowledged, or they were on their way as it was
    deleted. `name`: as what it is back; empty where `error` says why it is not.
    """

    topic: str
    records: int
    name: str = ""
    error: str = ""


@dataclass(slots=True)
class TableFound:
    """A table of which the bucket has metadata that is newer than what the restored log points to.

    `newer`: how many files of it, `newest` the last of them; a commit that was refused leaves one, too.
    `topic`: whose rows come again from the log; empty for a table of other engines, whose rows do not.
    """

    namespace: str
    name: str
    metadata: str
    newer: int
    newest: str = ""
    topic: str = ""


@dataclass(slots=True)
class TableMoved:
    """A table of a copied bucket, whose metadata was at `former`, by its source's URL.

    `metadata`: where it is in the copy, with `snapshots`, in `written` new files, `delete_files` of them of
    deleted rows. `lost`: files that these name and the copy has not as they were written, of `lost_count`.
    `error`: why the table stays as it is.
    """

    namespace: str
    name: str
    former: str
    metadata: str = ""
    snapshots: int = 0
    written: int = 0
    delete_files: int = 0
    lost: list[str] = field(default_factory=list)
    lost_count: int = 0
    error: str = ""


@dataclass(slots=True)
class Report:
    """Of a restore, or of what one would do. Revisions are the lost log's, up to `certain`.

    `behind_s`: by how much the newest of the found chunks is younger than what is certain, by the store's
    clock; much more than `log_archive.interval_ms` where the archive's newest pieces are missing, which
    nothing else tells. `missing_merged`: keys of manifests and segments; of `manifests_unread` partitions it
    was not looked at whether they have all their segments (merged.py). `missing_metadata`: locations of
    tables' current metadata. `seconds`: where its time went, by stage (stages.py).
    """

    cluster: str
    lost_log: str
    new_log: str = ""
    dry_run: bool = True
    snapshot: str = ""
    snapshot_revision: int = 0
    entries: int = 0
    certain: int = 0
    base: int = 0
    damaged: list[tuple[str, str]] = field(default_factory=list)
    missing_revisions: list[tuple[int, int]] = field(default_factory=list)
    missing_chunks: list[str] = field(default_factory=list)
    missing_merged: list[str] = field(default_factory=list)
    manifests_unread: int = 0
    missing_metadata: list[str] = field(default_factory=list)
    chunks_found: int = 0
    behind_s: float = 0.0
    partitions: list[PartitionFound] = field(default_factory=list)
    rescued_topic: str = ""
    rescued_records: int = 0
    undeleted: list[TopicBack] = field(default_factory=list)
    deleted_records: int = 0
    aborted: list[str] = field(default_factory=list)
    positions: list[PositionCut] = field(default_factory=list)
    tables: list[TableFound] = field(default_factory=list)
    moved: list[TableMoved] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def found(self) -> int:
        """Records that were found again."""
        return sum(each.found for each in self.partitions)

    @property
    def unended(self) -> int:
        """Records of transactions whose end is not archived."""
        return sum(each.unended for each in self.partitions)

    @property
    def in_doubt(self) -> int:
        """Records that may be there twice."""
        return sum(each.plain + each.unsequenced for each in self.partitions)

    def plain(self) -> dict[str, object]:
        """As JSON says it."""
        told: dict[str, object] = asdict(self)
        told["positions"] = [each._asdict() for each in self.positions]
        told |= {"found": self.found, "unended": self.unended, "in_doubt": self.in_doubt}
        return told
