"""ListOffsets by time looks at partitions side by side: one sick object is its own partition's trouble."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.kafka.handlers import k02_list_offsets
from agent.net.wire.generated import list_offsets as lo
from coordination.kafka_codes import Code
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import ChunkId, chunk_key
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import NOW, create, produce
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until

COUNT = 20
NEWEST = -3


class Together(MemoryStore):
    """Reads wait until so many are under way at once; those of `sick` objects for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0
        self.under_way = 0
        self.sick: set[str] = set()
        self.enough = asyncio.Event()

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """As MemoryStore's, later."""
        if key in self.sick:
            await asyncio.Event().wait()
        self.under_way += 1
        if self.under_way >= self.wanted:
            self.enough.set()
        await self.enough.wait()
        return await super().get_range(key, start, length)


async def written(start: StartAgent, store: Together) -> Agent:
    """An agent with nothing in memory of `COUNT` partitions, each with a record in an object of its own."""
    writer, other = await start("a", store_port=store), await start("b", store_port=store)
    await create(writer, partitions=COUNT)
    for index in range(COUNT):
        assert (await produce(writer, batch(b"v", timestamp=NOW), index=index)).error_code == 0
    await other.services.replica.barrier()
    return other


async def ask(agent: Agent, timestamp: int, indexes: range) -> list[tuple[int, int]]:
    """Code and offset by partition."""
    wanted = [lo.ListOffsetsPartition(index, -1, timestamp) for index in indexes]
    request = lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic("t", wanted)])
    answer: Any = await agent.call("ListOffsets", request, 8)
    assert [row.partition_index for row in answer.topics[0].partitions] == list(indexes)
    return [(row.error_code, row.offset) for row in answer.topics[0].partitions]


def object_of(agent: Agent, index: int) -> str:
    """The key of the object that holds the partition's records."""
    (ref,) = agent.services.replica.state.topics["t"].partitions[index].slices.plan(0, 1)
    assert isinstance(ref.chunk, ChunkId)
    return chunk_key(ref.chunk)


@pytest.mark.parametrize("timestamp", [NOW, NEWEST])
async def test_partitions_are_looked_at_side_by_side(start: StartAgent, timestamp: int) -> None:
    store = Together()
    agent = await written(start, store)
    store.wanted = 8  # as many as the reader lets through
    async with asyncio.timeout(30):
        assert await ask(agent, timestamp, range(COUNT)) == [(Code.NONE, 0)] * COUNT


async def test_one_sick_object_is_told_of_its_own_partition_only(
    start: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k02_list_offsets, "LOOKED_AT_S_MAX", 0.5)
    store = Together()
    agent = await written(start, store)
    store.sick = {object_of(agent, 3)}
    wanted = [(Code.NONE, 0)] * COUNT
    wanted[3] = (Code.KAFKA_STORAGE_ERROR, -1)
    async with asyncio.timeout(30):
        assert await ask(agent, NOW, range(COUNT)) == wanted


async def test_whoever_gives_up_asking_ends_every_look(start: StartAgent) -> None:
    store = Together()
    agent = await written(start, store)
    store.wanted = COUNT + 1  # never
    asked = asyncio.ensure_future(ask(agent, NOW, range(COUNT)))
    await until(lambda: store.under_way == 8)
    before = {each for each in asyncio.all_tasks() if "_look_at" in repr(each.get_coro())}
    assert len(before) == k02_list_offsets.LOOKS_AT_ONCE
    asked.cancel()
    await asyncio.wait([asked])
    await until(lambda: all(each.done() for each in before))
    store.enough.set()
