"""An agent that is back after a crash is not led by at once."""

from __future__ import annotations

import asyncio

from agent.health.health import TICK_S
from objectstore import tasks
from tests.unit.agent.test_app import WAIT_S, World, until, world

__all__ = ["world"]  # the fixture


async def test_who_crashed_is_not_named_before_its_clients_have_gone_to_others(world: World) -> None:
    """Back before the others had missed it, it was led by again at once, and librdkafka waited up to 10 s."""
    crashed, other = await world.start("a"), await world.start("b")
    node, gone = crashed.replica.node_id, crashed.replica.incarnation
    long = {"return_ms": 600_000}
    again = world.make("a", health=long)
    starting = tasks.owned(again.start(), "start")
    brokers = other.replica.state.brokers
    await until(lambda: brokers[node].incarnation != gone and again.health.joining)
    await asyncio.sleep(2 * TICK_S)
    assert not starting.done()
    assert not brokers[node].named
    await again.stop()
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)
    await world.start("a", health=long)  # the last one left in good order
    await other.stop()
    alone = world.make("a", health=long)  # and now nobody else serves
    async with asyncio.timeout(WAIT_S):
        await alone.start()
