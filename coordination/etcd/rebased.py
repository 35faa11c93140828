"""The log in etcd with revisions that go on where a lost log's ended.

A new etcd counts revisions from 1 again, and everything in the bucket is named by the old ones. So a log that
`floe restore cluster` began has a base (keys.py): a revision of the log is etcd's plus that number. Everybody
else knows revisions of the log only; etcd's own stay behind this class. A log that was never restored has
none, and the two are the same. Nothing that etcd had before its base was written is of the log: a watch would
tell of entries that were deleted.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from coordination.etcd.log import EtcdLog
from coordination.log import (
    Chain,
    Copy,
    Entries,
    EntryName,
    LogEntry,
    Member,
    Statement,
    Trimmed,
    Unavailable,
)
from coordination.log_around import LogAround


class RebasedLog(LogAround[EtcdLog]):
    """Implements coordination.log.Log, Witness, Alarmed and Renewing over an EtcdLog.

    The base is read once, before anything else is: a log's base never changes while it has entries.
    """

    _known: tuple[int, int] | None = None

    @property
    def inner(self) -> EtcdLog:
        """The log by etcd's own revisions."""
        return self._log

    async def base(self) -> int:
        """What is added to etcd's revisions; 0 for a log that was never restored. Raises Unavailable."""
        return (await self._both())[0]

    async def floor(self) -> int:
        """The revision above which the log's first entry is. Raises Unavailable."""
        return sum(await self._both())

    async def _both(self) -> tuple[int, int]:
        if self._known is None:
            self._known = await self._log.base()
        return self._known

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        """See coordination.log.Log."""
        base = await self.base()
        chain = await self._log.register(incarnation, info, ttl_s)
        return RebasedChain(chain, base) if base else chain

    async def follow(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Log.follow. Raises Unavailable while the base cannot be read."""
        base, floor = await self.base(), await self.floor()
        if after < floor:
            raise Trimmed(floor)
        if last is not None:
            last = replace(last, revision=last.revision - base) if last.revision > floor else None
        try:
            async with aclosing(self._log.follow(after - base, last)) as batches:
                async for batch in batches:
                    yield _entries(batch, base) if base else batch
        except Trimmed as trimmed:
            raise Trimmed(trimmed.through + base) from None

    async def current(self) -> int:
        """See coordination.log.Log."""
        return await self.base() + await self._log.current()

    async def testify(self, entry: LogEntry | None = None) -> Statement:
        """See coordination.log.Witness. What is below the floor is trimmed, and so held."""
        base, floor = await self.base(), await self.floor()
        if entry is not None:
            entry = replace(entry, revision=entry.revision - base) if entry.revision > floor else None
        said = await self._log.testify(entry)
        newest = said.newest + base if said.newest else 0
        return Statement(said.revision + base, newest, said.holds)

    def ask_progress(self) -> None:
        """See coordination.log.Witness."""
        self._log.ask_progress()

    async def members(self) -> Sequence[Member]:
        """See coordination.log.Log."""
        return await self._log.members()

    async def trim(self, through: int) -> None:
        """See coordination.log.Log. Below the floor there is nothing to forget."""
        if through > await self.floor():
            await self._log.trim(through - await self.base())

    async def trimmed(self) -> int:
        """See coordination.log.Log: nothing below its floor is in a restored log."""
        trimmed = await self._log.trimmed()
        return max(await self.floor(), trimmed and trimmed + await self.base())

    async def alarms(self) -> Sequence[str]:
        """See coordination.log.Alarmed."""
        return await self._log.alarms()

    async def copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        """See coordination.log.Copied."""
        try:
            base = await self.base()
        except Unavailable:
            return {}
        found = await self._log.copies(max(0, after - base), through - base)
        return {name: None if copy is None else _moved(copy, base) for name, copy in found.items()}

    def follow_copy(self, after: int, last: EntryName | None = None) -> AsyncGenerator[Entries, None]:
        """See coordination.log.Copied."""
        return self.follow(after, last)

    async def renew(self) -> bool:
        """See coordination.log.Renewing."""
        return await self._log.renew()


class RebasedChain:
    """Implements coordination.log.Chain over that of an EtcdLog."""

    def __init__(self, chain: Chain, base: int) -> None:
        self._chain, self._base = chain, base

    @property
    def incarnation(self) -> int:
        return self._chain.incarnation

    async def append(self, payload: bytes) -> int:
        return await self._chain.append(payload) + self._base

    async def close(self) -> None:
        await self._chain.close()


def _moved(copy: Copy, base: int) -> Copy:
    trimmed = copy.trimmed and copy.trimmed + base
    return Copy(trimmed, {revision + base: each for revision, each in copy.prints.items()})


def _entries(batch: Entries, base: int) -> Entries:
    moved = [replace(entry, revision=entry.revision + base) for entry in batch.entries]
    return Entries(moved, batch.through + base)
