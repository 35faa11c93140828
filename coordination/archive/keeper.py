"""The job that copies the log to the bucket. Every agent runs it; one holds the claim.

Order, and what a death between two steps leaves: a piece is written under a name of its own, create only,
then the entries in it are forgotten here, then pieces that no snapshot needs any more are deleted. Whoever
takes over looks for the newest good piece and goes on behind it, from the log. A PUT that lands late, or a
writer that has not heard that it lost the claim, leaves a piece beside the chain: true, and passed over.

A name may be taken by what cannot be gone on from, such as a damaged piece. A piece is then cut elsewhere, so
that it has another one: with fewer entries, or with more where there is no such name among those.

Where the log was trimmed before it was archived, entries are missing: a new chain begins, and says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any, cast

from coordination.archive.head import Head, Stored, fetched, last_entry, listed, newest
from coordination.archive.piece import (
    NONE,
    RAW_BYTES_MAX,
    CorruptPiece,
    Header,
    checksum_of,
    encode_steps,
)
from coordination.archive.tail import Tail
from coordination.jobs import Job
from coordination.log import EntryName, Log, LogEntry, LogRegressed, Trimmed, Unavailable
from coordination.replica import Replica
from coordination.state import ClaimHolder
from coordination.state.cluster import SNAPSHOTS_KEPT
from coordination.steps import reach
from objectstore.naming import PieceId, log_folder, piece_key
from objectstore.removal import Removal, require_none
from objectstore.store import CREATE, Ambiguous, Buffer, NotFound, ObjectStore, Precondition, Retryable

CLAIM = "log-archive"
READ_S_MAX = 30.0  # until entries that the log has must have come
CUT_BYTES_MAX = RAW_BYTES_MAX // 4  # of payload: what has more is not made larger still for another name
UNCONFIRMED_S_MAX = 60.0
"""Most copies of the log may say nothing for so long about entries from before this agent's state."""
_logger = logging.getLogger("floe.coordination.archive")


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """A piece is due so many seconds after an entry that is worth one, or at so many bytes of payload."""

    seconds: float = 5.0
    piece_bytes: int = 1 << 20
    bytes_max: int = 16 << 20  # of entries that wait in memory; beyond, they are read from the log again
    slice_s: float = 0.003  # encoding yields to the event loop after this long

    @property
    def poll_s(self) -> float:
        """Between two looks."""
        return min(1.0, self.seconds / 5)


@dataclass(slots=True)
class Counts:
    """What this agent did since its start."""

    pieces: int = 0
    bytes: int = 0
    failures: int = 0
    gaps: int = 0


