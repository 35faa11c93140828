"""`floe copy`: bytes copied per second of CPU time, between two folders.

What its own part costs: two listings side by side, each object read whole, written whole and, as folders name
no content by its digest, read back and compared. Requests to a bucket over the network cost CPU besides.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from objectstore.adapters.folder import FolderStore
from objectstore.copying import Copier, CopyOptions, side_by_side
from objectstore.naming import CHUNKS, ChunkId, chunk_key
from tests.bench.figure import Figure, median

OBJECTS = 48
BYTES_EACH = 8 << 20


async def _rate(folder: Path) -> float:
    """MB per second of CPU time."""
    source, target = FolderStore(folder / "source"), FolderStore(folder / "target")
    content = os.urandom(BYTES_EACH)
    for number in range(OBJECTS):
        await source.put(chunk_key(ChunkId(1, number)), [content])
    before = time.process_time()
    copier = Copier(source, target, CopyOptions())
    async for pair in side_by_side(source, target, CHUNKS):
        assert pair.source is not None
        await copier.begin(pair.source)
    await copier.end()
    seconds = time.process_time() - before
    assert copier.counts.objects == OBJECTS
    for store in (source, target):
        await store.close()
    return copier.counts.bytes / 1e6 / seconds


def figures() -> Iterable[Figure]:
    """The command's own work. Wall time would be the disk's."""

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(_rate(Path(folder)))

    yield Figure("copy: objects between two folders", median(measure), "MB/s of CPU")
