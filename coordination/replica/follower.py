"""Following the log: applies every entry in order, in slices of bounded time, and wakes who waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from coordination.log import Entries, Log, LogEntry, LogRegressed, Trimmed, Unavailable
from coordination.replica.comparing import Comparison
from coordination.replica.doubt import Disputed, Doubt, Rebuilt
from coordination.replica.loading import load_newest
from coordination.replica.options import ReplicaOptions
from coordination.replica.waiters import RevisionWaiters
from coordination.state import Applied, State, StateError
from objectstore.episodes import Episodes, loop_time, through
from objectstore.store import ObjectStore, StoreError

_logger = logging.getLogger("floe.coordination.replica")

GAP_S_MAX = 30.0
"""Longest wait for an entry that is known to be there before the log is followed afresh, seconds."""


class Follower:
    """Owns the state. `through`: every entry at or below this revision has been applied."""

    def __init__(self, log: Log, store: ObjectStore, options: ReplicaOptions) -> None:
        self.state = State()
        self.through = 0
        self.revisions = RevisionWaiters()
        self.listeners: list[Callable[[Applied], None]] = []
        self.entry_listeners: list[Callable[[LogEntry], None]] = []
        self.on_reload: list[Callable[[State], None]] = []
        self.applying = asyncio.Lock()  # held while entries are applied; hold it to keep the state still
        self.last_error = ""
        self.own: set[int] = set()  # incarnations of this process
        self.comparison = Comparison(self.is_own)
        self.comparing = False  # from the registration on: what was said before is of the past
        self.doubt = Doubt(log, store, options)
        self._log = log
        self._store = store
        self._options = options
        self._interrupt: asyncio.Timeout | None = None
        self._known = 0  # the highest revision the log is known to have
        self._stuck_since: float | None = None
        self._patience_s = options.gap_s
        self._position = 0  # `through` when it was last looked at
        self._away = Episodes(
            through(_logger), loop_time, begins="the log is not followed", ends="the log is followed again"
        )
        self._unloaded = Episodes(
            through(_logger), loop_time, begins="no snapshot can be loaded", ends="a snapshot is loaded"
        )

    async def load(self) -> None:
        """Take the newest good snapshot, retrying while log or store cannot be asked."""
        while True:
            try:
                state = await load_newest(self._log, self._store, self._options.apply_slice_s)
                break
            except (Unavailable, StoreError) as error:
                self.last_error = f"loading a snapshot: {error}"
                self._unloaded.met("", error=str(error))
                await asyncio.sleep(self._options.retry_s)
        self._unloaded.over("", revision=state.revision)
        if state.revision < self.state.revision:
            raise LogRegressed(
                f"the newest snapshot is at revision {state.revision}, this agent at {self.state.revision}"
            )
        if state.revision > self.state.revision:
            self.state = state
            self.comparison = Comparison(self.is_own, state.revision)
            self._reached(max(state.revision, self.through))
            for tell in list(self.on_reload):
                tell(state)

    async def run(self) -> None:
        """Follow for ever. Raises StateError, LogRegressed, ReplicaFailed: this agent must stop."""
        while True:
            try:
                await self._follow()
            except Trimmed as trimmed:
                _logger.warning("%s: loading a snapshot", trimmed)
                await self.load()
            except TimeoutError:
                _logger.warning("an entry above revision %d is overdue: reading the gap", self.through)
            except Disputed:
                self._take(await self.doubt.settle(self.state, self.through, self.comparison))
            except StateError as error:
                rebuilt = await self.doubt.unreadable(self.through, self.is_own, error)
                if rebuilt is None:
                    raise
                self._take(rebuilt)
            except Unavailable as error:
                self.last_error = f"following: {error}"
                self._away.met("", revision=self.through, error=str(error))
                await asyncio.sleep(self._options.retry_s)

    async def _follow(self) -> None:
        batches = self._log.follow(self.through, self.state.last_entry)
        try:
            async with asyncio.timeout(None) as self._interrupt:
                async for batch in batches:
                    self._away.over("", revision=self.through)
                    await self._apply(batch)
        finally:
            self._interrupt = None
            await _close(batches)

    def is_own(self, incarnation: int) -> bool:
        """Whether it is one of this process."""
        return incarnation in self.own

    def compare(self) -> None:
        """From now on another state elsewhere is a reason to doubt this one; what was said before is not."""
        self.comparing = True

    def _take(self, rebuilt: Rebuilt | None) -> None:
        """Go on with this state instead of the one before; None: with that."""
        if rebuilt is not None:
            self.state, self.comparison = rebuilt.state, rebuilt.comparison
            self._reached(rebuilt.through)
            for tell in list(self.on_reload):
                tell(rebuilt.state)
        self._reached(self.through)

    async def wait(self, revision: int) -> None:
        """Return once everything at or below `revision` has been applied."""
        if revision > self.through:
            await self.revisions.wait(revision)

    def knows(self, revision: int) -> None:
        """Take note that the log has reached this revision: an append or a read barrier was told so."""
        self._known = max(self._known, revision)

    @property
    def lag(self) -> int:
        """Revisions between what the log is known to hold and what was applied."""
        return max(0, self._known - self.through)

    def read_gap_if_overdue(self, now: float) -> None:
        """Follow afresh when no entry came for `gap_s` although the log is known to have more (rule 6).

        The wait doubles each time that did not help. A slow log, or one that is far ahead, may need longer
        than `gap_s` for its first entries: beginning again at a fixed interval would cut them off each
        time.
        """
        if self._known <= self.through or self.through != self._position:
            self._position = self.through
            self._stuck_since = None
            self._patience_s = self._options.gap_s
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= self._patience_s and self._interrupt is not None:
            self._stuck_since = now
            self._patience_s = min(2 * self._patience_s, GAP_S_MAX)
            self._interrupt.reschedule(now)
            self._interrupt = None

    async def _apply(self, batch: Entries) -> None:
        loop = asyncio.get_running_loop()
        entries = iter(batch.entries)
        unfinished = True
        while unfinished:
            async with self.applying:
                until = loop.time() + self._options.apply_slice_s
                unfinished = False
                for entry in entries:
                    applied = self.state.apply(entry)
                    self.through = applied.revision
                    self.comparison.note(entry)
                    difference = self.comparison.heard(applied, self.state) if self.comparing else None
                    if difference is not None:
                        self.doubt.reason = str(difference)  # before anybody hears of this entry
                    self._tell(applied)
                    for note in self.entry_listeners:
                        note(entry)
                    if difference is not None:
                        raise Disputed(difference)
                    if loop.time() >= until:
                        unfinished = True
                        break
            self._reached(self.through)
            if unfinished:
                await asyncio.sleep(0)
        self._reached(batch.through)

    def _tell(self, applied: Applied) -> None:
        for listener in list(self.listeners):
            listener(applied)

    def _reached(self, revision: int) -> None:
        self.through = max(self.through, revision)
        self.revisions.reached(self.through)


async def _close(batches: AsyncIterator[Entries]) -> None:
    close = getattr(batches, "aclose", None)
    if close is not None:
        await close()
