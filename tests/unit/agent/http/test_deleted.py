"""Deleted topics over HTTP: listed, brought back by name or id, let go of."""

from __future__ import annotations

import httpx

from coordination.commands import BindSchema, CreateTopic, DeleteTopic, RegisterSchema
from coordination.state.types import Done
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.registry_rig import A, Registry

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


async def test_an_id_that_a_deleted_topic_comes_back_with_is_given_to_no_schema(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    """Its records name it. Where one was given, by an agent of before, the topic waits until that is gone."""
    registry = Registry(client)
    await edge.topic("orders", 1)
    bind = BindSchema(topic="orders", descriptor_set=b"d", message="m", framing=BindSchema.CONFLUENT)
    bound = await edge.replica.propose(bind)
    assert bound == Done(1)
    await edge.replica.propose(DeleteTopic(name="orders"))
    await registry.put("/mode", mode="IMPORT")
    told = await registry.register("other", A, 42205, id=1, version=1)
    assert "floe topic purge orders" in told["message"]
    imported = RegisterSchema(
        subject="other", schema_type="PROTOBUF", text=A, canonical=b"c", schema_id=1, version=1,
        judged_revision=edge.replica.state.revision,
    )  # fmt: skip
    assert await edge.replica.propose(imported) == Done((1, 1))
    refused = await client.post(f"{PATH}/undelete", json={"topic": "orders"})
    assert refused.status_code == 409
    assert "name schema 1, registered since (version 1 of other): delete that" in refused.text
    await registry.delete("/subjects/other")
    await registry.delete("/subjects/other?permanent=true")
    back = await client.post(f"{PATH}/undelete", json={"topic": "orders"})
    assert (back.status_code, list(edge.replica.state.schemas)) == (200, [1])
    await edge.replica.propose(DeleteTopic(name="orders"))
    await client.post(f"{PATH}/purge", json={"topic": "orders"})
    assert (await registry.register("other", A, id=1, version=1))["id"] == 1
