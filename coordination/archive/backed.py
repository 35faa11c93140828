"""Whether the bucket already has what the log says: what a restore of the cluster would go back to.

What the log let go of may be deleted once a restore would not bring its mention back. Snapshots and archived
entries are seconds behind, or as far as nobody can write them: until then the objects are to stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from coordination.archive.head import Stored, listed
from coordination.archive.tail import is_quiet
from coordination.log import Log, LogEntry
from coordination.replica import Replica
from coordination.state import State
from objectstore.naming import log_folder
from objectstore.store import ObjectStore

LOOK_S = 2.0  # between two listings of the archive's pieces
QUIET_BYTES_MAX = 512  # of payload: an entry with more is none that an idle cluster writes by itself


class Backed:
    """Compares the log's newest change with what lies in the bucket.

    `wait_s`: how long `catches_up` waits at most; a snapshot should come within it.
    """

    def __init__(self, replica: Replica, log: Log, store: ObjectStore, wait_s: float) -> None:
        self._replica, self._log, self._store = replica, log, store
        self._looks = max(1, int(wait_s / LOOK_S))
        self._changed = replica.state.revision
        self._leaving = False  # whether the next entry, whatever it says, lets go of a deleted topic's rows
        replica.add_entry_listener(self._applied)
        replica.add_reload_listener(self._replaced)

    def _applied(self, entry: LogEntry) -> None:
        leaving = bool(self._replica.state.leaving)
        if leaving or self._leaving or len(entry.payload) > QUIET_BYTES_MAX or not is_quiet(entry):
            self._changed = entry.revision
        self._leaving = leaving

    def _replaced(self, state: State) -> None:
        self._changed, self._leaving = state.revision, bool(state.leaving)

    async def catches_up(self) -> str:
        """Wait until a restore would know all that this state knows now; empty, or how far it would come.

        Raises StoreError, LogError.
        """
        wanted, through = self._changed, 0
        for look in range(self._looks):
            if look:
                await asyncio.sleep(LOOK_S)
            through = await self._through()
            if through >= wanted:
                return ""
        return (
            f"neither a snapshot nor the archived log in the bucket has revision {wanted} yet, they end at "
            f"{through}: a restore would need what was let go of since"
        )

    async def _through(self) -> int:
        pieces = await listed(self._store, log_folder(await self._log.identity()))
        snapshots = self._replica.state.snapshots
        return through(snapshots[-1].revision if snapshots else 0, pieces)


def through(snapshot: int, pieces: Iterable[Stored]) -> int:
    """How far pieces lead on from a snapshot's revision, by their names."""
    for piece in sorted(pieces):
        if piece.id.first <= snapshot + 1:
            snapshot = max(snapshot, piece.id.last)
    return snapshot
