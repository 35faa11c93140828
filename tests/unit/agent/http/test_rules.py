"""Binding a topic to a message with rules: those that cannot be used are told, and a policy is set."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from agent.http import Parts
from coordination.commands import AlterTopicConfigs
from coordination.state import Applied
from coordination.state import binding as schema_bindings
from coordination.state.types import Done
from tests.unit.agent.http.conftest import Edge, connect
from tests.unit.agent.http.registry_rig import Registry
from tests.unit.agent.http.test_admin import post

HEAD = 'syntax = "proto3"; package shop; import "buf/validate/validate.proto"; message Order { '
RULED = HEAD + "double total = 1 [(buf.validate.field).double.gte = 0]; }"
WIDER = RULED.replace("}", "string note = 2 [(buf.validate.field).string.max_len = 9]; }")
CEL = '{ id: "total.positive", expression: "this >>> 0" }'
BROKEN = HEAD + f"double total = 1 [(buf.validate.field).cel = {CEL}]; }}"
PLAIN = 'syntax = "proto3"; package shop; message Order { double total = 1; }'


def binding(text: str, **more: Any) -> dict[str, Any]:
    return {"message": "shop.Order", "sources": {"order.proto": text}, **more}


def configs(edge: Edge) -> dict[str, str]:
    return dict(edge.replica.state.topics["orders"].configs)


async def bound(client: httpx.AsyncClient, text: str, **more: Any) -> tuple[bool, str]:
    """Bind; whether the message has rules, and the policy in force."""
    status, body = await post(client, binding(text, **more))
    assert status == 200, body
    return body["has_rules"], body["rules"]


async def test_a_first_binding_to_a_message_with_rules_rejects(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    assert await bound(client, RULED) == (True, "reject")
    assert configs(edge) == {"floe.value.rules": "reject"}


async def test_a_topic_that_was_bound_keeps_its_policy(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    assert await bound(client, PLAIN) == (False, "off")
    assert configs(edge) == {}
    assert await bound(client, RULED) == (True, "off"), "what was taken until now is taken"
    assert await bound(client, WIDER, rules="observe") == (True, "observe")
    assert configs(edge) == {"floe.value.rules": "observe"}


@pytest.mark.parametrize("asked", ["off", "observe"])
async def test_a_policy_that_is_set_stays(edge: Edge, client: httpx.AsyncClient, asked: str) -> None:
    await edge.topic("orders", **{"floe.value.rules": asked})
    assert await bound(client, RULED) == (True, asked)
    assert (await post(client, {"unbind": True}))[0] == 200
    assert await bound(client, RULED, rules="reject") == (True, "reject")


async def test_a_quarantine_is_made_with_the_binding(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    assert await bound(client, RULED, rules="quarantine") == (True, "quarantine")
    made = edge.replica.state.topics["orders.quarantine"]
    assert edge.replica.state.schemas[made.value_schema_id or 0].message == "floe.quarantine.v1.Record"


async def test_a_policy_that_is_none_is_refused(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    status, body = await post(client, binding(RULED, rules="maybe"))
    assert status == 400
    assert body["error"]["message"] == "rules: Input should be 'off', 'observe', 'reject' or 'quarantine'"


async def test_rules_that_cannot_be_used_are_refused_with_their_place(
    edge: Edge, client: httpx.AsyncClient
) -> None:
    await edge.topic("orders")
    status, body = await post(client, binding(BROKEN))
    assert status == 400
    assert body["error"]["message"].startswith(
        "rules of shop.Order cannot be used: shop.Order.total: rule total.positive: does not compile: "
    )
    assert "--force" in body["error"]["remedy"]
    assert configs(edge) == {}
    assert await bound(client, BROKEN, force=True, rules="off") == (True, "off")


async def test_below_the_level_that_knows_policies_nothing_is_set(edge: Edge) -> None:
    from agent.http.rules import policy_wanted

    await edge.topic("orders")
    parts: Parts = edge.parts
    topic = edge.replica.state.topics["orders"]
    assert len(policy_wanted(parts, topic, "value", "", ruled=True)) == 1
    edge.replica.state.feature_level = 1
    assert policy_wanted(parts, topic, "value", "", ruled=True) == []


async def test_a_schema_of_the_registry_is_asked_for_its_rules(registry: Registry) -> None:
    path = "/admin/subjects/orders-value/rules"
    (told,) = (await registry.ask("POST", path, {"schema": BROKEN, "schemaType": "PROTOBUF"}))["problems"]
    assert told.startswith("shop.Order.total: rule total.positive: does not compile: ")
    for good in (RULED, PLAIN):
        answer = await registry.ask("POST", path, {"schema": good, "schemaType": "PROTOBUF"})
        assert answer == {"problems": []}


async def test_what_a_change_of_the_topics_configs_undoes(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders")
    await bound(client, RULED)
    before = edge.replica.state.topics["orders"].bound_revision
    for name, value, again in (("retention.ms", "1", False), ("floe.value.rules", "off", True)):
        change = AlterTopicConfigs.Change(name=name, operation=AlterTopicConfigs.Change.SET, value=value)
        assert isinstance(
            await edge.replica.propose(AlterTopicConfigs(topic="orders", changes=[change])), Done
        )
        after = edge.replica.state.topics["orders"].bound_revision
        assert (after > before) is again, f"{name}: whether records are judged anew"
        before = after


async def test_a_binding_larger_than_an_entry_and_its_policy_come_at_one_place_of_the_log(edge: Edge) -> None:
    await edge.topic("orders")
    http = edge.parts.config.http.model_copy(update={"body_bytes_max": 8 << 20, "barrier_timeout_ms": 60_000})
    app = edge.rebuilt(config=edge.parts.config.model_copy(update={"http": http}))
    long = "x" * edge.log.entry_bytes_max
    cel = f'{{ id: "long", message: "{long}", expression: "this >= 0" }}'
    seen: list[tuple[int, str]] = []

    def note(applied: Applied) -> None:
        topic = edge.replica.state.topics["orders"]
        seen.append((topic.value_schema_id or 0, topic.configs.get("floe.value.rules", "")))

    edge.replica.add_listener(note)
    text = HEAD + f"double total = 1 [(buf.validate.field).cel = {cel}]; }}"
    async with connect(app) as client:
        assert await bound(client, text) == (True, "reject")
    (schema,) = edge.replica.state.schemas.values()
    assert len(schema.descriptor_set) > edge.log.entry_bytes_max, "it came in parts"
    assert seen[0] == (0, "")
    assert set(seen) == {(0, ""), (schema.schema_id, "reject")}, "never one without the other"


async def test_a_binding_that_is_refused_is_told_whatever_came_before_it(
    edge: Edge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await edge.topic("orders")
    monkeypatch.setattr(schema_bindings, "SCHEMAS_MAX", 0)
    status, body = await post(client, binding(RULED))
    assert (status, body["error"]["message"]) == (
        409,
        "POLICY_VIOLATION: the cluster has 0 schemas, the most it takes",
    )


async def test_rules_of_the_subject_that_is_to_be_followed(edge: Edge, registry: Registry) -> None:
    """Of its newest version, or of the one named: they are tried, and a first binding has them refuse."""
    for text in (PLAIN, RULED, BROKEN):
        await registry.ask("POST", "/subjects/s/versions", {"schema": text, "schemaType": "PROTOBUF"})
    path = "/admin/topics/{}/schema"
    for name in ("newest", "two", "one", "other"):
        await edge.topic(name)

    async def bind(topic: str, **more: Any) -> tuple[int, dict[str, Any]]:
        answer = await registry.client.post(path.format(topic), json={"subject": "s", **more})
        return answer.status_code, answer.json()

    status, body = await bind("newest")
    assert status == 400
    assert "shop.Order.total: rule total.positive: does not compile" in body["error"]["message"]
    status, body = await bind("two", subject_version=2)
    assert (status, body["has_rules"], body["rules"]) == (200, True, "reject")
    status, body = await bind("one", subject_version=1)
    assert (status, body["has_rules"], body["rules"]) == (200, False, "off")
    status, body = await bind("other", message="shop.Another")
    assert (status, body["has_rules"], body["rules"]) == (200, False, "off"), "that message has none"
    status, body = await bind("newest", force=True, rules="off")
    assert (status, body["has_rules"], body["rules"]) == (200, True, "off")
