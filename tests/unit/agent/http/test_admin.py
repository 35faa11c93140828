"""Binding topics to protobuf messages over HTTP, and every way in which that is refused."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from agent.http import bindings
from schema.compiler import compile_protos
from schema.descriptors import message_at
from tests.unit.agent.http.conftest import Edge

ORDER = """syntax = "proto3";
package shop;
message Order { int64 id = 1; Item item = 2; message Item { string name = 1; } }
"""
PATH = "/admin/topics/orders/schema"
GOOD: dict[str, Any] = {"message": "shop.Order", "sources": {"order.proto": ORDER}}


async def post(client: httpx.AsyncClient, body: object, path: str = PATH) -> tuple[int, Any]:
    """Status and JSON of one POST."""
    answer = await client.post(path, json=body)
    return answer.status_code, answer.json()


async def test_sources_are_compiled_and_bound(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    status, body = await post(client, {**GOOD, "framing": "confluent", "tombstones": True})
    assert status == 200
    (schema,) = body["schemas"]
    descriptor_set = base64.b64decode(schema.pop("descriptor_set"))
    assert descriptor_set == compile_protos({"order.proto": ORDER.encode()})
    assert schema == {
        "schema_id": 1,
        "role": "value",
        "version": 1,
        "message": "shop.Order",
        "framing": "confluent",
        "tombstones": True,
    }
    (again,) = (await client.get(PATH)).json()["schemas"]
    assert base64.b64decode(again.pop("descriptor_set")) == descriptor_set
    assert again == schema
    assert edge.replica.state.topics["orders"].value_schema_id == 1


async def test_descriptor_sets_keys_rebinding_and_unbinding(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    encoded = base64.b64encode(compile_protos({"order.proto": ORDER.encode()})).decode()
    assert (await post(client, GOOD))[0] == 200
    status, body = await post(
        client, {"role": "key", "message": "shop.Order.Item", "framing": "plain", "descriptor_set": encoded}
    )
    assert status == 200
    assert [(s["role"], s["message"]) for s in body["schemas"]] == [
        ("value", "shop.Order"),
        ("key", "shop.Order.Item"),
    ]
    status, body = await post(client, {**GOOD, "message": "shop.Order.Item"})
    assert (status, body["schemas"][0]["version"]) == (200, 2)
    status, body = await post(client, {"role": "value", "unbind": True})
    assert (status, [s["role"] for s in body["schemas"]]) == (200, ["key"])


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ({**GOOD, "message": "shop.Ordr"}, 400, "shop.Order"),
        ({"message": "shop.Order", "sources": {"order.proto": "message {"}}, 400, "order.proto:1:"),
        ({"message": "shop.Order", "sources": {"a.proto": 'import "b.proto";'}}, 400, "b.proto"),
        ({"message": "shop.Order", "sources": {"../a.proto": ORDER}}, 400, "../a.proto"),
        ({"message": "shop.Order", "descriptor_set": "***"}, 400, "not base64"),
        ({"message": "shop.Order", "descriptor_set": "AAAA"}, 400, "descriptor"),
        ({"message": "shop.Order"}, 400, "exactly one of descriptor_set"),
        ({"sources": {"order.proto": ORDER}}, 400, "message:"),
        ({**GOOD, "framing": "avro"}, 400, "framing"),
        ({**GOOD, "roll": "value"}, 400, "roll"),
        ({**GOOD, "unbind": True}, 400, "unbind"),
        ({**GOOD, "subject": "s"}, 400, "exactly one of descriptor_set (base64), sources and subject"),
        ({"subject": "s", "unbind": True}, 400, "unbind"),
        ({**GOOD, "subject_version": 1}, 400, "of which subject"),
        ({"subject": "s", "framing": "plain"}, 400, "framing and tombstones"),
        ({"subject": "s", "tombstones": True}, 400, "framing and tombstones"),
        ({"subject": "s", "subject_version": -1}, 400, "subject_version"),
        ({"subject": "s" * 1025}, 400, "subject"),
        ([], 400, "body"),
        ({**GOOD, "sources": {"order.proto": "//" + "x" * 70_000}}, 413, "65536"),
    ],
)
async def test_bad_requests_say_what_is_wrong(
    edge: Edge, client: httpx.AsyncClient, body: object, status: int, part: str
) -> None:
    await edge.topic("orders")
    revision = edge.replica.state.revision
    code, answer = await post(client, body)
    assert (code, answer["error"]["status"]) == (status, status)
    assert part in answer["error"]["message"] + answer["error"]["remedy"], answer
    assert edge.replica.state.schemas == {}
    assert edge.replica.state.topics["orders"].value_schema_id is None
    assert edge.replica.state.revision >= revision


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'{"message": ', b"[" * 50_000])
async def test_what_is_not_json_is_a_400(edge: Edge, client: httpx.AsyncClient, body: bytes) -> None:
    await edge.topic("orders")
    answer = await client.post(PATH, content=body)
    assert answer.status_code == 400
    assert "JSON" in answer.json()["error"]["message"]


async def test_an_unknown_topic_is_a_404_with_the_remedy(client: httpx.AsyncClient) -> None:
    for answer in (await client.get(PATH), await client.post(PATH, json=GOOD)):
        assert answer.status_code == 404
        assert "floe topic create" in answer.json()["error"]["remedy"]


async def test_without_the_log_nothing_is_changed_and_the_answer_says_so(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    await edge.topic("orders")
    edge.log.faults.partitioned = True
    answer = await client.post(PATH, json=GOOD)
    edge.log.faults.partitioned = False
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "log" in answer.json()["error"]["message"]
    assert edge.replica.state.topics["orders"].value_schema_id is None


async def test_a_full_disk_is_told_as_such_and_descriptor_sets_need_none(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that an agent of a cluster writes to its disk is what the compiler of sources works on."""
    await edge.topic("orders")
    compiled = compile_protos({"order.proto": ORDER.encode()})
    monkeypatch.setattr("tempfile.tempdir", "/proc/nothing-can-be-written-here")
    status, body = await post(client, GOOD)
    assert status == 503
    assert "TMPDIR" in str(body)
    ready = {"message": "shop.Order", "descriptor_set": base64.b64encode(compiled).decode()}
    assert (await post(client, ready))[0] == 200


