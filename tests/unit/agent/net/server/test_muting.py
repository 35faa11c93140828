"""A connection that is muted for a while: what was read is answered, what comes is read afterwards."""

from __future__ import annotations

import asyncio

from agent.net.listening import RequestContext
from agent.net.wire.primitives import Buffer
from tests.unit.agent.net.server.harness import Client, serving, until

NEVER_S = 1000.0


async def test_nothing_is_read_of_a_muted_connection_but_of_others() -> None:
    seen: list[tuple[int, int]] = []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer] | None:
        seen.append((context.connection.id, context.correlation_id))
        if context.correlation_id == 1:
            context.connection.mute(NEVER_S)
        return [body]

    async with serving(handler) as (_, port):
        greedy, modest = await Client.connect(port), await Client.connect(port)
        greedy.send(1)
        assert await greedy.correlation_id() == 1, "the answer leaves at once (KIP-219)"
        greedy.send(2)
        modest.send(3)
        assert await modest.correlation_id() == 3
        modest.send(4)
        assert await modest.correlation_id() == 4
        assert [number for _, number in seen] == [1, 3, 4]
        await greedy.close()
        await modest.close()


async def test_of_a_metered_connection_nothing_is_read_beyond_what_has_begun() -> None:
    """A client may send a hundred requests at once: what the first took must count before the others do."""
    begun: list[int] = []

    async def handler(context: RequestContext, body: memoryview) -> list[Buffer] | None:
        begun.append(context.correlation_id)
        context.connection.metered = True
        if context.correlation_id == 2:
            context.connection.mute(NEVER_S)
        return [body]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        client.send(1)
        assert await client.correlation_id() == 1
        for number in range(2, 30):
            client.send(number, size=512 * 1024)
        assert await client.correlation_id() == 2
        client.writer.transport.abort()
        assert begun == [1, 2]


async def test_it_is_read_again_and_the_longest_of_several_counts() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer] | None:
        if context.correlation_id == 1:
            context.connection.mute(0.05)
            context.connection.mute(0.01)
        return [body]

    async with serving(handler) as (_, port):
        client = await Client.connect(port)
        client.send(1)
        assert await client.correlation_id() == 1
        client.send(2)
        async with asyncio.timeout(30):
            assert await client.correlation_id() == 2
        await client.close()


async def test_whoever_hangs_up_while_muted_is_gone() -> None:
    async def handler(context: RequestContext, body: memoryview) -> list[Buffer] | None:
        context.connection.mute(0.05)
        return [body]

    async with serving(handler) as (server, port):
        client = await Client.connect(port)
        client.send(1)
        assert await client.correlation_id() == 1
        await client.close()
        await until(lambda: server.connections == 0)
