"""A record that breaks a binding is never acknowledged behind it, whichever agent bound the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agent.kafka.produce.buffer import (
    WAITING,
    Offered,
    Outcome,
    Pending,
    Request,
    commit_command,
    make_flush,
)
from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.memory_server import MemoryServer
from coordination.state.types import Done
from objectstore.batch import peek
from objectstore.naming import ChunkId
from objectstore.store import Buffer
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce, values
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until
from tests.unit.schema import samples

GOOD, BAD = b"\x08\xdd\x0f", b"\xff\xff"
RETRY = Code.NOT_ENOUGH_REPLICAS


class HeldPuts:
    """The agent's PUTs wait until they are let go."""

    def __init__(self, agent: Agent) -> None:
        self.begun = 0
        self._go = asyncio.Event()
        driver = agent.services.produce
        put, driver._put_chunk = driver._put_chunk, self._put
        self._real = put

    async def _put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> object:
        self.begun += 1
        await self._go.wait()
        return await self._real(chunk, parts)

    def let_go(self) -> None:
        """All of them, and those that come."""
        self._go.set()


async def bind(agent: Agent, **more: Any) -> None:
    """Bind the topic through this agent."""
    schema = BindSchema(
        topic="t", descriptor_set=samples.descriptor_set(samples.FLIGHTS), message="nyc.Flight", **more
    )
    assert isinstance(await agent.services.replica.propose(schema), Done)


async def catch_up(agent: Agent) -> None:
    await agent.services.replica.barrier()


@pytest.mark.parametrize("idempotent", [False, True])
async def test_bound_through_another_agent_between_the_look_and_the_commit(
    start: StartAgent, idempotent: bool
) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    await catch_up(one)
    held = HeldPuts(one)
    identity = [{"producer_id": 7, "producer_epoch": 0, "base_sequence": n} for n in range(2)]
    first, second = identity if idempotent else ({}, {})
    sent = asyncio.create_task(produce(one, batch(BAD, **first)))
    await until(lambda: held.begun == 1)
    behind = asyncio.create_task(produce(one, batch(GOOD, **second)))
    await until(lambda: held.begun == 2)
    await bind(other)
    held.let_go()
    answer = await sent
    assert (answer.error_code, answer.base_offset) == (RETRY, -1)
    assert "nothing was written" in answer.error_message
    assert (await behind).error_code == RETRY, "judged before the binding as well"
    assert one.services.produce.failures > 0, "what has come behind them and is not buffered yet goes as well"
    assert (await fetch(one, 0)).high_watermark == 0
    assert (await produce(one, batch(BAD, **first))).error_code == Code.INVALID_RECORD
    assert (await produce(one, batch(GOOD, **first))).error_code == 0
    assert values(await fetch(one, 0)) == [GOOD]


async def test_nothing_that_is_judged_anew_overtakes_what_is_to_be_judged_again(start: StartAgent) -> None:
    """The agent knows of the binding, and its older batches have no outcome yet."""
    one, other = await start("a"), await start("b")
    await create(one)
    await catch_up(one)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(GOOD)))
    await until(lambda: held.begun == 1)
    await bind(other)
    await catch_up(one)
    answer = await produce(one, batch(GOOD))
    assert answer.error_code == RETRY
    held.let_go()
    assert (await sent).error_code == RETRY
    assert (await produce(one, batch(GOOD))).error_code == 0
    assert not one.services.produce._open


@pytest.mark.parametrize("idempotent", [False, True])
async def test_what_another_topic_waits_with_lets_nothing_overtake(
    start: StartAgent, idempotent: bool
) -> None:
    """A chunk is judged by its oldest batch. One of another topic, looked at before this one was bound, had
    this topic's batch refused, and the one behind it, in the next chunk, was taken.
    """
    one, other = await start("a"), await start("b")
    await create(one)
    await create(one, "u")
    await catch_up(one)
    identity = [{"producer_id": 7, "producer_epoch": 0, "base_sequence": n} for n in range(3)]
    first, second, third = identity if idempotent else ({}, {}, {})
    held = HeldPuts(one)
    driver = one.services.produce
    mate = batch(GOOD)
    await driver.room(len(mate))
    handle = one.services.replica.state.topics["u"].partitions[0].handle
    old = driver.append(9, [Offered(handle, mate, peek(mate), judged=one.services.replica.state.revision)])
    await until(lambda: held.begun == 1)
    await bind(other)
    await catch_up(one)
    answers = [await produce(one, batch(GOOD, **each)) for each in (first, second)]
    assert [each.error_code for each in answers] == [RETRY, RETRY]
    held.let_go()
    assert [each.code for each in await old] == [Code.NONE]
    for each in (first, second, third):
        assert (await produce(one, batch(GOOD, **each))).error_code == 0


async def test_a_chunk_says_since_when_all_that_is_in_it_holds() -> None:
    """By when its requests came into the buffer, not by when their records were looked at."""
    data = batch(GOOD)
    offered = Offered(0, data, peek(data), judged=5)
    waiting: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    requests = [Request(1, 0.0, len(data), waiting, [WAITING], 1, judged) for judged in (7, 8)]
    flush = make_flush(
        [Pending(offered, each, 0) for each in requests], 2 * len(data), bytes(16), ChunkId(1, 9), 0.0
    )
    assert commit_command(flush).commit_chunk.judged_revision == 7


async def test_other_topics_and_a_binding_that_says_the_same_disturb_nobody(start: StartAgent) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    await create(one, "u")
    await bind(other)
    await catch_up(one)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(GOOD)))
    await until(lambda: held.begun == 1)
    await bind(other)
    held.let_go()
    assert (await sent).error_code == 0


async def test_nobody_is_refused_by_a_binding_that_was_over(
    start: StartAgent, log_server: MemoryServer
) -> None:
    """Rule 5: the agent has not heard of what another one answered for (the simulation's seeds 24 and 30)."""
    one = await start("a")
    (deaf,) = log_server._watches
    other = await start("b")
    await create(one)
    await bind(one)
    await catch_up(other)
    deaf.silent = True
    assert isinstance(await other.services.replica.propose(BindSchema(topic="t", unbind=True)), Done)
    assert one.services.replica.state.topics["t"].value_schema_id is not None, "it has not heard of it"
    answer = await produce(one, batch(BAD))
    assert (answer.error_code, answer.base_offset) == (RETRY, -1)
    assert (await produce(one, batch(BAD))).error_code == 0


async def test_who_cannot_ask_the_log_refuses_nobody(
    start: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic may be bound to something else by now: the producer sends again."""
    one = await start("a")
    await create(one)
    await bind(one)

    async def no_barrier(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(one.services.replica, "barrier", no_barrier)
    assert (await produce(one, batch(BAD))).error_code == RETRY
    assert (await produce(one, batch(GOOD))).error_code == 0
