"""ListOffsets by time while the log start moves: what was deleted during the look is sought further on."""

from __future__ import annotations

import asyncio

import pytest

from coordination.commands import DeleteTopic, MoveLogStart, PurgeTopics
from coordination.kafka_codes import Code
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import manifest_key
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.damage_rig import merged, partition
from tests.unit.agent.kafka.test_handlers_produce_fetch import NOW, create, offsets, produce
from tests.unit.agent.rig import Agent, batch

NEWEST = -3


class HeldStore(MemoryStore):
    """A store whose reads wait until they are let through; each is told to who waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.reading: asyncio.Queue[asyncio.Event] = asyncio.Queue()
        self.held = False

    async def get(self, key: str) -> bytes:
        """Likewise."""
        await self._let_through()
        return await super().get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """As MemoryStore, once it is let through."""
        await self._let_through()
        return await super().get_range(key, start, length)

    async def _let_through(self) -> None:
        if self.held:
            through = asyncio.Event()
            self.reading.put_nowait(through)
            await through.wait()


async def held(store: HeldStore) -> asyncio.Event:
    """The next read of the store that waits."""
    async with asyncio.timeout(10):
        return await store.reading.get()


async def delete_to(agent: Agent, offset: int) -> None:
    await agent.services.replica.propose(MoveLogStart(partition=[0], offset=[offset]))


@pytest.mark.parametrize("asked", [NOW, NEWEST])
async def test_the_end_is_that_of_the_answer_not_of_the_question(start: StartAgent, asked: int) -> None:
    store = HeldStore()
    writer, other = await start("a", store_port=store), await start("b", store_port=store)
    await create(writer)
    await produce(writer, batch(b"0", b"1", timestamp=NOW))
    await other.services.replica.barrier()
    store.held = True
    looking = asyncio.create_task(offsets(other, asked))
    first = await held(store)
    await produce(writer, batch(b"2", b"3", timestamp=NOW + 10))
    await delete_to(writer, 2)
    await other.services.replica.barrier()
    store.held = False
    first.set()
    ((code, offset, timestamp),) = await looking
    assert (code, offset, timestamp) == (Code.NONE, *((3, NOW + 11) if asked == NEWEST else (2, NOW + 10)))


async def test_a_record_that_only_stands_at_the_log_start_is_not_taken_for_the_one_asked_for(
    start: StartAgent,
) -> None:
    store = HeldStore()
    writer, other = await start("a", store_port=store), await start("b", store_port=store)
    await create(writer)
    for at in (NOW + 100, NOW, NOW + 200):
        await produce(writer, batch(b"x", timestamp=at))
    await other.services.replica.barrier()
    store.held = True
    looking = asyncio.create_task(offsets(other, NOW + 50))
    first = await held(store)
    await delete_to(writer, 1)
    await other.services.replica.barrier()
    store.held = False
    first.set()
    assert await looking == [(Code.NONE, 2, NOW + 200)]


async def test_a_look_that_is_overtaken_every_time_is_an_error_to_ask_again_after(start: StartAgent) -> None:
    store = HeldStore()
    writer, other = await start("a", store_port=store), await start("b", store_port=store)
    await create(writer)
    for number in range(5):
        await produce(writer, batch(b"x", timestamp=NOW + number))
    await other.services.replica.barrier()
    store.held = True
    looking = asyncio.create_task(offsets(other, NOW))
    for number in range(3):
        through = await held(store)
        await delete_to(writer, number + 1)
        await other.services.replica.barrier()
        through.set()
    assert await looking == [(Code.KAFKA_STORAGE_ERROR, -1, -1)]


@pytest.mark.parametrize("asked", [NOW, NEWEST])
@pytest.mark.parametrize("collected", [False, True])
async def test_a_topic_that_is_deleted_during_the_look_has_nothing(
    start: StartAgent, asked: int, collected: bool
) -> None:
    """Its connection goes on, with the answers of all other topics."""
    store = HeldStore()
    agent = await start("a", store_port=store)
    await merged(agent, store)
    pointer = partition(agent, 0).merged
    assert pointer is not None
    store.held = True
    looking = asyncio.create_task(offsets(agent, asked))
    through = await held(store)
    topic_id = agent.services.replica.state.topics["t"].topic_id
    await agent.services.replica.propose(DeleteTopic(name="t"))
    if collected:  # which is not before nobody can bring it back
        await agent.services.replica.propose(PurgeTopics(topic_id=[topic_id]))
        await store.delete([manifest_key(pointer.manifest)])
    store.held = False
    through.set()
    ((code, offset, _),) = await looking
    assert code in {Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert offset in {-1, 0}, "nothing, or what it had when it was asked"