async def test_below_its_level_no_topic_follows_a_subject(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    edge.replica.state.feature_level = 1
    status, body = await post(client, {"subject": "s"})
    assert (status, "from feature level 2 on" in body["error"]["message"]) == (409, True)
    assert edge.replica.state.schemas == {}


async def test_a_subject_is_followed_or_stayed_at(edge: Edge, client: httpx.AsyncClient) -> None:
    """What columns a version changes nobody asks here: the registry's compatibility does."""
    await edge.topic("orders")
    assert (await post(client, GOOD))[0] == 200
    status, body = await post(client, {"subject": ":.:orders-value", "message": "shop.Order"})
    assert status == 200
    followed = {
        "schema_id": 2,
        "role": "value",
        "version": 2,
        "message": "shop.Order",
        "framing": "confluent",
        "tombstones": True,
        "naming": "subject",
        "subject": "orders-value",
        "subject_version": None,
        "descriptor_set": "",
    }
    assert body["schemas"] == [followed]
    status, body = await post(client, {"subject": "orders-value", "subject_version": 1})
    assert (status, "version 1 of subject orders-value" in body["error"]["message"]) == (404, True)
    schema = {"schemaType": "PROTOBUF", "schema": ORDER}
    assert (await client.post("/subjects/orders-value/versions", json=schema)).status_code == 200
    status, body = await post(client, {"subject": "orders-value", "subject_version": 1, "role": "key"})
    assert (status, body["schemas"][1]["subject_version"], len(body["schemas"])) == (200, 1, 2)
    history = (await client.get(f"{PATH}?descriptors=true")).json()["history"]
    assert [each.get("naming") for each in history] == [None, "subject", "subject"]
    assert (await post(client, {**GOOD, "force": True}))[0] == 200
    status, body = await post(client, {"role": "value", "unbind": True})
    assert (status, [each["role"] for each in body["schemas"]]) == (200, ["key"])


async def test_what_records_may_name_is_told_in_pieces(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of all subjects that were followed, hidden ones too; for the audit."""
    await edge.topic("orders")
    assert (await post(client, {"subject": "orders-value"}))[0] == 200
    assert (await post(client, {"role": "value", "unbind": True}))[0] == 200
    schema = {"schemaType": "PROTOBUF", "schema": ORDER}
    assert (await client.post("/subjects/orders-value/versions", json=schema)).status_code == 200
    newer = {**schema, "schema": ORDER.replace("int64 id = 1;", "int64 id = 1; string more = 3;")}
    assert (await client.post("/subjects/orders-value/versions", json=newer)).status_code == 200
    assert (await client.delete("/subjects/orders-value/versions/2")).status_code == 200
    monkeypatch.setattr(bindings, "SCHEMAS_PER_ANSWER", 1)
    first = (await client.get(f"{PATH}?registered_after=0")).json()
    rest = (await client.get(f"{PATH}?registered_after={first['next_registered']}")).json()
    told = [*first["registered"], *rest["registered"]]
    assert [each["schema_type"] for each in told] == ["PROTOBUF"] * 2
    assert [message_at(base64.b64decode(each["descriptor_set"]), (0, 0)) for each in told] == [
        "shop.Order.Item"
    ] * 2
    assert "next_registered" not in rest
    for each in told:
        for name in (each["schema_id"], each["guid"]):
            alone = await client.get(f"/admin/schemas/{name}")
            assert (alone.status_code, alone.json()) == (200, each)
    for name in ("0", "99999", "9" * 400, "x", each["guid"][:-1], "0" * 32):
        unknown = await client.get(f"/admin/schemas/{name}")
        assert unknown.status_code == 404
        assert unknown.json()["error"]["remedy"] == "floe schema list"


async def test_a_message_that_changes_what_columns_are_is_refused_unless_forced(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    await edge.topic("orders")
    assert (await post(client, GOOD))[0] == 200
    other = ORDER.replace("int64 id = 1", "string id = 1").replace("string name = 1", "int32 name = 2")
    wanted = {"message": "shop.Order", "sources": {"order.proto": other}}
    status, body = await post(client, wanted)
    assert (status, body["error"]["message"]) == (
        409,
        "shop.Order would change what columns of topic orders's table are: column `id` (long) would be "
        "called `id__15`, and `id` be a new column (string); column `item.name` (string) would be called "
        "`item.name__17`, and `item.name` be a new column (int)",
    )
    assert "--force" in body["error"]["remedy"]
    assert edge.replica.state.topics["orders"].value_schema_id == 1
    status, _ = await post(client, {**wanted, "force": True})
    assert (status, edge.replica.state.topics["orders"].value_schema_id) == (200, 2)


async def test_a_message_that_keeps_columns_is_taken(edge: Edge, client: httpx.AsyncClient) -> None:
    """Renames inside a message, more fields or less, wider types, another package; any, without a table."""
    await edge.topic("orders")
    narrow = ORDER.replace("int64 id", "int32 id")
    renamed = ORDER.replace("int64 id = 1", "int64 number = 1; bool paid = 4")
    moved = renamed.replace("package shop", "package shop.v2")
    for text in (narrow, ORDER, renamed, moved):
        message = "shop.v2.Order" if text is moved else "shop.Order"
        wanted = {"message": message, "sources": {"order.proto": text}}
        assert (await post(client, wanted))[0] == 200, text
    await edge.topic("plain", **{"floe.table.enabled": "false"})
    path = PATH.replace("orders", "plain")
    assert (await post(client, GOOD, path))[0] == 200
    other = {"message": "shop.Order", "sources": {"order.proto": ORDER.replace("int64 id", "string id")}}
    assert (await post(client, other, path))[0] == 200
