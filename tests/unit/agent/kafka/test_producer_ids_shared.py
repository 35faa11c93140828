"""All who wait for producer ids wait for one answer of the log, and are told together when there is none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.kafka.context import Context
from agent.kafka.handlers import k22_init_producer_id
from agent.kafka.propose import propose_one
from agent.net.wire.generated import init_producer_id as ip
from coordination.kafka_codes import Code
from coordination.state.types import Refused, Result
from tests.unit.agent.rig import Agent
from tests.unit.coordination.conftest import until


class Asked:
    """What the log is asked; it answers when it is let through."""

    def __init__(self) -> None:
        self.count = 0
        self.through = asyncio.Event()
        self.refuses = False

    async def __call__(self, ctx: Context, message: Any) -> Result:
        self.count += 1
        await self.through.wait()
        return Refused(Code.NOT_CONTROLLER, "away") if self.refuses else await propose_one(ctx, message)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    one = Asked()
    monkeypatch.setattr(k22_init_producer_id, "propose_one", one)
    return one


def producers(agent: Agent, count: int) -> list[asyncio.Task[Any]]:
    request = ip.InitProducerIdRequest(None, 1000)
    return [
        asyncio.create_task(agent.call("InitProducerId", request, 4, agent.connect())) for _ in range(count)
    ]


async def test_the_log_s_silence_is_waited_for_once(agent: Agent, asked: Asked) -> None:
    asked.refuses = True
    waiting = producers(agent, 6)
    await until(lambda: asked.count == 1)
    asked.through.set()
    answers = await asyncio.gather(*waiting)
    # Not COORDINATOR_NOT_AVAILABLE: Java's client would look for the coordinator of no transactional id.
    assert [each.error_code for each in answers] == [Code.COORDINATOR_LOAD_IN_PROGRESS] * 6
    assert asked.count == 1
    asked.refuses = False
    (answer,) = await asyncio.gather(*producers(agent, 1))
    assert answer.error_code == 0, "who comes later asks anew"


async def test_who_gives_up_waiting_takes_nothing_from_the_others(agent: Agent, asked: Asked) -> None:
    first, *others = producers(agent, 4)
    await until(lambda: asked.count == 1)
    first.cancel()
    await asyncio.wait([first])
    asked.through.set()
    answers = await asyncio.gather(*others)
    assert len({each.producer_id for each in answers}) == 3
    assert asked.count == 1


async def test_more_waiters_than_a_block_has_ids(
    agent: Agent, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k22_init_producer_id, "PRODUCER_ID_BLOCK", 3)
    asked.through.set()
    answers = await asyncio.gather(*producers(agent, 7))
    assert {each.error_code for each in answers} == {0}
    assert len({each.producer_id for each in answers}) == 7
    assert asked.count == 3
