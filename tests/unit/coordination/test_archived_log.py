"""The archived log as a replica follows it: what lies beside does not hold it up."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, cast

from coordination.archive.piece import NONE, Header, checksum_of, encode_steps
from coordination.following.archived import ArchivedLog
from coordination.log import LogEntry
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import PieceId, log_folder, piece_key
from tests.unit.coordination.test_archive import IDENTITY


async def put(store: MemoryStore, header: Header, *, damaged: bool = False) -> bytes:
    """A piece with an entry of each revision; its checksum."""
    entries = [LogEntry(at, 7, at, b"x") for at in range(header.first, header.last + 1)]
    *_, parts = encode_steps(header, IDENTITY, entries)
    content = bytearray(b"".join(parts))
    content[-1] ^= damaged
    await store.put(piece_key(PieceId(log_folder(IDENTITY), header.first, header.last)), [content])
    return checksum_of(parts)


async def test_a_damaged_piece_beside_the_one_that_is_joined_holds_up_nobody() -> None:
    """Of two writers' pieces with one end the other one's is gone on from, and a third is damaged."""
    store = MemoryStore()
    first = await put(store, Header(1, 1, NONE))
    await put(store, Header(1, 3, NONE))
    await put(store, Header(2, 3, first), damaged=True)
    joined = await put(store, Header(3, 3, b"p" * 32))
    await put(store, Header(4, 5, joined))
    log = ArchivedLog(store)
    log.log = IDENTITY
    found: list[int] = []
    async with asyncio.timeout(10), aclosing(cast(Any, log.follow(1))) as batches:
        async for batch in batches:
            found += [entry.revision for entry in batch.entries]
            if batch.through == 5:
                break
    assert found == [2, 3, 4, 5]
    assert not log.problem
