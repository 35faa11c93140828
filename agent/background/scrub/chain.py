"""The archived log's part of a round: every piece that is needed, and that they make one chain.

A piece says by checksum which one it follows. Where no object has that checksum, one is missing or is not
what was written: nobody can go on along it. Only a piece that begins a chain follows none, and says itself
what is missing before it (coordination/archive); that is no damage.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial

from agent.background.scrub.needs import Look, Need
from agent.background.scrub.walks import World
from coordination.archive.head import Stored, fetched, listed
from coordination.archive.piece import CorruptPiece, decode
from coordination.replica import Replica
from objectstore.naming import PieceId, log_folder, piece_key
from objectstore.store import NotFound
from objectstore.turns import off_loop

_Sums = dict[PieceId, bytes]


async def log(world: World, after: str, look: Look) -> AsyncIterator[str]:
    """The pieces of this log's archive that somebody who goes on from the oldest snapshot would read."""
    pieces = sorted(await listed(world.store, log_folder(world.identity)))
    await world.view.catch_up()  # what was deleted before the listing is behind the oldest snapshot of now
    sums: _Sums = {}
    for stored in pieces:
        key = piece_key(stored.id)
        if key > after and goes_on(world.replica, stored.id):
            await _piece(world, pieces, stored, sums, look)
        yield key


def goes_on(replica: Replica, piece: PieceId) -> bool:
    """Whether a piece, or one of its name, has entries behind the oldest snapshot."""
    return piece.last > _oldest(replica)


def _oldest(replica: Replica) -> int:
    """The revision of the oldest snapshot; 0: from the log's beginning on everything is needed."""
    known = replica.state.snapshots
    return known[0].revision if known else 0


async def _piece(world: World, pieces: Sequence[Stored], stored: Stored, sums: _Sums, look: Look) -> None:
    """One piece, and what it follows."""
    piece = stored.id
    content = await look(Need(piece_key(piece), _needed(world, piece), stored.size, piece))
    if content is None:
        return
    found = await off_loop(len(content), partial(decode, content))
    sums[piece] = found.checksum
    if found.header.begins or piece.first <= _oldest(world.replica) + 1:
        return
    before = [each.id for each in pieces if each.id.last == piece.first - 1]
    known = [await _sum(world, each, sums) for each in before]
    if not before:
        await look(_gap(world, pieces, piece))
    elif found.header.previous not in known and all(known):
        broken = f"it does not follow {' or '.join(map(piece_key, before))}, which ends before it begins"
        await look(Need(piece_key(piece), _needed(world, piece), stored.size, piece, lambda _: broken))


def _gap(world: World, pieces: Sequence[Stored], behind: PieceId) -> Need:
    """What is missing before a piece, under the name that one piece with all of it would have."""
    last = behind.first - 1
    reached = max([_oldest(world.replica), *(each.id.last for each in pieces if each.id.last < last)])
    missing = PieceId(behind.folder, reached + 1, last)

    async def still() -> bool:
        now = await listed(world.store, behind.folder)
        return any(each.id == behind for each in now) and all(each.id.last != last for each in now)

    return Need(piece_key(missing), _needed(world, missing), what=missing, still=still)


async def _sum(world: World, piece: PieceId, sums: _Sums) -> bytes:
    """The checksum of a piece that is whole; nothing of another."""
    if piece not in sums:
        try:
            sums[piece] = (await fetched(world.store, piece)).checksum
        except (CorruptPiece, NotFound):
            sums[piece] = b""
    return sums[piece]


def _needed(world: World, piece: PieceId) -> Callable[[], bool]:
    return lambda: goes_on(world.replica, piece)
