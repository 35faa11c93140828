"""A producer that a partition does not know yet begins with its first batch, whatever was refused before."""

from __future__ import annotations

import pytest

from coordination.kafka_codes import Code
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, produce
from tests.unit.agent.rig import Agent, batch


async def send(agent: Agent, sequence: int, producer: int = 5) -> Code:
    """One batch of one record; the code that it is answered with."""
    raw = batch(b"x", producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return Code((await produce(agent, raw)).error_code)


async def test_what_was_on_its_way_behind_a_refused_first_batch_waits_for_it(
    start: StartAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = await start()
    await create(agent)
    standing = type(agent.services.standing)
    with monkeypatch.context() as patch:
        patch.setattr(standing, "away", lambda _: True)
        assert await send(agent, 0) is Code.NOT_LEADER_OR_FOLLOWER
        assert await send(agent, 1) is Code.NOT_LEADER_OR_FOLLOWER
    assert await send(agent, 2) is Code.NOT_ENOUGH_REPLICAS
    assert await send(agent, 7, producer=6) is Code.NONE  # of another: any sequence may begin
    assert [await send(agent, n) for n in (0, 1, 2, 4)] == [
        Code.NONE, Code.NONE, Code.NONE, Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]  # fmt: skip


async def test_a_first_batch_that_the_driver_gave_up_comes_before_those_behind_it(start: StartAgent) -> None:
    agent = await start()
    await create(agent)
    driver = agent.services.produce
    driver.away = lambda: True
    assert await send(agent, 0) is Code.NOT_LEADER_OR_FOLLOWER
    driver.away = lambda: False
    assert await send(agent, 1) is Code.NOT_ENOUGH_REPLICAS
    assert [await send(agent, n) for n in (0, 1)] == [Code.NONE, Code.NONE]
