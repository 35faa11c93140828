"""The log in memory: for tests and simulation, with faults to order on each client's link."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from coordination.backoff import Backoff
from coordination.chain import AppendChain, AttemptFailed, KeyState
from coordination.clock import Clock
from coordination.log import (
    Copy,
    Entries,
    EntryName,
    Fenced,
    LogEntry,
    LogRegressed,
    Member,
    Statement,
    Trimmed,
    Unavailable,
    check_last,
)
from coordination.memory_server import MEMBERS, Compacted, MemoryServer, Watch, WatchCancelled
from objectstore import tasks

ENTRY_BYTES_MAX = 1 << 20
PAGE_ENTRIES = 256
OWNER_BITS = 62
_T = TypeVar("_T")


@dataclass(slots=True)
class LinkFaults:
    """What goes wrong between one client and the server. Counters are used up call by call."""

    full: bool = False  # appends are refused: there is no room
    full_too_late: int = 0  # so many appends are said to be refused for it after they took effect
    refused: bool = False  # calls fail at once: definitely without effect
    partitioned: bool = False  # requests vanish: ambiguous for the caller
    lose_requests: int = 0  # so many requests vanish before they take effect
    lose_answers: int = 0  # so many answers vanish after the effect
    delivery_delay_s: float = 0.0  # followers hear that much later


class MemoryLog:
    """A client's handle on a MemoryServer; implements coordination.log.Log.

    `timeout_s` (event loop time) is how long a lost call takes to fail, `silent_s` how long a watch may
    say nothing before the gap is read, `latency_s` what one way to the server or back takes, drawn anew
    for each.
    """

    def __init__(
        self,
        server: MemoryServer,
        clock: Clock,
        *,
        timeout_s: float = 0.5,
        silent_s: float = 1.0,
        latency_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.server = server
        self.faults = LinkFaults()
        self._clock = clock
        self._timeout_s = timeout_s
        self._silent_s = silent_s
        self._latency_s = latency_s
        self.member = 0
        """Whose copy of the log this client reads."""
        self._seen = 0
        self._chains: list[MemoryChain] = []

    @property
    def entry_bytes_max(self) -> int:
        """The same as etcd's, so that what is tested here fits there."""
        return ENTRY_BYTES_MAX

    async def identity(self) -> str:
        """ "memory:" and the server's name."""
        return await self.ask(lambda: f"memory:{self.server.name}")

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> MemoryChain:
        """See coordination.log.Log."""
        owner = self._clock.random_bits(OWNER_BITS)
        revision = await self.ask(lambda: self.server.register(incarnation, owner, info, ttl_s))
        if revision is None:
            raise Fenced(f"incarnation {incarnation:016x} was used before", maybe_appended=False)
        chain = MemoryChain(self, incarnation, owner, revision, ttl_s, Backoff(self._clock))
        self._chains.append(chain)
        return chain

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Log.follow."""
        position = after
        while True:
            if await self._check(position, last):
                async with aclosing(self._follow_watch(position)) as batches:
                    async for batch in batches:
                        position, last = batch.through, _newest(batch.entries, last)
                        yield batch
            entries, through = await self._read_gap(position, last)
            if through > position:
                position, last = through, _newest(entries, last)
                yield Entries(entries, through)

    async def current(self) -> int:
        """The server's revision."""
        return await self.ask(lambda: self.server.revision)

    async def testify(self, entry: LogEntry | None = None) -> Statement:
        """See coordination.log.Witness."""
        return await self.ask(lambda: self.server.testify(entry))

    async def copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        """See coordination.log.Copied: one for each member of the server."""
        members = range(MEMBERS)
        try:
            found = await self.ask(lambda: [self.server.copy(each, after, through) for each in members])
        except (Unavailable, LogRegressed):
            return dict.fromkeys(map(str, members))
        return {str(member): copy for member, copy in enumerate(found)}

    def follow_copy(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Copied."""
        return self.follow(after, last)

    def turn_from(self, copies: Collection[str]) -> None:
        """See coordination.log.Copied."""
        if not copies or str(self.member) in copies:
            sound = (each for each in range(MEMBERS) if each != self.member and str(each) not in copies)
            self.member = next(sound, self.member)

    def ask_progress(self) -> None:
        """See coordination.log.Witness: followers here are told of every revision."""

    async def members(self) -> Sequence[Member]:
        """The live keys."""
        return await self.ask(self.server.members)

    async def fence(self, incarnation: int) -> None:
        """Delete the key."""
        await self.ask(lambda: self.server.delete(incarnation))

    async def trim(self, through: int) -> None:
        """Forget entries at or below `through`."""
        await self.ask(lambda: self.server.trim(through))

    async def trimmed(self) -> int:
        """The revision through which entries are gone."""
        return await self.ask(lambda: self.server.trimmed)

    async def close(self) -> None:
        """Stop renewing leases, as a crashed process would; keys stay until they expire."""
        for chain in self._chains:
            chain.abandon()

    async def call(self, step: Callable[[], _T]) -> _T:
        """One request over this client's link. Raises AttemptFailed."""
        await asyncio.sleep(self._latency_s())
        faults = self.faults
        if faults.refused:
            raise AttemptFailed("connection refused", ambiguous=False)
        if faults.partitioned or faults.lose_requests:
            faults.lose_requests -= not faults.partitioned
            await self._lost()
        answer = step()
        if faults.lose_answers:
            faults.lose_answers -= 1
            await self._lost()
        await asyncio.sleep(self._latency_s())
        return answer

    async def ask(self, step: Callable[[], _T]) -> _T:
        """call() in the port's terms. Raises Unavailable, LogRegressed."""
        floor = self._seen
        try:
            answer, revision = await self.call(lambda: (step(), self.server.revision))
        except AttemptFailed as failure:
            raise Unavailable(f"the memory log: {failure}") from failure
        if revision < floor:
            raise LogRegressed(f"the log is at revision {revision}, and was at {floor} before")
        self._seen = max(self._seen, revision)
        return answer

    async def _lost(self) -> None:
        await asyncio.sleep(self._timeout_s)
        raise AttemptFailed("no answer", ambiguous=True)

    async def _check(self, position: int, last: EntryName | None) -> bool:
        """Whether the server is reached; raises when following from `position` is over."""
        try:
            trimmed, revision = await self.ask(lambda: self._known(position, last))
        except Unavailable:
            await asyncio.sleep(self._timeout_s)
            return False
        if revision < position:
            raise LogRegressed(f"the log is at revision {revision}, and was at {position} before")
        if trimmed > position:
            raise Trimmed(trimmed)
        return True

    def _known(self, position: int, last: EntryName | None) -> tuple[int, int]:
        """What is trimmed and the newest revision, when this is the log that was followed."""
        if last is not None:
            since, _ = self.server.read(last.revision, 1)
            check_last(last, self.server.has(last), position, since)
        return self.server.trimmed, self.server.revision

    async def _follow_watch(self, position: int) -> AsyncGenerator[Entries, None]:
        try:
            watch = self.server.watch(position)
        except Compacted:
            return
        silence = _Silence(watch, self._silent_s)
        try:
            while True:
                entries, through = await self._next(watch, silence)
                yield Entries(self.server.held(self.member, entries), through)
        except (WatchCancelled, TimeoutError):
            return
        finally:
            silence.end()
            self.server.unwatch(watch)

    async def _next(self, watch: Watch, silence: _Silence) -> tuple[list[LogEntry], int]:
        while True:
            silence.begin()
            await watch.changed.wait()
            if self.faults.delivery_delay_s:
                await asyncio.sleep(self.faults.delivery_delay_s)
            if watch.cancelled:
                raise WatchCancelled
            if self.faults.partitioned or self.faults.refused or watch.silent:
                await silence.over.wait()
            if silence.over.is_set():
                raise TimeoutError
            watch.changed.clear()
            entries, through = self.server.read(watch.position, PAGE_ENTRIES)
            if through > watch.position:
                watch.position = through
                if through < self.server.revision:
                    watch.wake()
                if late_s := self._latency_s():
                    await asyncio.sleep(late_s)
                self._seen = max(self._seen, through)
                return entries, through

    async def _read_gap(self, position: int, last: EntryName | None) -> tuple[list[LogEntry], int]:
        """Entries after `position`, or nothing when the server is not reached or they are trimmed."""
        try:
            return await self.ask(lambda: self._gap(position, last))
        except Unavailable:
            return [], position

    def _gap(self, position: int, last: EntryName | None) -> tuple[list[LogEntry], int]:
        if self._known(position, last)[0] > position:
            return [], position
        entries, through = self.server.read(position, PAGE_ENTRIES)
        return self.server.held(self.member, entries), through


def _newest(entries: Sequence[LogEntry], before: EntryName | None) -> EntryName | None:
    """The name of the last entry, or what was the newest before where there is none."""
    if not entries:
        return before
    return EntryName(entries[-1].revision, entries[-1].incarnation, entries[-1].sequence)


class _Silence:
    """Tells when a watch has said nothing for `silent_s` seconds.

    One timer looks again and again: one for every wait took longer than the entries did.
    """

    def __init__(self, watch: Watch, silent_s: float) -> None:
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch, self._silent_s = watch, silent_s
        self._since = self._loop.time()
        self._timer = self._loop.call_later(silent_s, self._look)

    def begin(self) -> None:
        """A wait begins."""
        self._since = self._loop.time()

    def end(self) -> None:
        """Nobody waits any more."""
        self._timer.cancel()

    def _look(self) -> None:
        until = self._since + self._silent_s
        if self._loop.time() < until:
            self._timer = self._loop.call_at(until, self._look)
        else:
            self.over.set()
            self._watch.changed.set()


class MemoryChain(AppendChain):
    """The chain of one incarnation in a MemoryServer; renews its lease in a task."""

    def __init__(
        self, log: MemoryLog, incarnation: int, owner: int, revision: int, ttl_s: float, backoff: Backoff
    ) -> None:
        super().__init__(incarnation, owner, revision, ENTRY_BYTES_MAX, backoff)
        self._log = log
        self._renewal = tasks.kept(partial(self._renew, ttl_s), "renewal of the lease")

    async def close(self) -> None:
        """Give the incarnation up: delete its key, best effort."""
        self.abandon()
        server = self._log.server
        with suppress(Unavailable):
            await self._log.ask(lambda: server.delete(self._incarnation, self._owner))

    def abandon(self) -> None:
        """Renew the lease no more."""
        self._renewal.cancel()

    async def _attempt(self, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        server, faults = self._log.server, self._log.faults
        if faults.full:
            raise AttemptFailed("NOSPACE (injected)", ambiguous=False, full=True)
        found = await self._log.call(lambda: server.append(self._incarnation, sequence, payload, expected))
        if faults.full_too_late:
            faults.full_too_late -= 1
            raise AttemptFailed("NOSPACE (injected, too late)", ambiguous=False, full=True)
        return found

    async def _key(self) -> KeyState | None:
        return await self._log.ask(lambda: self._log.server.key(self._incarnation))

    async def _renew(self, ttl_s: float) -> None:
        alive, server = True, self._log.server
        while alive:
            await asyncio.sleep(ttl_s / 3)
            with suppress(AttemptFailed):
                alive = await self._log.call(lambda: server.renew(self._incarnation, self._owner))
