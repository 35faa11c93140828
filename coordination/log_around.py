"""A log around another one: all of it is that one's, until a subclass says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from coordination.log import Chain, Copied, Copy, Entries, EntryName, Log, Member

L = TypeVar("L", bound=Log)


class LogAround(Generic[L]):
    """Implements coordination.log.Log over another one."""

    def __init__(self, log: L) -> None:
        self._log = log

    @property
    def entry_bytes_max(self) -> int:
        return self._log.entry_bytes_max

    async def identity(self) -> str:
        return await self._log.identity()

    async def register(self, incarnation: int, info: bytes, ttl_s: float) -> Chain:
        return await self._log.register(incarnation, info, ttl_s)

    def follow(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        return self._log.follow(after, last)

    async def current(self) -> int:
        return await self._log.current()

    async def members(self) -> Sequence[Member]:
        return await self._log.members()

    async def fence(self, incarnation: int) -> None:
        await self._log.fence(incarnation)

    async def trim(self, through: int) -> None:
        await self._log.trim(through)

    async def trimmed(self) -> int:
        return await self._log.trimmed()

    async def copies(self, after: int, through: int) -> Mapping[str, Copy | None]:
        """See coordination.log.Copied."""
        log: object = self._log
        return await log.copies(after, through) if isinstance(log, Copied) else {}

    def follow_copy(self, after: int, last: EntryName | None = None) -> AsyncIterator[Entries]:
        """See coordination.log.Copied."""
        log: object = self._log
        return log.follow_copy(after, last) if isinstance(log, Copied) else self._log.follow(after, last)

    def turn_from(self, copies: Collection[str]) -> None:
        """See coordination.log.Copied."""
        log: object = self._log
        if isinstance(log, Copied):
            log.turn_from(copies)

    async def close(self) -> None:
        await self._log.close()
