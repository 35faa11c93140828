"""The log as its archive in a bucket gives it: followed piece by piece, never written, never trimmed by us.

What is handed on is whole and in its place: each piece is checked by its own checksum, joins the one before
it by that one's, and entries that were had before are the same ones. Where the next piece is missing,
damaged or of another log nothing is handed on: it may come yet (a bucket that is replicated gets its objects
in any order). After `gap_s` a newer snapshot is as good, when there is one that is whole.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from coordination.archive.head import STEP_ENTRIES, Stored, fetched, listed
from coordination.archive.piece import CorruptPiece, Piece
from coordination.log import Chain, Entries, EntryName, LogEntry, Member, Trimmed, Unavailable
from coordination.snapshot import CorruptSnapshot, decode
from coordination.state import StateError
from objectstore.episodes import Episodes, loop_time, through
from objectstore.naming import SNAPSHOTS, log_folder, parse_snapshot_key, piece_key
from objectstore.store import NotFound, ObjectMeta, ObjectStore, StoreError

_logger = logging.getLogger("floe.coordination.following")
ENTRY_BYTES_MAX = 1 << 20  # of entries that are never appended
READ_ONLY = (
    "this is a read-only replica, which only reads another cluster's bucket: write to that cluster, or make "
    "this bucket a cluster with `floe restore cluster`"
)
TOLD_LOOKS = 2
"""Looks at the bucket for which something must be in the way before it is told: most only come late."""


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Seconds. `poll_s`: between two looks; `gap_s`: without an entry, until a snapshot is looked for."""

    poll_s: float = 2.0
    gap_s: float = 30.0


