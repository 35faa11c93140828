"""A log around another one: all of it is that one's, until a subclass says otherwise."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Generic, TypeVar

from coordination.log import Chain, Entries, EntryName, Log, Member

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

    async def close(self) -> None:
        await self._log.close()
