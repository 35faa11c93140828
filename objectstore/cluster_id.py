"""The id of the cluster whose objects lie in a bucket, as these say it: every chunk and segment names it.

`cluster.json` can get lost. An agent that starts then must not draw another id: chunks of two ids would lie
in one bucket, scrubbers of two agents would undo each other, and a restore would take some chunks for another
cluster's.
"""

from __future__ import annotations

from objectstore import chunk, segment
from objectstore.chunk import CorruptChunk
from objectstore.naming import CHUNKS, SEGMENTS
from objectstore.segment import CorruptSegment
from objectstore.store import NotFound, ObjectStore

LOOKED_AT_MAX = 16  # objects of each kind: others than the first where that is damaged


async def known(store: ObjectStore) -> bytes | None:
    """The id, 16 bytes; None where no object has it. Raises StoreError."""
    for kind in (CHUNKS, SEGMENTS):
        for key in await _some(store, kind):
            try:
                content = await store.get(key)
                header = memoryview(content)[: max(chunk.HEADER_SIZE, segment.HEADER_BYTES)]
                if kind == CHUNKS:
                    return chunk.decode_header(header).cluster_id
                return segment.decode_header(header)[0]
            except (NotFound, CorruptChunk, CorruptSegment):
                continue
    return None


async def _some(store: ObjectStore, kind: str) -> list[str]:
    async for page in store.list(kind):
        return [meta.key for meta in page[:LOOKED_AT_MAX]]
    return []
