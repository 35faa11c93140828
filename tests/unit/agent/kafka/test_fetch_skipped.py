"""Damage that somebody asked to pass over: readers go on behind it, and miss nothing that is sound."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from agent.kafka.fetch.driver import FetchRequest
from agent.kafka.fetch.planner import Wanted
from coordination.kafka_codes import Code
from coordination.state.transaction_types import PartitionTransactions
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek
from objectstore.faulty import Fault, FaultyStore
from objectstore.naming import chunk_key
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.damage_rig import (
    BAD,
    batches,
    chunk_at,
    fetch,
    filled,
    forget,
    holes,
    merged,
    partition,
    send,
    skip,
    spoil_chunk,
    spoil_merged,
    values,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create
from tests.unit.agent.rig import Agent


def tiled(answer: Any, start: int) -> bool:
    """Whether the batches follow one another without a gap."""
    for each in batches(answer):
        if each.base_offset != start:
            return False
        start = each.last_offset + 1
    return True


@pytest.mark.parametrize("how", BAD)
async def test_damage_that_is_skipped_is_a_hole(agent: Agent, memory_store: MemoryStore, how: str) -> None:
    await filled(agent)
    await spoil_chunk(agent, memory_store, 1, how)
    forget(agent)
    assert (await fetch(agent, 1))[0].error_code == Code.CORRUPT_MESSAGE
    assert agent.services.damages.ranges(agent.services.replica.state)
    await skip(agent, (0, 3))
    for offset, sound in ((0, [b"0-0", b"0-2"]), (1, [b"0-2"]), (2, [b"0-2"])):
        first, second = await fetch(agent, offset, 0)
        assert (first.error_code, values(first)) == (0, sound)
        assert holes(first) == ([(1, 2)] if offset < 2 else [])
        assert tiled(first, offset)
        assert values(second) == [b"1-0", b"1-1", b"1-2"]
    assert not agent.services.damages.ranges(agent.services.replica.state), "nothing is in the way any more"


async def test_only_what_was_asked_for_is_passed_over(agent: Agent, memory_store: MemoryStore) -> None:
    await filled(agent)
    for number in (0, 1):
        await memory_store.delete([chunk_key(chunk_at(agent, 0, number))])
    forget(agent)
    await skip(agent, (0, 1))
    (first,) = await fetch(agent, 0)
    assert (first.error_code, holes(first), values(first)) == (0, [(0, 1)], [])
    (first,) = await fetch(agent, 1)
    assert first.error_code == Code.CORRUPT_MESSAGE
    await skip(agent, (1, 2))
    (first,) = await fetch(agent, 0)
    assert (holes(first), values(first)) == ([(0, 1), (1, 2)], [b"0-2"])


async def test_part_of_a_lost_slice(start: StartAgent, memory_store: MemoryStore) -> None:
    """Two batches of two records in one slice: it may be passed over in parts."""
    agent = await start("a", produce={"linger_ms": 300, "quiet_ms": 100})
    await create(agent)
    clients = [agent.connect() for _ in range(3)]
    await asyncio.gather(*(send(agent, client, n) for n, client in enumerate(clients)))
    one = partition(agent, 0).slices.plan(0, 1 << 20)[-1]
    first = one.base_offset
    await memory_store.delete([chunk_key(chunk_at(agent, 0, first))])
    forget(agent)
    await skip(agent, (first, first + 3))
    (answer,) = await fetch(agent, first + 1)
    assert (answer.error_code, holes(answer)) == (0, [(first + 1, first + 3)])
    (answer,) = await fetch(agent, first + 3)
    assert answer.error_code == Code.CORRUPT_MESSAGE


async def test_what_may_be_read_again_is_not_passed_over(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    """A store out of reach is no damage, whatever was asked for."""
    store = FaultyStore(memory_store)
    agent = await start("a", store_port=store)
    await filled(agent)
    await skip(agent, (0, 3))
    forget(agent)
    store.order("get_range", *[Fault.REFUSED] * 20)
    (first,) = await fetch(agent, 0)
    assert first.error_code == Code.KAFKA_STORAGE_ERROR


async def test_what_is_lost_to_a_restored_object_is_read_again(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await filled(agent)
    key = chunk_key(chunk_at(agent, 0, 1))
    content = await memory_store.get(key)
    await memory_store.delete([key])
    await skip(agent, (1, 2))
    forget(agent)
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-2"]
    await memory_store.put(key, [content])
    assert values((await fetch(agent, 0))[0]) == [b"0-0", b"0-1", b"0-2"]


async def test_a_reader_of_committed_records_is_not_led_past_its_end(
    start: StartAgent, memory_store: MemoryStore
) -> None:
    """Records of an open transaction may be lost with those before it, in one slice."""
    agent = await start("a", produce={"linger_ms": 300, "quiet_ms": 100})
    await create(agent)
    clients = [agent.connect() for _ in range(3)]
    await asyncio.gather(*(send(agent, client, n) for n, client in enumerate(clients)))
    one = partition(agent, 0)
    first = one.slices.plan(0, 1 << 20)[-1].base_offset
    one.transactions = PartitionTransactions()
    one.transactions.open[77] = first + 2
    await memory_store.delete([chunk_key(chunk_at(agent, 0, first))])
    forget(agent)
    await skip(agent, (first, first + 4))
    for committed, end in ((True, first + 2), (False, first + 4)):
        wanted = Wanted(one, first, 1 << 20)
        request = FetchRequest(partial(list, [wanted]), 0, 1, 1 << 20, committed)
        (found,) = await agent.services.fetch.fetch(request)
        assert [peek(batch).last_offset for batch in found.records] == [end - 1]


@pytest.mark.parametrize("what", ["manifest", "index", "block"])
@pytest.mark.parametrize("how", BAD)
async def test_merged_records_are_passed_over(
    agent: Agent, memory_store: MemoryStore, what: str, how: str
) -> None:
    await merged(agent, memory_store)
    start = await spoil_merged(agent, memory_store, what, how)
    assert (await fetch(agent, start))[0].error_code == Code.CORRUPT_MESSAGE
    await skip(agent, (start, 2))
    (first,) = await fetch(agent, start)
    assert first.error_code == 0
    assert holes(first) == [(start, 2)]
    assert values((await fetch(agent, 2))[0]) == [b"0-2"]
