"""Up to where a source is archived: the state there, and the objects that say so. Changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from coordination.archive.head import Stored, fetched, listed
from coordination.archive.piece import CorruptPiece
from coordination.restore.source import source_of
from coordination.state import State, StateError
from objectstore.naming import SNAPSHOTS, log_folder, parse_piece_key, parse_snapshot_key, piece_key
from objectstore.store import NotFound, ObjectMeta, ObjectStore

APPLIED_AT_ONCE = 256
"""Entries between two moments at which others run."""


@dataclass(slots=True)
class Frontier:
    """Of one log's archive. `state` is at `revision`; `archived_ms` by the store's clock, Unix ms."""

    store: ObjectStore
    log: str
    state: State = field(default_factory=State)
    archived_ms: int = 0
    _pieces: Sequence[Stored] = ()
    _snapshots: Sequence[ObjectMeta] = ()
    _begun: bool = False

    @property
    def revision(self) -> int:
        """The last one that is archived without a gap."""
        return self.state.revision

    async def advance(self) -> None:
        """Go on as far as is archived now. Raises CannotRestore, StoreError."""
        self._pieces = await listed(self.store, log_folder(self.log))
        self._snapshots = [
            meta
            async for page in self.store.list(SNAPSHOTS)
            for meta in page
            if parse_snapshot_key(meta.key) is not None
        ]
        before = self.revision
        if not self._begun or not await self._along_pieces():
            await self._anew()
        elif self.revision == before and self._newest_snapshot() > before:
            await self._anew()  # no pieces lead there: the archive is off, or has a gap

    def due(self) -> list[ObjectMeta]:
        """What says that the state is so, in the order in which it is to be put: pieces, then snapshots."""
        pieces = [
            ObjectMeta(piece_key(each.id), each.size, "", each.modified_ms)
            for each in sorted(self._pieces, key=lambda one: (one.id.first, one.id.last))
            if each.id.last <= self.revision
        ]
        return pieces + [meta for meta in self._snapshots if _revision(meta) <= self.revision]

    def _newest_snapshot(self) -> int:
        return max(map(_revision, self._snapshots), default=0)

    async def _along_pieces(self) -> bool:
        """Apply what follows; False where a piece is not as it must be, and the whole is to be looked at."""
        for each in sorted(self._pieces, key=lambda one: (one.id.first, one.id.last)):
            if each.id.last <= self.revision or each.id.first > self.revision + 1:
                continue
            try:
                piece = await fetched(self.store, each.id)
                count = 0
                for entry in piece.entries():
                    if entry.revision > self.revision:
                        self.state.apply(entry)
                        count += 1
                        if count % APPLIED_AT_ONCE == 0:
                            await asyncio.sleep(0)
            except (CorruptPiece, NotFound, StateError):
                return False
            self.archived_ms = each.modified_ms
        return True

    async def _anew(self) -> None:
        source = await source_of(self.store, self.log)
        self.state, self._begun = source.state, True
        self.archived_ms = source.archived_ms or max(
            (meta.modified_ms for meta in self._snapshots), default=0
        )


def leads_to(keys: Iterable[str]) -> int:
    """The revision to which snapshots and pieces of these names lead without a gap; 0: nowhere."""
    keys = list(keys)
    revision = max((each.revision for each in map(parse_snapshot_key, keys) if each is not None), default=0)
    pieces = filter(None, map(parse_piece_key, keys))
    for each in sorted(pieces, key=lambda one: (one.first, one.last)):
        if each.first <= revision + 1:
            revision = max(revision, each.last)
    return revision


def _revision(meta: ObjectMeta) -> int:
    name = parse_snapshot_key(meta.key)
    return name.revision if name is not None else 0
