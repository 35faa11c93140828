"""What lies in the bucket of archived logs, read back and judged: no log is asked, it may be lost.

Pieces are linked by checksum. A line is a chain of them without a break; the newest line is the one that goes
furthest. What is true but on no line was left by a writer that had lost its claim, or landed late.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from coordination.archive.head import Stored, fetched, last_entry, listed
from coordination.archive.piece import CorruptPiece, Header
from coordination.log import LogEntry
from objectstore.naming import LOG, SNAPSHOTS, parse_snapshot_key, piece_key
from objectstore.store import NotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class Kept:
    """A piece that is whole. `count`: of its entries."""

    stored: Stored
    header: Header
    checksum: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Reach:
    """How far one goes from a snapshot by archived entries; its own revision where none follow."""

    snapshot: int
    through: int


@dataclass(slots=True)
class Survey:
    """All pieces of one log. `lines`, oldest first, can be gone along; `beside` is on none of them."""

    folder: str
    identity: str = ""
    lines: list[list[Kept]] = field(default_factory=list)
    beside: list[Kept] = field(default_factory=list)
    damaged: list[tuple[Stored, str]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Revisions, first and last, of entries above the oldest snapshot that no good piece on a line has."""
    reaches: list[Reach] = field(default_factory=list)
    """One for each snapshot, oldest first."""

    @property
    def last(self) -> int:
        """The newest revision that is archived; 0: nothing is."""
        return self.lines[-1][-1].header.last if self.lines else 0

    @property
    def modified_ms(self) -> int:
        """When the newest piece was written, by the store's clock, Unix ms; 0: there is none."""
        return self.lines[-1][-1].stored.modified_ms if self.lines else 0

    @property
    def whole(self) -> bool:
        """Whether the archive goes on from every snapshot to its own end."""
        return not self.missing


async def folders(store: ObjectStore) -> list[str]:
    """One for each log of which there are pieces. Raises StoreError."""
    return sorted(await store.list_folders(LOG))


async def snapshots(store: ObjectStore) -> list[int]:
    """The revisions of the snapshots in the bucket, oldest first. Raises StoreError."""
    names = [parse_snapshot_key(meta.key) async for page in store.list(SNAPSHOTS) for meta in page]
    return sorted({name.revision for name in names if name is not None})


async def survey(store: ObjectStore, folder: str, snapshots: Sequence[int]) -> Survey:
    """Read every piece of a log, one at a time, and judge them. Raises StoreError."""
    found = Survey(folder)
    good: list[Kept] = []
    for stored in await listed(store, folder):
        try:
            piece = await fetched(store, stored.id)
            await last_entry(piece)
        except (CorruptPiece, NotFound) as error:
            found.damaged.append((stored, str(error)))
        else:
            found.identity = piece.identity
            good.append(Kept(stored, piece.header, piece.checksum, piece.count))
    found.lines = lines_of(good)
    on_lines = {each.checksum for line in found.lines for each in line}
    found.beside = [each for each in good if each.checksum not in on_lines]
    found.reaches = [Reach(revision, reached(found.lines, revision)) for revision in snapshots]
    found.missing = list(_missing(found.lines, snapshots[0] if snapshots else 0, found.damaged))
    return found


def lines_of(good: Sequence[Kept]) -> list[list[Kept]]:
    """The lines, oldest first: from the piece that goes furthest back as far as checksums lead, and again
    from what ends before that line begins."""
    known = {each.checksum: each for each in good}
    lines: list[list[Kept]] = []
    rest = list(good)
    while rest:
        at: Kept | None = max(rest, key=lambda each: (each.header.last, each.header.first))
        line: list[Kept] = []
        while at is not None:
            line.insert(0, at)
            before = known.get(at.header.previous)
            meets = before is not None and before.header.last + 1 == at.header.first
            at = before if meets else None
        lines.insert(0, line)
        rest = [each for each in rest if each.header.last < line[0].header.first]
    return lines


def reached(lines: Sequence[Sequence[Kept]], revision: int) -> int:
    """How far one goes along lines from a revision on, without an entry missing."""
    for line in lines:
        if line[0].header.first <= revision + 1 and line[-1].header.last > revision:
            revision = line[-1].header.last
    return revision


def path(lines: Sequence[Sequence[Kept]], revision: int) -> Iterator[Kept]:
    """The pieces that lead on from a revision, as far as `reached` says."""
    for line in lines:
        if line[0].header.first <= revision + 1 and line[-1].header.last > revision:
            yield from (each for each in line if each.header.last > revision)
            revision = line[-1].header.last


async def entries_after(store: ObjectStore, found: Survey, revision: int) -> AsyncIterator[LogEntry]:
    """The archived entries that follow a revision, in order. Raises CorruptPiece, StoreError."""
    for each in path(found.lines, revision):
        piece = await fetched(store, each.stored.id)
        for entry in piece.entries():
            if entry.revision > revision:
                yield entry


def _missing(
    lines: Sequence[Sequence[Kept]], oldest: int, damaged: Sequence[tuple[Stored, str]]
) -> Iterator[tuple[int, int]]:
    """Ranges above the oldest snapshot of which entries are missing, up to the archive's end."""
    at = oldest
    for line in lines:
        first, last = line[0].header.first, line[-1].header.last
        if first > at + 1:
            yield at + 1, first - 1
        at = max(at, last)
    behind = [stored.id.last for stored, _ in damaged if stored.id.last > at]
    if behind:
        yield at + 1, max(behind)


def key_of(kept: Kept) -> str:
    """The object's key."""
    return piece_key(kept.stored.id)
