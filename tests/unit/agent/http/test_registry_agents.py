"""The registry on two agents of one cluster: any takes writes, any reads what the other was answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from tests.unit.agent.http.conftest import agent_on, connect

Clients = tuple[httpx.AsyncClient, httpx.AsyncClient]
SUBJECT = "/subjects/s/versions"


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    """One of each agent."""
    server, store = MemoryServer(), FaultyStore(MemoryStore(), 1)
    async with (
        agent_on(server, store, "one") as one,
        agent_on(server, store, "two") as two,
        connect(one.app) as first,
        connect(two.app) as second,
    ):
        yield first, second


def schema(fields: str) -> dict[str, str]:
    return {"schemaType": "PROTOBUF", "schema": f'syntax = "proto3"; message M {{ {fields} }}'}


async def test_each_reads_what_the_other_wrote(clients: Clients) -> None:
    """Rule 5: as soon as the one has its answer."""
    for number in range(6):
        writer, reader = clients if number % 2 else clients[::-1]
        fields = "".join(f"int32 f{each} = {each + 1};" for each in range(number))
        told = await writer.post(SUBJECT, json=schema(fields))
        found = await reader.get(f"/schemas/ids/{told.json()['id']}")
        assert found.json()["schema"] == schema(fields)["schema"]
        assert len((await reader.get(SUBJECT)).json()) == number + 1


async def test_one_of_two_that_do_not_go_together_is_refused(clients: Clients) -> None:
    """Both are asked at once: what comes second is judged by what came first."""
    for number in range(5):
        path = f"/subjects/s{number}/versions"
        asked = (
            client.post(path, json=schema(fields))
            for client, fields in zip(clients, ("int32 a = 1;", "string a = 1;"), strict=True)
        )
        statuses = sorted(one.status_code for one in await asyncio.gather(*asked))
        assert statuses == [200, 409]
        assert (await clients[0].get(path)).json() == [1]


async def test_the_same_at_both_at_once_is_one_version(clients: Clients) -> None:
    asked = (client.post(SUBJECT, json=schema("int32 a = 1;")) for client in clients * 3)
    told = await asyncio.gather(*asked)
    assert {one.json()["id"] for one in told} == {1}
    assert (await clients[1].get(SUBJECT)).json() == [1]
