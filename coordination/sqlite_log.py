"""The embedded log: one SQLite file, WAL, an fsync for every append. Several processes may share it.

All statements run in one thread of the log's own, so the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

from coordination.backoff import Backoff
from coordination.chain import RENEWED_AGAIN_S, AppendChain, AttemptFailed, KeyState
from coordination.clock import Clock
from coordination.log import (
    Entries,
    EntryName,
    Fenced,
    LogRegressed,
    Member,
    Trimmed,
    Unavailable,
    check_last,
)
from coordination.sqlite_file import LogFile
from objectstore import tasks

ENTRY_BYTES_MAX = 1 << 20
OWNER_BITS = 62
POLL_S = 0.05  # how late a follower hears of another process's append, at most
_T = TypeVar("_T")
# What SQLite reports about a COMMIT that may have reached the disk; everything else rolled back.
_AMBIGUOUS = ("disk i/o error",)


class SqliteLog:
    """Implements coordination.log.Log on the file at `path`, which is created when missing."""

    def __init__(
        self, path: str, clock: Clock, *, poll_s: float = POLL_S, busy_timeout_s: float = 5.0
    ) -> None:
        """`busy_timeout_s`: how long a call waits for another process's transaction to end."""
        self._path = path
        self._clock = clock
        self._poll_s = poll_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-log")
        self._file = LogFile(path, busy_timeout_s)
        self._chains: list[SqliteChain] = []

    @property
    def entry_bytes_max(self) -> int:
        """The same as etcd's, so that a cluster can move there."""
        return ENTRY_BYTES_MAX

    async def identity(self) -> str:
        """The id that the file drew when it was made."""
        return await self.ask(lambda: f"sqlite:{self._file.identity(lambda: self._clock.random_bytes(16))}")

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> SqliteChain:
        """See coordination.log.Log. The lease is a column that a task moves on."""
        owner = self._clock.random_bits(OWNER_BITS)
        expires_ms = self._expiry(ttl_s)
        revision = await self.ask(lambda: self._file.register(incarnation, owner, info, expires_ms))
        if revision is None:
            raise Fenced(f"incarnation {incarnation:016x} was used before", maybe_appended=False)
        wake_followers(self._path)
        chain = SqliteChain(self, incarnation, owner, revision, ttl_s, Backoff(self._clock))
        self._chains.append(chain)
        return chain

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        """See coordination.log.Log.follow. Woken by this process's writers, polling for others.

        Nobody else's log comes under an open file: where reading begins is looked at once.
        """
        position, woken = after, _Waker(self._path)
        try:
            await self._check(after, last)
            while True:
                woken.clear()
                try:
                    trimmed, entries, through = await self.ask(partial(self._file.read, position))
                except Unavailable:
                    await asyncio.sleep(self._poll_s)
                    continue
                if trimmed > position:
                    raise Trimmed(trimmed)
                if through < position:
                    raise LogRegressed(f"the log is at revision {through}, and was at {position} before")
                if through > position:
                    position = through
                    yield Entries(entries, through)
                else:
                    await woken.wait(self._poll_s)
        finally:
            woken.close()

    async def _check(self, after: int, last: EntryName | None) -> None:
        """Raise LogRegressed when `last` is not this log's newest entry at or below `after`."""
        while last is not None:
            try:
                known = await self.ask(partial(self._file.has, last))
                _, since, _ = await self.ask(partial(self._file.read, last.revision))
            except Unavailable:
                await asyncio.sleep(self._poll_s)
                continue
            check_last(last, known, after, since)
            return

    async def current(self) -> int:
        """The revision of the last committed change."""
        return await self.ask(self._file.revision)

    async def members(self) -> Sequence[Member]:
        """The live keys; expired ones are deleted first, so that gone is gone for everybody."""
        return await self.ask(lambda: self._file.members(self._clock.now_ms()))

    async def fence(self, incarnation: int) -> None:
        """Delete the key."""
        await self.ask(lambda: self._file.delete(incarnation))
        wake_followers(self._path)

    async def trim(self, through: int) -> None:
        """Forget entries at or below `through`."""
        await self.ask(lambda: self._file.trim(through))
        wake_followers(self._path)

    async def trimmed(self) -> int:
        """The revision through which entries are gone."""
        return await self.ask(self._file.trimmed)

    async def close(self) -> None:
        """Stop renewing leases and close the file; what was registered and not closed expires."""
        for chain in self._chains:
            chain.abandon()
        with suppress(AttemptFailed):
            await self.call(self._file.close)
        self._thread.shutdown(wait=False)

    async def call(self, step: Callable[[], _T]) -> _T:
        """Run one transaction in the log's thread. Raises AttemptFailed, never anything of SQLite's."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, step)
        except sqlite3.Error as error:
            ambiguous = str(error).lower() in _AMBIGUOUS
            raise AttemptFailed(f"{self._path}: {error}", ambiguous=ambiguous) from error
        except RuntimeError as error:  # the executor after close()
            raise AttemptFailed(f"{self._path}: the log is closed", ambiguous=False) from error

    async def ask(self, step: Callable[[], _T]) -> _T:
        """call() in the port's terms. Raises Unavailable."""
        try:
            return await self.call(step)
        except AttemptFailed as failure:
            raise Unavailable(str(failure)) from failure

    async def append_once(
        self, incarnation: int, sequence: int, payload: bytes, expected: int
    ) -> int | KeyState | None:
        """One attempt of a chain; wakes the followers of this process."""
        outcome = await self.call(lambda: self._file.append(incarnation, sequence, payload, expected))
        if isinstance(outcome, int):
            wake_followers(self._path)
        return outcome

    async def key_of(self, incarnation: int) -> KeyState | None:
        """The key as it is now; None when it is gone. Raises Unavailable."""
        return await self.ask(lambda: self._file.key(incarnation))

    async def renew(self, incarnation: int, owner: int, ttl_s: float) -> bool:
        """Move the lease's end; False when the key is gone. Raises AttemptFailed."""
        expires_ms = self._expiry(ttl_s)
        return await self.call(lambda: self._file.renew(incarnation, owner, expires_ms))

    async def give_up(self, incarnation: int, owner: int) -> None:
        """Delete the key of this registration. Raises Unavailable."""
        await self.ask(lambda: self._file.delete(incarnation, owner))
        wake_followers(self._path)

    def _expiry(self, ttl_s: float) -> int:
        return self._clock.now_ms() + int(ttl_s * 1000)


