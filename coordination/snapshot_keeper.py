"""The job that writes snapshots and trims the log behind them. Every agent runs it; one holds the claim.

Order, and what a death between two steps leaves: the object is written under a name of its own (garbage
at worst, or a snapshot nobody recorded, which is as good to start from), then recorded in the log, then
the state says whether trimming is safe, then the log is trimmed (again, if nobody did), then snapshots
that count no more are deleted.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from dataclasses import dataclass

from coordination.commands import RecordSnapshot, Trim
from coordination.jobs import Job
from coordination.log import Log, Unavailable
from coordination.replica import Replica
from coordination.snapshot import encode_steps
from coordination.state import ClaimHolder, Done, Refused
from coordination.state.cluster import SNAPSHOTS_KEPT, trim_bound
from coordination.state.freeze import Frozen, freeze
from coordination.steps import reach
from objectstore.naming import SNAPSHOTS, parse_snapshot_key, snapshot_key
from objectstore.removal import Removal, require_none
from objectstore.store import CREATE, Ambiguous, Buffer, ObjectStore, Precondition

CLAIM = "snapshot"
MIDDLE_GENERATION = 1  # of Python's collector; with the youngest
BYTES_PER_ENTRY = 1_000
"""Of a snapshot, worth writing for each entry that an agent that starts need not apply, some 0.15 ms."""
UNCONFIRMED_S_MAX = 60.0
"""Others that live may say nothing about the state for so long."""
_logger = logging.getLogger("floe.coordination.snapshot")


@dataclass(frozen=True, slots=True)
class SnapshotOptions:
    """When a snapshot is due: so many revisions after the newest one, or so many seconds with any change.

    The seconds begin anew with the process that writes, so agents that all restart again and again, as in a
    rollout, write by revisions only; and each of them first applies what is behind the newest snapshot.
    """

    revisions: int = 20_000
    seconds: float = 300.0
    revisions_min: int = 5_000  # already after these, while a snapshot has less than BYTES_PER_ENTRY for each
    seconds_min: float = 20.0  # and then so long after the last one: two snapshots later the log is trimmed
    poll_s: float = 1.0  # between two looks
    slice_s: float = 0.003  # freezing and encoding yield to the event loop after this long


def early_after(options: SnapshotOptions, size: int) -> int:
    """How many revisions behind a newest snapshot of `size` bytes are worth another one before its time."""
    return max(options.revisions_min, size // BYTES_PER_ENTRY)


class SnapshotKeeper(Job):
    """Writes a snapshot when one is due, records it, trims the log, deletes old snapshots."""

    claim = CLAIM

    def __init__(
        self, replica: Replica, log: Log, store: ObjectStore, options: SnapshotOptions | None = None
    ) -> None:
        self.options = options or SnapshotOptions()
        super().__init__(replica, self.options.poll_s)
        self._log = log
        self._store = store
        self._removal = Removal(store.delete)
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._unconfirmed_since: float | None = None
        self._trimmed = 0  # the log is known to be trimmed through this

    async def step(self, held: ClaimHolder) -> None:
        """One look: write when due, trim what may be trimmed."""
        state = self.replica.state
        newest, size = (state.snapshots[-1].revision, state.snapshots[-1].size) if state.snapshots else (0, 0)
        behind = state.revision - newest
        since = self._loop.time() - self._last
        full = behind >= self.options.revisions or (since >= self.options.seconds and behind > 1)
        if full or (since >= self.options.seconds_min and behind >= early_after(self.options, size)):
            with self.item("snapshot"):
                await self.write()
        with self.item("trim"):
            await self.trim()

    async def write(self) -> int:
        """Write and record a snapshot now; returns its revision. Raises StoreError, LogError."""
        incarnation = self.replica.incarnation
        reach("snapshot/freeze")
        rebuilt = self.replica.doubt.counts["rebuilt"]
        frozen = await self._freeze()
        revision = frozen.head.revision
        await self._confirm(revision, rebuilt)
        reach("snapshot/encode")
        parts = await self._encode(frozen)
        size = sum(map(len, parts))
        key = snapshot_key(revision, incarnation)
        reach("snapshot/put")
        await self._put(key, parts)
        self._last = self._loop.time()
        reach("snapshot/record")
        result = await self.replica.propose(
            RecordSnapshot(revision=revision, key=key, size=size), incarnation=incarnation
        )
        if isinstance(result, Refused):
            _logger.warning("snapshot %s is not recorded: %s", key, result.message)
        else:
            _logger.info("wrote snapshot %s, %d bytes", key, size)
            with self.item("old snapshots"):
                await self._delete_old()
        return revision

    async def _confirm(self, revision: int, rebuilt: int) -> None:
        """Have another agent's word that the state is right. Raises Unavailable.

        Where the others say nothing for long, and nobody contradicts, it must do without: etcd fills up.
        """
        try:
            await self.replica.confirm(revision)
            self._unconfirmed_since = None
        except Unavailable:
            now = self._loop.time()
            self._unconfirmed_since = self._unconfirmed_since or now
            if now - self._unconfirmed_since < UNCONFIRMED_S_MAX:
                raise
            _logger.warning("a snapshot is written that no other agent has confirmed: none says anything")
        if self.replica.doubt.counts["rebuilt"] != rebuilt:
            raise Unavailable(
                "the state was made anew meanwhile: a snapshot of the one before is not written"
            )

    async def trim(self) -> int:
        """Trim the log as far as the state says it is safe; returns how far it is trimmed."""
        bound = trim_bound(self.replica.state)
        if bound > self.replica.state.trimmed_through:
            reach("trim/agree")
            result = await self.replica.propose(Trim(through=bound))
            if not isinstance(result, Done):
                return 0
        agreed = self.replica.state.trimmed_through
        if agreed > self._trimmed:
            if agreed > await self._log.trimmed():
                reach("trim/log")
                await self._log.trim(agreed)
                reach("trim/done")
            self._trimmed = agreed
        return agreed

    async def _freeze(self) -> Frozen:
        """Note the state while no entry is applied. The loop goes on; only apply waits."""
        async with self.replica.applying:
            until = self._loop.time() + self.options.slice_s
            for step in freeze(self.replica.state):
                frozen = step
                if self._loop.time() >= until:
                    # looks at this slice's notes, and leaves them to full collections; left in the middle
                    # generation all of them are gone over at once, by whatever collection of it comes next
                    gc.collect(MIDDLE_GENERATION)
                    await asyncio.sleep(0)
                    until = self._loop.time() + self.options.slice_s
        return frozen

    async def _encode(self, frozen: Frozen) -> list[Buffer]:
        until = self._loop.time() + self.options.slice_s
        parts: list[bytes] = []
        for step in encode_steps(frozen):
            parts = step
            if self._loop.time() >= until:
                await asyncio.sleep(0)
                until = self._loop.time() + self.options.slice_s
        return list(parts)

    async def _put(self, key: str, parts: list[Buffer]) -> None:
        """Create-only: the name is this incarnation's own, so whatever is there was written by this call."""
        try:
            await self._store.put(key, parts, CREATE)
        except (Ambiguous, Precondition):
            size = sum(len(part) for part in parts)
            if (await self._store.head(key)).size != size:
                raise

    async def _delete_old(self) -> None:
        """Delete snapshots below the oldest that counts, recorded or not."""
        snapshots = self.replica.state.snapshots
        if len(snapshots) < SNAPSHOTS_KEPT:
            return
        old: list[str] = []
        async for page in self._store.list(SNAPSHOTS):
            for meta in page:
                name = parse_snapshot_key(meta.key)
                if name is not None and name.revision < snapshots[0].revision:
                    old.append(meta.key)
        reach("snapshot/delete-old")
        kept: list[str] = []
        await self._removal(old, kept.append)
        require_none(kept)
