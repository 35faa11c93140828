"""Tails are read ahead by whoever leads them next, however the members come and go meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.cluster.hints import LeaderHints
from agent.cluster.peers.warm import Warmer
from coordination.commands import FenceIncarnation
from objectstore.naming import ChunkId, SliceRef
from tests.unit.coordination.kit import Script, chunk

OWN, SECOND, THIRD = 11, 12, 13
PARTITIONS = 40


class Reader:
    """Notes which partitions are read, each of which has one chunk, and finishes when it may."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.asking, self.may = asyncio.Event(), asyncio.Event()

    async def read_many(self, slices: Sequence[SliceRef]) -> list[memoryview]:
        """See ChunkReader."""
        for ref in slices:
            assert isinstance(ref.chunk, ChunkId)
            self.asked.append(ref.chunk.number - 1)
        self.asking.set()
        await self.may.wait()
        return [memoryview(bytes(ref.length)) for ref in slices]


async def test_a_change_of_members_while_another_is_read_ahead_is_read_ahead_too() -> None:
    script, reader = Script(), Reader()
    for author in (OWN, SECOND, THIRD):
        script.register(author)
    (own,) = [each.node_id for each in script.state.brokers.values() if each.incarnation == OWN]
    warmer = Warmer(lambda: script.state, lambda: own, reader, 1 << 20)
    for handle in script.topic(OWN, "t", PARTITIONS):
        warmer.applied(script.apply(OWN, chunk(handle + 1, (handle, 1))))
    hints = LeaderHints(lambda: script.state.brokers)
    mine = {handle for handle in range(PARTITIONS) if hints.leader(handle) == own}
    assert 0 < len(mine) < PARTITIONS
    reader.may.set()
    async with asyncio.timeout(60):
        await _done(warmer)
        assert set(reader.asked) == mine
        reader.asked.clear()
        reader.asking.clear()
        reader.may.clear()
        warmer.applied(script.apply(OWN, FenceIncarnation(incarnation=SECOND)))
        await reader.asking.wait()
        warmer.applied(script.apply(OWN, FenceIncarnation(incarnation=THIRD)))
        reader.may.set()
        await _done(warmer)
    assert sorted(reader.asked) == sorted(set(range(PARTITIONS)) - mine), "each once, the last ones too"


async def _done(warmer: Warmer) -> None:
    assert warmer._task is not None
    await warmer._task
