"""A topic with rules of its own is bound: they must go with what its records are then."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from coordination.commands import RegisterSchema
from coordination.state.types import Done
from schema.registry import protobuf
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.test_admin import post
from tests.unit.agent.http.test_rules import PLAIN, RULED, binding

OTHER = 'syntax = "proto3"; package shop; message Order { string name = 1; }'
AMOUNT = {"floe.rules": "value.total > 0.0", "floe.value.rules": "reject"}
NO_FIELD = "rules of topic orders cannot be used then: floe.rules: rule floe.rules: there is no field total"


async def register(edge: Edge, text: str) -> None:
    """The next version of subject s."""
    form = protobuf.parse(text, {}).canonical
    message = RegisterSchema(
        subject="s", schema_type="PROTOBUF", text=text, canonical=form, judged_revision=1 << 40
    )
    assert isinstance(await edge.replica.propose(message), Done)


async def refused(client: httpx.AsyncClient, asked: dict[str, Any], why: str) -> None:
    """The binding is refused for that, and can be forced."""
    status, body = await post(client, asked)
    assert status == 400
    assert body["error"]["message"].startswith(why)
    assert body["error"]["remedy"].startswith("change or unset floe.rules first")


@pytest.mark.parametrize("text", [PLAIN, RULED])
async def test_what_goes_is_bound(edge: Edge, client: httpx.AsyncClient, text: str) -> None:
    await edge.topic("orders", **AMOUNT)
    assert (await post(client, binding(text)))[0] == 200


async def test_what_does_not_is_refused_and_may_be_forced(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", **AMOUNT)
    await refused(client, binding(OTHER), NO_FIELD)
    assert edge.replica.state.topics["orders"].value_schema_id is None
    assert (await post(client, binding(OTHER, force=True)))[0] == 200


async def test_keys_that_no_rule_names_may_be_anything(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", **{"floe.rules": "size(value) > 0"})
    assert (await post(client, binding(OTHER, role="key")))[0] == 200
    await refused(client, binding(OTHER), "rules of topic orders cannot be used then")


async def test_what_is_unbound_is_bytes(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", **AMOUNT)
    assert (await post(client, binding(PLAIN)))[0] == 200
    await refused(client, {"unbind": True}, "rules of topic orders cannot be used then")
    assert (await post(client, {"unbind": True, "force": True}))[0] == 200


async def test_a_subject_s_version_says_what_records_are(edge: Edge, client: httpx.AsyncClient) -> None:
    await edge.topic("orders", **AMOUNT)
    assert (await post(client, {"subject": "s"}))[0] == 200, "nobody knows yet"
    await register(edge, OTHER)
    await register(edge, PLAIN)
    await refused(client, {"subject": "s", "subject_version": 1}, NO_FIELD)
    assert (await post(client, {"subject": "s", "subject_version": 2}))[0] == 200
    assert (await post(client, {"subject": "s"}))[0] == 200