class LogArchive(Job):
    """Writes pieces of the log, seconds behind it; deletes those that are older than the oldest snapshot."""

    claim = CLAIM

    def __init__(
        self, replica: Replica, log: Log, store: ObjectStore, options: ArchiveOptions | None = None
    ) -> None:
        self.options = options or ArchiveOptions()
        super().__init__(replica, self.options.poll_s)
        self._log, self._store = log, store
        self._removal = Removal(store.delete)
        self._loop = asyncio.get_running_loop()
        self._tail = Tail(self.options.bytes_max)
        self._hold: ClaimHolder | None = None
        self._identity = ""
        self._head: Head | None = None  # None: to be looked for
        self._pieces: list[Stored] = []
        self._taken: set[PieceId] = set()  # names behind the head that something unusable has
        self._written_at = self._loop.time()
        self._unsure_since: float | None = None
        self._cleaned = 0  # pieces through this revision were deleted
        self.counts = Counts()
        replica.add_entry_listener(lambda entry: self._tail.add(entry, self._loop.time()))
        replica.add_reload_listener(self._tail.reload)

    # What others look at.

    @property
    def head(self) -> Head | None:
        """Where the archive ends, at the agent that writes it; None at others."""
        return self._head if self.held() is not None else None

    @property
    def lag_revisions(self) -> int:
        """Between the archive's end and what was applied."""
        return 0 if self.head is None else max(0, self.replica.state.revision - self.head.last)

    @property
    def lag_s(self) -> float:
        """Age of the oldest entry that waits and that an idle cluster would not have written."""
        since = self._tail.busy_since
        return 0.0 if since is None else self._loop.time() - since

    @property
    def missing(self) -> list[tuple[int, int]]:
        """Revisions, first and last, above the oldest snapshot that are in no piece; none at other agents."""
        found: list[tuple[int, int]] = []
        if self.head is None:
            return found
        snapshots = self.replica.state.snapshots
        reached = snapshots[0].revision if snapshots else 0
        for each in self._pieces:
            if each.id.first > reached + 1:
                found.append((reached + 1, each.id.first - 1))
            reached = max(reached, each.id.last)
        return found

    def status(self) -> dict[str, object]:
        """For status pages."""
        head = self.head
        if head is None:
            return {"writes": False}
        return {
            "writes": True,
            "first": self._pieces[0].id.first if self._pieces else None,
            "through": head.last,
            "lag_revisions": self.lag_revisions,
            "lag_seconds": round(self.lag_s, 1),
            "seconds_since_piece": round(self._loop.time() - self._written_at, 1),
            "pieces": len(self._pieces),
            "bytes": sum(each.size for each in self._pieces),
            "missing": self.missing,
        }

    # The job.

    async def _look(self) -> None:
        await super()._look()
        if self.held() is None and self._hold is not None:
            self._let_go()

    def _let_go(self) -> None:
        self._hold = self._head = self._unsure_since = None  # another term waits anew
        self._pieces = []
        self._tail.end()

    async def step(self, held: ClaimHolder) -> None:
        """Write what is due, and delete what is needed no more."""
        try:
            if self._hold != held:
                self._let_go()
                self._hold = held
            head = self._head
            if head is None:
                head = await self._take_over()
            while self.held() == held and self._is_due(head):
                entries, head = await self._cut(head)
                if not entries:
                    break
                head = await self._write(head, entries)
            if self.held() == held:
                await self._delete_old(head)
        except Exception:
            self.counts.failures += 1
            raise

    async def _take_over(self) -> Head:
        """Find the end of the archive, and keep entries from now on."""
        self._identity = await self._log.identity()
        folder = log_folder(self._identity)
        self._pieces = await listed(self._store, folder)
        head, unusable = await newest(self._store, self._pieces)
        self._taken.update(unusable)
        if head is None:
            trimmed = await self._log.trimmed()
            lost = max((each.id.last for each in self._pieces), default=0)
            head = Head(trimmed, gap=lost if lost < trimmed else 0)
            if head.gap:
                self._tell_gap(head)
        await self.replica.barrier()  # the log is as far as whoever wrote the newest piece knew it
        state = self.replica.state
        last = state.last_entry
        other = last is not None and last.revision == head.last and head.name not in (None, last)
        if head.last > self.replica.revision or other:
            raise LogRegressed(
                f"the archived log goes through revision {head.last}, the log is at {state.revision} or has "
                "another entry there: it was restored from an older backup. Where that was meant, move the "
                f"pieces away that end above the backup's revision, from log/{folder}/"
            )
        self._tail.begin(state.revision)
        self._head, self._cleaned = head, 0
        told = {"through": head.last, "pieces": len(self._pieces), "behind": state.revision - head.last}
        _logger.info("this agent archives the log", extra={"fields": told})
        return head

    def _is_due(self, head: Head) -> bool:
        tail, snapshots = self._tail, self.replica.state.snapshots
        if tail.after is None or tail.after > head.last:
            return True  # something is to be read from the log
        if tail.size >= self.options.piece_bytes:
            return True
        since = tail.busy_since
        if since is not None and self._loop.time() - since >= self.options.seconds - self.options.poll_s:
            return True
        # The log is trimmed behind the second-newest snapshot: a successor would miss what only waits here.
        return bool(tail.entries and snapshots and snapshots[-1].revision > head.last)

    async def _cut(self, head: Head) -> tuple[list[LogEntry], Head]:
        """The next entries that can be a piece, none when there are none; the head that they go behind.

        Those that `_next` has, but for the last ones where their name is taken. Where each beginning of them
        has such a name there are more, or a later look finds some: the log goes on.
        """
        size = self.options.piece_bytes
        while True:
            entries, head = await self._next(head, size)
            count = len(entries)
            while count and self._name_of(head.last + 1, entries[count - 1].revision) in self._taken:
                count -= 1
            all_there = not entries or entries[-1].revision >= self.replica.revision
            if count or all_there or size > CUT_BYTES_MAX:
                return entries[:count], head
            size *= 2

    def _name_of(self, first: int, last: int) -> PieceId:
        return PieceId(log_folder(self._identity), first, last)

    async def _next(self, head: Head, piece_bytes: int) -> tuple[list[LogEntry], Head]:
        """The next entries, of about so many bytes but one at least, none when there is nothing now; the head
        that they go behind."""
        after = self._tail.after
        assert after is not None, "the job is held"
        read, left = list[LogEntry](), piece_bytes
        if after > head.last:
            try:
                async with asyncio.timeout(READ_S_MAX):
                    read, left = await self._read(head, after, piece_bytes)
            except Trimmed as trimmed:
                head = self._head = Head(trimmed.through, gap=head.last)
                self._tell_gap(head)
                return [], head  # the next look goes on from there
            if self._tail.after != after:
                return read, head  # it was begun again meanwhile: there are others between the two
            if not read:
                self._tail.joins(head.last)
        return (read + self._tail.take(head.last, left) if left > 0 else read), head

    async def _read(self, head: Head, through: int, piece_bytes: int) -> tuple[list[LogEntry], int]:
        """Entries behind the head up to a revision that the log has, as many as have so many bytes.

        And how many bytes more there might have been; 0: there are more entries.
        """
        read: list[LogEntry] = []
        size = 0
        async with aclosing(cast(Any, self._log.follow(head.last, head.name))) as batches:
            async for batch in batches:
                for entry in batch.entries:
                    if entry.revision > through:
                        return read, piece_bytes - size
                    if read and size + len(entry.payload) > piece_bytes:
                        return read, 0
                    size += len(entry.payload)
                    read.append(entry)
                if batch.through >= through:
                    break
        return read, piece_bytes - size

    async def _write(self, head: Head, entries: list[LogEntry]) -> Head:
        """Seal a piece and put it into the bucket; the new end."""
        await self._confirm(head.last, entries)
        snapshots = self.replica.state.snapshots
        base = next((each.revision for each in snapshots if each.revision >= head.last), 0)
        begins = head.checksum == NONE and head.last > 0
        last = entries[-1]
        header = Header(head.last + 1, last.revision, head.checksum, base if begins else 0, head.gap)
        parts = await self._encode(header, entries)
        taken_at = self._loop.time()
        piece = self._name_of(header.first, header.last)
        try:
            reach("archive/put")
            checksum = await self._put(piece, parts, header)
        except Precondition:
            self._taken.add(piece)
            self._head = None  # somebody else writes, or a damaged piece is in the way: look where it ends
            raise
        reach("archive/written")
        size = sum(map(len, parts))
        self._pieces.append(Stored(piece, size, 0))
        self._pieces.sort()
        self._taken.clear()  # whatever is called so begins at this piece's first revision, or before it
        self._written_at = taken_at
        self.counts.pieces += 1
        self.counts.bytes += size
        self._tail.drop(header.last, taken_at)
        name = EntryName(last.revision, last.incarnation, last.sequence)
        self._head = Head(header.last, checksum, name)
        return self._head

    async def _confirm(self, after: int, entries: list[LogEntry]) -> None:
        """Have another agent's word that these are all of the log's above `after`, while one gives it.

        Raises Unavailable. Where none says anything they are written nevertheless: what is in no piece is
        lost with etcd. That word is of what led to this agent's state from where it began: its state may be
        right and what it reads from before wrong, so for that the log's copies are asked.
        """
        rebuilt = self.replica.doubt.counts["rebuilt"]
        with suppress(Unavailable):
            await self.replica.confirm(entries[-1].revision)
        if self.replica.doubt.counts["rebuilt"] != rebuilt:
            self._head = None
            raise Unavailable("the state was made anew meanwhile: entries of the one before are not archived")
        other = self.replica.contradicts(after, entries)
        if other is not None:
            self._head = None  # look for the end again, and read anew
            raise Unavailable(
                f"the log is not at revision {other} what was applied there: the copy of it that was read is "
                "another one than the others"
            )
        through = min(self.replica.vouches_above, entries[-1].revision)
        if after < through:
            await self._confirm_before(after, through, [each for each in entries if each.revision <= through])

    async def _confirm_before(self, after: int, through: int, entries: list[LogEntry]) -> None:
        """Have the word of most of the log's copies, where most say anything. Raises Unavailable."""
        sustained = await self.replica.doubt.sustained(after, through, entries)
        if sustained:
            self._unsure_since = None
            return
        if sustained is False:
            self._head = None
            raise Unavailable(
                f"the entries from {after + 1} through {through} are not as most copies of the log have them"
            )
        now = self._loop.time()
        self._unsure_since = self._unsure_since or now
        if now - self._unsure_since < UNCONFIRMED_S_MAX:
            raise Unavailable(f"most copies of the log do not say what they have through {through}")
        _logger.warning("entries are archived that most copies of the log have not confirmed: they are mute")

    async def _encode(self, header: Header, entries: list[LogEntry]) -> list[bytes]:
        until = self._loop.time() + self.options.slice_s
        parts: list[bytes] = []
        for step in encode_steps(header, self._identity, entries):
            parts = step
            if self._loop.time() >= until:
                await asyncio.sleep(0)
                until = self._loop.time() + self.options.slice_s
        return parts

    async def _put(self, piece: PieceId, parts: list[bytes], header: Header) -> bytes:
        """Create only; the checksum of what lies there then. What another agent wrote of the same will do.

        Raises Precondition where something else has the name; StoreError.
        """
        try:
            await self._store.put(piece_key(piece), list[Buffer](parts), CREATE)
        except (Ambiguous, Precondition) as error:
            try:
                found = await fetched(self._store, piece)
                await last_entry(found)
            except NotFound:
                raise Retryable(f"it is not known whether {piece_key(piece)} was written") from error
            except CorruptPiece as damage:
                raise Precondition(f"{piece_key(piece)} is there, and damaged: {damage}") from error
            if found.header.previous != header.previous:
                raise Precondition(f"{piece_key(piece)} is there, of another chain") from error
            return found.checksum
        return checksum_of(parts)

    async def _delete_old(self, head: Head) -> None:
        """Delete pieces that the oldest snapshot holds all of; the newest one stays in any case."""
        snapshots = self.replica.state.snapshots
        if len(snapshots) < SNAPSHOTS_KEPT or snapshots[0].revision <= self._cleaned:
            return
        self._cleaned = bound = snapshots[0].revision  # what stays is tried again with the next snapshot
        old = [each for each in self._pieces if each.id.last <= bound and each.id.last != head.last]
        if old:
            reach("archive/delete-old")
            with self.item("old pieces"):
                await self._delete([piece_key(each.id) for each in old])

    async def _delete(self, keys: Sequence[str]) -> None:
        """Raises StoreError where some of them stay."""
        kept: list[str] = []
        gone = await self._removal(keys, kept.append)
        self._pieces = [each for each in self._pieces if piece_key(each.id) not in gone]
        require_none(kept)

    def _tell_gap(self, head: Head) -> None:
        self.counts.gaps += 1
        told = {"after": head.gap, "again_after": head.last}
        _logger.warning("entries are missing in the archived log", extra={"fields": told})