class SqliteChain(AppendChain):
    """The chain of one incarnation in the file; renews its lease in a task."""

    def __init__(
        self, log: SqliteLog, incarnation: int, owner: int, revision: int, ttl_s: float, backoff: Backoff
    ) -> None:
        super().__init__(incarnation, owner, revision, ENTRY_BYTES_MAX, backoff)
        self._log = log
        self._renewal = tasks.kept(partial(self._renew, ttl_s), "renewal of the lease")

    async def close(self) -> None:
        """Give the incarnation up: delete its key, best effort."""
        self.abandon()
        with suppress(Unavailable):
            await self._log.give_up(self._incarnation, self._owner)

    def abandon(self) -> None:
        """Renew the lease no more."""
        self._renewal.cancel()

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        return await self._log.append_once(self._incarnation, sequence, payload, expected)

    async def _key(self) -> KeyState | None:
        return await self._log.key_of(self._incarnation)

    async def _renew(self, ttl_s: float) -> None:
        alive, pause_s = True, ttl_s / 3
        while alive:
            await asyncio.sleep(pause_s)
            pause_s = min(ttl_s / 3, RENEWED_AGAIN_S)
            with suppress(AttemptFailed):
                alive = await self._log.renew(self._incarnation, self._owner, ttl_s)
                pause_s = ttl_s / 3


_wakers: dict[str, list[_Waker]] = {}
_wakers_lock = threading.Lock()


class _Waker:
    """Lets an append wake this process's followers of the same file, in whatever loop they run."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        with _wakers_lock:
            _wakers.setdefault(path, []).append(self)

    def wake(self) -> None:
        """Thread-safe."""
        with suppress(RuntimeError):  # its loop is closed
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._event.clear()

    async def wait(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()

    def close(self) -> None:
        with _wakers_lock:
            _wakers[self._path].remove(self)
            if not _wakers[self._path]:
                del _wakers[self._path]


def wake_followers(path: str) -> None:
    """Tell this process's followers that the file changed; other processes poll."""
    with _wakers_lock:
        for waker in _wakers.get(path, ()):
            waker.wake()
