"""Deleted topics over HTTP: listed, brought back by name or id, let go of."""

from __future__ import annotations

import httpx

from coordination.commands import CreateTopic, DeleteTopic
from tests.unit.agent.http.conftest import Edge

PATH = "/admin/deleted-topics"


async def deleted(edge: Edge, name: str) -> str:
    """A topic that was made and deleted; its id."""
    await edge.topic(name, 2)
    topic_id = edge.replica.state.topics[name].topic_id
    await edge.replica.propose(DeleteTopic(name=name, by="User:u"))
    return topic_id.hex()


async def test_a_deleted_topic_is_listed_and_comes_back(edge: Edge, client: httpx.AsyncClient) -> None:
    topic_id = await deleted(edge, "orders")
    (row,) = (await client.get(PATH)).json()["topics"]
    assert (row["topic"], row["topic_id"], row["partitions"], row["by"]) == ("orders", topic_id, 2, "User:u")
    assert row["until_ms"] - row["deleted_ms"] == 86_400_000
    answer = await client.post(f"{PATH}/undelete", json={"topic": topic_id, "name": "back"})
    assert (answer.status_code, answer.json()) == (200, {"topic": "back", "topic_id": topic_id})
    assert "back" in edge.replica.state.topics
    assert (await client.get(PATH)).json()["topics"] == []


async def test_one_is_let_go_of(edge: Edge, client: httpx.AsyncClient) -> None:
    topic_id = await deleted(edge, "orders")
    answer = await client.post(f"{PATH}/purge", json={"topic": "orders"})
    assert answer.json()["purged"]["topic_id"] == topic_id
    assert not edge.replica.state.deleted
    gone = await client.post(f"{PATH}/undelete", json={"topic": "orders"})
    assert gone.status_code == 404
    assert "floe topic list --deleted" in gone.text


async def test_a_name_that_exists_is_told_with_the_remedy(edge: Edge, client: httpx.AsyncClient) -> None:
    await deleted(edge, "orders")
    await edge.replica.propose(CreateTopic(name="orders", topic_id=b"!" * 16, partitions=1))
    refused = await client.post(f"{PATH}/undelete", json={"topic": "orders"})
    assert refused.status_code == 409
    assert "--as" in refused.text
    strange = await client.post(f"{PATH}/undelete", json={"topic": ""})
    assert strange.status_code == 400