class ArchivedLog:
    """Implements coordination.log.Log; what would write raises Unavailable. For one follower at a time."""

    entry_bytes_max = ENTRY_BYTES_MAX

    def __init__(self, store: ObjectStore, options: FollowOptions | None = None) -> None:
        self.options = options or FollowOptions()
        self.log = ""
        """The identity of the log whose archive is followed; to be set before anything is asked."""
        self.end = 0
        """The last revision of the newest piece that the bucket has, whether it can be used or not."""
        self.newest_piece_ms = 0
        """When the newest piece was written, by the store's clock, Unix ms; 0: none is known."""
        self._store = store
        self._at = 0  # handed on through this revision
        self._last: EntryName | None = None  # the newest entry that was handed on
        self._checksum = b""  # of the piece that ends at `_at`; empty: it is not known
        self._moved_at = 0.0  # loop time at which an entry came, or a snapshot was looked for
        self._problem, self._looks = "", 0
        self._blocked = Episodes(
            through(_logger), loop_time, begins="the archived log cannot be followed", ends="it goes on"
        )

    # What others look at.

    @property
    def problem(self) -> str:
        """What is in the way of following, once it has lasted; empty: nothing."""
        return self._problem if self._looks >= TOLD_LOOKS else ""

    # The port.

    async def identity(self) -> str:
        return self.log

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        raise Unavailable(READ_ONLY)

    async def members(self) -> Sequence[Member]:
        return ()

    async def fence(self, incarnation: int) -> None:
        raise Unavailable(READ_ONLY)

    async def trim(self, through: int) -> None:
        raise Unavailable(READ_ONLY)

    async def trimmed(self) -> int:
        """0: of what is gone the pieces themselves tell."""
        return 0

    async def close(self) -> None:
        """There is nothing of its own to close."""

    async def current(self) -> int:
        """The newest revision that the bucket names: what can be read may end before it."""
        try:
            await self._pieces()
            newest = max((_revision(meta) for meta in await self._snapshots()), default=0)
        except StoreError as error:
            raise Unavailable(f"looking at the archived log: {error}") from error
        return max(self.end, newest)

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        """See Log. Raises Trimmed where a newer snapshot has to be loaded; Unavailable."""
        if after != self._at:
            self._checksum = b""
        self._at, self._last, self._moved_at = after, last, loop_time()
        while True:
            try:
                pieces = await self._pieces()
                while (batch := await self._next(pieces)) is not None:
                    yield batch
                await self._look_ahead(pieces)
            except StoreError as error:
                raise Unavailable(f"reading the archived log: {error}") from error
            await asyncio.sleep(self.options.poll_s)

    # Pieces.

    async def _pieces(self) -> list[Stored]:
        pieces = await listed(self._store, log_folder(self.log))
        if pieces:
            newest = max(pieces, key=lambda each: each.id.last)
            self.end, self.newest_piece_ms = newest.id.last, newest.modified_ms
        return pieces

    async def _next(self, pieces: Sequence[Stored]) -> Entries | None:
        """The entries of the piece that goes on from here; None: there is none now (`_problem`: why not)."""
        fitting = [each for each in pieces if each.id.first <= self._at + 1 and each.id.last > self._at]
        for each in sorted(fitting, key=lambda one: (one.id.first, one.id.last), reverse=True):
            try:
                piece = await fetched(self._store, each.id)
                entries = [entry for entry in await self._joined(piece, pieces) if entry.revision > self._at]
            except (CorruptPiece, NotFound) as error:
                self._problem = f"{piece_key(each.id)} cannot be used: {error}"
                continue
            self._goes_on(piece, entries)
            return Entries(entries, piece.header.last)
        return None

    def _goes_on(self, piece: Piece, entries: Sequence[LogEntry]) -> None:
        last = entries[-1]
        self._at, self._checksum = piece.header.last, piece.checksum
        self._last = EntryName(last.revision, last.incarnation, last.sequence)
        self._moved_at = loop_time()
        self._unblocked()

    def _unblocked(self) -> None:
        self._problem, self._looks = "", 0
        self._blocked.over("", revision=self._at)

    async def _joined(self, piece: Piece, pieces: Sequence[Stored]) -> list[LogEntry]:
        """Its entries, when it goes on with what was handed on. Raises CorruptPiece, StoreError."""
        entries = []
        for number, entry in enumerate(piece.entries()):
            if number % STEP_ENTRIES == 0:
                await asyncio.sleep(0)
            entries.append(entry)
        header = piece.header
        if header.first == self._at + 1:
            if self._checksum and not header.begins and header.previous != self._checksum:
                await self._look_for(header.previous, pieces)
        elif self._last is not None and self._last.revision >= header.first:
            had = [each for each in entries if each.revision <= self._at]
            found = None if not had else EntryName(had[-1].revision, had[-1].incarnation, had[-1].sequence)
            if found != self._last:
                raise CorruptPiece(f"it has {found} where {self._last} was before: it is of another log")
        return entries

    async def _look_for(self, checksum: bytes, pieces: Sequence[Stored]) -> None:
        """Another writer's piece, which ends where the one that was read does, may be the one before."""
        for each in pieces:
            if each.id.last != self._at:
                continue
            with suppress(CorruptPiece, NotFound):  # it may be what another one was written for
                if (await fetched(self._store, each.id)).checksum == checksum:
                    return
        raise CorruptPiece(f"it does not join the piece that ends at {self._at}: one before it was changed")

    # Where nothing goes on.

    async def _look_ahead(self, pieces: Sequence[Stored]) -> None:
        """Say what is in the way; after a while raise Trimmed for a snapshot that is newer and whole."""
        beyond = [each.id.first for each in pieces if each.id.first > self._at + 1]
        if not self._problem and beyond:
            self._problem = f"entries from revision {self._at + 1} to {min(beyond) - 1} are not in the bucket"
        if self._problem and not any(each.id.last > self._at for each in pieces):
            self._unblocked()  # what was in the way is gone, and nothing else is there
        if self._problem:
            self._looks += 1
            if self._looks >= TOLD_LOOKS:
                self._blocked.met("", revision=self._at, problem=self._problem)
        if loop_time() - self._moved_at < self.options.gap_s:
            return
        self._moved_at = loop_time()
        newer = [meta for meta in await self._snapshots() if _revision(meta) > self._at]
        for meta in sorted(newer, key=_revision, reverse=True):
            if await self._is_whole(meta):
                self._unblocked()
                raise Trimmed(_revision(meta))

    async def _snapshots(self) -> list[ObjectMeta]:
        return [
            meta
            async for page in self._store.list(SNAPSHOTS)
            for meta in page
            if parse_snapshot_key(meta.key) is not None
        ]

    async def _is_whole(self, meta: ObjectMeta) -> bool:
        """Looked at before the state that is served is given up for it."""
        try:
            await asyncio.to_thread(decode, await self._store.get(meta.key))
        except (CorruptSnapshot, StateError, NotFound) as error:
            _logger.warning("snapshot %s is not usable: %s", meta.key, error)
            return False
        return True


def _revision(meta: ObjectMeta) -> int:
    name = parse_snapshot_key(meta.key)
    return name.revision if name is not None else 0
