"""Chunks that a state does not know: listed, read, and looked through batch by batch. Changes nothing.

Which they are follows from names alone (rule 9): an author's commits are in the order of its chunks' numbers,
so of one that was live at the end of the state those from its next number on are not in it, and of an author
that the state has never met all are. What an author that is fenced left uncommitted can never have been
committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coordination.state import State
from objectstore.batch import CorruptBatch, peek
from objectstore.chunk import CorruptChunk, FooterSlice, decode_header, verify
from objectstore.naming import (
    CHUNKS,
    ChunkId,
    chunk_key,
    incarnation_prefix,
    parse_chunk_key,
    parse_incarnation_folder,
)
from objectstore.store import NotFound, ObjectMeta, ObjectStore

READS_AT_ONCE = 16
"""Chunks that are read at a time; each is held as long as its own reading takes."""


class FoundBatch(NamedTuple):
    """One record batch of a chunk, by its header. `length` in bytes, `offsets` that it takes."""

    handle: int
    position: int
    length: int
    offsets: int
    records: int
    max_timestamp_ms: int
    producer_id: int
    epoch: int
    sequence: int
    crc: int
    transactional: bool


class FoundChunk(NamedTuple):
    """A chunk that is whole. `modified_ms`: by the store's clock, Unix ms."""

    id: ChunkId
    size: int
    modified_ms: int
    batches: Sequence[FoundBatch]


@dataclass(frozen=True, slots=True)
class Unusable:
    """A chunk of which nothing can be said but why."""

    key: str
    error: str


async def unknown_chunks(store: ObjectStore, state: State, own: int) -> list[ObjectMeta]:
    """Every chunk that the state does not know and cannot rule out, by author and number.

    `own`: the incarnation that restores; its chunks are copies. Raises StoreError.
    """
    found: list[ObjectMeta] = []
    for folder in sorted(await store.list_folders(CHUNKS)):
        incarnation = parse_incarnation_folder(folder)
        if incarnation is None or incarnation == own:
            continue
        known = state.incarnations.get(incarnation)
        if known is not None and not known.live:
            continue
        following = known.next_chunk_number if known is not None else 0
        after = chunk_key(ChunkId(incarnation, following - 1)) if following else ""
        async for page in store.list(incarnation_prefix(incarnation), after):
            found += [meta for meta in page if _is_unknown(meta, state)]
    return found


async def missing_chunks(store: ObjectStore, state: State) -> list[str]:
    """Keys of chunks that the state refers to and that are not in the bucket. Raises StoreError."""
    there: set[ChunkId | None] = set()
    async for page in store.list(CHUNKS):
        there.update(parse_chunk_key(meta.key) for meta in page)
    return [chunk_key(chunk) for chunk in state.chunks.serials if chunk not in there]


class Reader:
    """Reads chunks of one cluster. One that it has read, and that is the same object still, it knows.

    A restore lists and judges twice (run.py), and what came between the two is seconds of writing.
    """

    def __init__(self, store: ObjectStore, cluster_id: bytes) -> None:
        self._store, self._cluster_id = store, cluster_id
        self._known: dict[ObjectMeta, FoundChunk] = {}

    async def read(self, metas: Sequence[ObjectMeta]) -> list[FoundChunk | Unusable]:
        """What these are, in their order. Raises StoreError."""
        found: list[FoundChunk | Unusable | None] = [self._known.get(meta) for meta in metas]
        waiting = iter([place for place, each in enumerate(found) if each is None])
        async with asyncio.TaskGroup() as group:
            for _ in range(READS_AT_ONCE):
                group.create_task(self._some(metas, waiting, found))
        self._known = {
            meta: each for meta, each in zip(metas, found, strict=True) if isinstance(each, FoundChunk)
        }
        return [each for each in found if each is not None]

    async def _some(
        self, metas: Sequence[ObjectMeta], waiting: Iterator[int], found: list[FoundChunk | Unusable | None]
    ) -> None:
        for place in waiting:
            found[place] = await read(self._store, metas[place], self._cluster_id)


async def read(store: ObjectStore, meta: ObjectMeta, cluster_id: bytes) -> FoundChunk | Unusable:
    """A listed chunk, checked against its name and every checksum. Raises StoreError but NotFound."""
    chunk = parse_chunk_key(meta.key)
    assert chunk is not None, f"{meta.key} was listed as a chunk"
    try:
        content = await store.get(meta.key)
        slices = verify(content, chunk)
        if decode_header(content).cluster_id != cluster_id:
            raise CorruptChunk("it is another cluster's")
        batches = [batch for each in slices for batch in _batches(content, each)]
    except (CorruptChunk, CorruptBatch, NotFound) as error:
        return Unusable(meta.key, str(error))
    return FoundChunk(chunk, len(content), meta.modified_ms, batches)


def _is_unknown(meta: ObjectMeta, state: State) -> bool:
    chunk = parse_chunk_key(meta.key)
    return chunk is not None and chunk not in state.chunks.serials and chunk not in state.chunks.garbage


def _batches(content: bytes, of: FooterSlice) -> list[FoundBatch]:
    """The batches of one partition. Raises CorruptBatch where they do not fill the slice."""
    found: list[FoundBatch] = []
    position, end = of.position, of.position + of.length
    while position < end:
        header = peek(content, position)
        found.append(
            FoundBatch(
                of.partition, position, header.size, header.last_offset_delta + 1, header.record_count,
                header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence,
                header.crc, header.transactional,
            )
        )  # fmt: skip
        position += header.size
    if position != end or len(found) != of.batches:
        raise CorruptBatch(
            f"{len(found)} batches up to byte {position}: {of.batches} up to {end} were expected"
        )
    return found
