"""The newest state that snapshots and archived entries give. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from coordination.archive import shelf
from coordination.archive.piece import CorruptPiece
from coordination.snapshot import CorruptSnapshot, decode
from coordination.state import State, StateError
from objectstore.naming import LOG, SNAPSHOTS, log_folder, parse_piece_key, parse_snapshot_key, piece_key
from objectstore.store import NotFound, ObjectStore

REVISIONS_PASSED = 1 << 32
"""How far above everything that the bucket names a new log begins: more than a lost one can have had."""
REVISION_MAX = 1 << 62
"""No log comes to it, however often it was restored. A name above it is no agent's."""


class CannotRestore(Exception):
    """Why not, and what to do; nothing was changed by what raises it."""


class ChangedMeanwhile(CannotRestore):
    """What was listed is gone: whoever looks again finds what took its place."""


@dataclass(slots=True)
class Source:
    """`certain`: the revision that the state is at. `snapshot`: the object's key, empty without one.

    `missing`: archived ranges of revisions that could not be used. `begin`: no object of the bucket names a
    revision above it. `archived_ms`: when the newest piece was stored, `certain_ms` when what the state is
    made of was, the snapshot where no piece follows it; by the store's clock, Unix ms, 0: nothing was.
    """

    state: State
    snapshot: str = ""
    snapshot_revision: int = 0
    certain: int = 0
    entries: int = 0
    begin: int = 0
    archived_ms: int = 0
    certain_ms: int = 0
    damaged: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[int, int]] = field(default_factory=list)


async def source_of(store: ObjectStore, identity: str) -> Source:
    """Of the log with this identity. Raises CannotRestore, StoreError."""
    found = await _newest_snapshot(store)
    revision = found.snapshot_revision
    pieces = await shelf.survey(store, log_folder(identity), [revision])
    found.damaged += [(piece_key(stored.id), error) for stored, error in pieces.damaged]
    if not found.snapshot and not pieces.lines:
        raise CannotRestore(
            "the bucket has neither a readable snapshot nor an archived log: nothing says which topics there "
            "were; bring snapshots/ back from the bucket's versions"
        )
    state, gone = found.state, list(shelf.path(pieces.lines, revision))
    try:
        async for entry in shelf.entries_after(store, pieces, revision):
            state.apply(entry)
            found.entries += 1
    except (CorruptPiece, NotFound) as error:
        raise ChangedMeanwhile(f"the archived log changed while it was read ({error}): try again") from None
    except StateError as error:
        raise CannotRestore(f"the archived log cannot be applied by this version: {error}") from None
    if not state.incarnations:
        raise CannotRestore(
            "what is archived does not go back to the beginning and there is no readable snapshot: bring "
            "snapshots/ back from the bucket's versions"
        )
    found.certain, found.archived_ms = state.revision, pieces.modified_ms
    *_, found.certain_ms = (found.certain_ms, *(each.stored.modified_ms for each in gone))
    found.missing = [each for each in pieces.missing if each[1] > state.revision]
    found.begin = max(found.certain, pieces.last, await _highest_named(store)) + REVISIONS_PASSED
    return found


async def _newest_snapshot(store: ObjectStore) -> Source:
    """The newest one that is whole, or an empty state."""
    found = Source(State())
    stored_ms = {meta.key: meta.modified_ms async for page in store.list(SNAPSHOTS) for meta in page}
    for key in sorted(filter(parse_snapshot_key, stored_ms), reverse=True):
        try:
            state = decode(await store.get(key))
        except (CorruptSnapshot, NotFound) as error:
            found.damaged.append((key, str(error)))
        except StateError as error:
            raise CannotRestore(f"{key} is of a newer version: use that version's floe ({error})") from None
        else:
            found.state, found.snapshot, found.snapshot_revision = state, key, state.revision
            found.certain_ms = stored_ms[key]
            break
    return found


async def _highest_named(store: ObjectStore) -> int:
    """The highest revision in the name of any snapshot or piece, of whatever log, that a log can come to."""
    highest = 0
    async for page in store.list(SNAPSHOTS):
        names = [parse_snapshot_key(meta.key) for meta in page]
        highest = max([highest, *_possible(name.revision for name in names if name is not None)])
    async for page in store.list(LOG):
        pieces = [parse_piece_key(meta.key) for meta in page]
        highest = max([highest, *_possible(piece.last for piece in pieces if piece is not None)])
    return highest


def _possible(revisions: Iterable[int]) -> Iterator[int]:
    return (revision for revision in revisions if revision <= REVISION_MAX)
