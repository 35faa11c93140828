"""Which chunk objects the state refers to, how often, and which it has let go of.

A chunk is known by a serial number of the state's own, so that an index row needs eight bytes for it.
When the last reference goes, the chunk moves to `garbage` with the stamp of the entry that did it; the
collector deletes the object after a grace period and says so with ForgetChunks (rule 9).
"""

from __future__ import annotations

from collections.abc import Iterable

from objectstore.naming import ChunkId


class Chunk:
    """A referenced chunk object: its name and the number of index rows that point to it."""

    __slots__ = ("id", "references")

    def __init__(self, chunk_id: ChunkId, references: int) -> None:
        self.id = chunk_id
        self.references = references


class ChunkTable:
    """All chunks that are referenced, by serial, and the garbage, by name."""

    __slots__ = ("by_serial", "garbage", "next_serial", "serials")

    def __init__(self) -> None:
        self.by_serial: dict[int, Chunk] = {}
        self.serials: dict[ChunkId, int] = {}  # of the same chunks
        self.garbage: dict[ChunkId, int] = {}  # → Unix ms of the entry that dropped the last reference
        self.next_serial = 1

    def add(self, chunk_id: ChunkId, references: int, now_ms: int) -> None:
        """Take `next_serial` for a committed chunk; one without references is garbage at once."""
        if references:
            self.by_serial[self.next_serial] = Chunk(chunk_id, references)
            self.serials[chunk_id] = self.next_serial
        else:
            self.garbage[chunk_id] = now_ms
        self.next_serial += 1

    def release(self, serials: Iterable[int], now_ms: int) -> None:
        """Drop one reference per element."""
        by_serial = self.by_serial
        for serial in serials:
            chunk = by_serial[serial]
            chunk.references -= 1
            if not chunk.references:
                del by_serial[serial], self.serials[chunk.id]
                self.garbage[chunk.id] = now_ms

    def forget(self, chunks: Iterable[ChunkId]) -> int:
        """Remove deleted chunks from the garbage; returns how many were there."""
        return sum(self.garbage.pop(chunk, None) is not None for chunk in chunks)
