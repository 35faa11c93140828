"""Whole chunk objects, read once however many ask, kept while there is room.

The owner of a recent chunk reads all of it at its first use: whoever asks next for another slice is answered
from memory. Reads at once and bytes kept are bounded; what is kept is as it was stored, unchecked: slices are
checked where they are used.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass

from objectstore import tasks
from objectstore.naming import ChunkId, chunk_key
from objectstore.reader import ChunkMissing
from objectstore.store import NotFound, ObjectStore, StoreError


@dataclass(slots=True)
class WholeStats:
    """Counts since the start."""

    gets: int = 0
    get_bytes: int = 0
    hits: int = 0


class WholeChunks:
    """A cache of whole chunk objects, at most `bytes_max` bytes; the least recently used go first."""

    def __init__(self, store: ObjectStore, bytes_max: int, reads_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._pool = asyncio.Semaphore(reads_max)
        self._kept: OrderedDict[ChunkId, bytes] = OrderedDict()
        self._flying: dict[ChunkId, asyncio.Task[bytes]] = {}
        self.bytes = 0
        self.stats = WholeStats()

    async def get(self, chunk: ChunkId) -> bytes:
        """The object. Raises ChunkMissing and what the store raises."""
        kept = self._kept.get(chunk)
        if kept is not None:
            self.stats.hits += 1
            self._kept.move_to_end(chunk)
            return kept
        flight = self._flying.get(chunk)
        if flight is None:
            flight = tasks.owned(self._read(chunk), "read a whole chunk")
            self._flying[chunk] = flight
            flight.add_done_callback(lambda done: self._landed(chunk, done))
        try:
            return await asyncio.shield(flight)
        except asyncio.CancelledError:
            if flight.cancelled():
                raise StoreError("the reader is closing") from None
            raise

    def drop(self, chunk: ChunkId) -> None:
        """Forget an object whose bytes turned out to be wrong."""
        kept = self._kept.pop(chunk, None)
        self.bytes -= len(kept or b"")

    async def close(self) -> None:
        """End reads under way."""
        flights = list(self._flying.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def _read(self, chunk: ChunkId) -> bytes:
        async with self._pool:
            self.stats.gets += 1
            try:
                data = await self._store.get(chunk_key(chunk))
            except NotFound:
                raise ChunkMissing(chunk) from None
        self.stats.get_bytes += len(data)
        return data

    def _landed(self, chunk: ChunkId, flight: asyncio.Task[bytes]) -> None:
        del self._flying[chunk]
        if flight.cancelled() or flight.exception() is not None:
            return
        data = flight.result()
        if len(data) > self._bytes_max:
            return
        self._kept[chunk] = data
        self.bytes += len(data)
        while self.bytes > self._bytes_max:
            self.bytes -= len(self._kept.popitem(last=False)[1])
