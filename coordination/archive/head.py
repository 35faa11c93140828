"""Where the archive of a log ends, and the pieces that are there."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from coordination.archive.piece import NONE, CorruptPiece, Piece, decode
from coordination.log import EntryName
from objectstore.naming import LOG, PieceId, log_folder, parse_piece_key, piece_key
from objectstore.store import NotFound, ObjectStore

_logger = logging.getLogger("floe.coordination.archive")
STEP_ENTRIES = 512  # of a piece that is read, between two moments at which others run


@dataclass(frozen=True, slots=True)
class Head:
    """The end of a chain. `name`: its last entry; None where the next piece begins a chain.

    `gap`: of such a one, the last revision archived before what is missing; 0: nothing is.
    """

    last: int
    checksum: bytes = NONE
    name: EntryName | None = None
    gap: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Stored:
    """A piece as the store lists it. `modified_ms`: by the store's clock, Unix ms."""

    id: PieceId
    size: int
    modified_ms: int


async def listed(store: ObjectStore, folder: str) -> list[Stored]:
    """All pieces of one log, by first and last revision. Raises StoreError."""
    found = []
    async for page in store.list(f"{LOG}{folder}/"):
        for meta in page:
            name = parse_piece_key(meta.key)
            if name is not None:
                found.append(Stored(name, meta.size, meta.modified_ms))
    return found


async def fetched(store: ObjectStore, wanted: PieceId) -> Piece:
    """A piece, checked: its contents, its name, and that it lies in its own log's folder.

    Raises CorruptPiece, StoreError.
    """
    piece = decode(await store.get(piece_key(wanted)))
    header = piece.header
    if (header.first, header.last) != (wanted.first, wanted.last):
        raise CorruptPiece(f"it holds {header.first} to {header.last}")
    if log_folder(piece.identity) != wanted.folder:
        raise CorruptPiece(f"it is of log {piece.identity!r}")
    return piece


async def newest(store: ObjectStore, pieces: list[Stored]) -> tuple[Head | None, list[PieceId]]:
    """The end of the piece that goes furthest and is whole, None: there is none; those that are not and go
    further. Raises StoreError."""
    unusable: list[PieceId] = []
    for each in sorted(pieces, key=lambda one: (one.id.last, one.id.first), reverse=True):
        try:
            piece = await fetched(store, each.id)
            name = await last_entry(piece)
        except (CorruptPiece, NotFound) as error:
            told = {"object": piece_key(each.id), "error": str(error)}
            _logger.error("a piece of the archived log is not usable", extra={"fields": told})
            unusable.append(each.id)
        else:
            return Head(piece.header.last, piece.checksum, name), unusable
    return None, unusable


async def last_entry(piece: Piece) -> EntryName:
    """The name of its last entry; every one is looked at. Raises CorruptPiece."""
    name = None
    for number, entry in enumerate(piece.entries()):
        if number % STEP_ENTRIES == 0:
            await asyncio.sleep(0)
        name = EntryName(entry.revision, entry.incarnation, entry.sequence)
    if name is None:
        raise CorruptPiece("it has no entry")
    return name
