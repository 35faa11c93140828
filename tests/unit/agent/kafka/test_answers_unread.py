"""What one client does not read, or does not wait for, has a bound, by a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent.kafka.context import Context
from agent.kafka.handlers import k02_list_offsets
from agent.kafka.order import ENDED
from agent.net.connection import Limits
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import produce as p
from tests.unit.agent.kafka.admin_calls import create as create_topics
from tests.unit.agent.kafka.admin_calls import metadata, topic
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch_request, produce
from tests.unit.agent.net.server.harness import MIB, Client, until
from tests.unit.agent.rig import Agent, batch

COUNT = 40


@asynccontextmanager
async def client_of(agent: Agent, **limits: Any) -> AsyncIterator[tuple[Client, Server]]:
    server = Server(agent.dispatcher, Limits(**limits), reads=ENDED)
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    client = Client(*await asyncio.open_connection("127.0.0.1", port, limit=1024))
    yield client, server
    await client.close()
    await server.drain(1)


def send(client: Client, number: int, name: str, request: Any, version: int) -> None:
    api = BY_NAME[name]
    header = encode_request_header(api, version, number, "x")
    client.writer.write(frame_request(header, api.codec().encode_request(request, version)))


def held_by(server: Server) -> Callable[[], int]:
    """Answer bytes that the server holds for its one client."""
    (protocol,) = server._shared.live.values()

    def held() -> int:
        assert protocol._transport is not None
        return protocol._machine.outbox_bytes + protocol._transport.get_write_buffer_size()

    return held


@pytest.mark.parametrize("name", ["Fetch", "Metadata"])
async def test_no_more_is_held_for_a_client_that_does_not_read_than_the_limit_and_an_answer(
    agent: Agent, name: str
) -> None:
    await create_topics(agent, topic("wide", 10_000))
    await create(agent)
    assert (await produce(agent, batch(bytes(MIB - 1000)))).error_code == 0
    request, version = (
        (fetch_request(0, bytes_max=MIB), 12) if name == "Fetch" else (md.MetadataRequest(None), 12)
    )
    async with client_of(agent, response_bytes_max=MIB) as (client, server):
        for number in range(COUNT if name == "Fetch" else 2 * COUNT):
            send(client, number, name, request, version)
        await until(lambda: bool(server.connections))
        held = held_by(server)
        await until(lambda: held() > MIB)
        most = held()
        for _ in range(50):
            await asyncio.sleep(0.01)
            most = max(most, held())
        assert most <= 2 * MIB + 200_000
        for number in range(COUNT if name == "Fetch" else 2 * COUNT):
            assert await client.correlation_id() == number, "and all are answered once it reads"


async def test_a_client_that_reads_nothing_at_all_is_cut(agent: Agent) -> None:
    await create(agent)
    assert (await produce(agent, batch(bytes(MIB - 1000)))).error_code == 0
    async with client_of(agent, response_bytes_max=MIB, idle_s_max=0.4) as (client, server):
        for number in range(COUNT):
            send(client, number, "Fetch", fetch_request(0, bytes_max=MIB), 12)
        await until(lambda: bool(server.connections))
        await until(lambda: not server.connections)
        assert server.request_bytes == 0


async def test_a_read_ends_with_its_connection_and_the_write_behind_it_goes_on(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent)
    ended: list[str] = []

    async def for_ever(ctx: Context, request: lo.ListOffsetsRequest, version: int) -> None:
        ended.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")

    monkeypatch.setattr(k02_list_offsets, "handle", for_ever)
    data = p.PartitionProduceData(0, memoryview(batch(b"v")))
    written = p.ProduceRequest(None, -1, 5_000, [p.TopicProduceData("t", partition_data=[data])])
    async with client_of(agent) as (client, server):
        send(client, 1, "ListOffsets", lo.ListOffsetsRequest(-1, 0, []), 8)
        send(client, 2, "Produce", written, 9)
        await until(lambda: ended == ["begun"] and len(server._shared.tasks) == 2)
        await client.close()
        await until(lambda: not server.connections)
        partition = agent.services.replica.state.topics["t"].partitions[0]
        await until(lambda: partition.high_watermark == 1)
        assert ended == ["begun", "ended"]


async def test_a_topic_that_metadata_names_again_is_one_topic(agent: Agent) -> None:
    """Its answer grew with the request, some hundred kilobytes for three bytes."""
    await create_topics(agent, topic("wide", 100), topic("t"))
    answer = await metadata(agent, *["wide", "t", "no-such", "wide"] * 50)
    assert [row.name for row in answer.topics] == ["wide", "t", "no-such"]
    by_id = md.MetadataRequestTopic(answer.topics[0].topic_id, None)
    again = await agent.call("Metadata", md.MetadataRequest([by_id] * 50), 13)
    assert [row.name for row in again.topics] == ["wide"]
