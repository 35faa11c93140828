"""Changes from the console are asked for twice and done once, by a page that was shown, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from agent.kafka.asking import Asking
from agent.kafka.context import Services
from agent.telemetry.trail import Actor
from coordination.commands import AlterTopicConfigs, CreateTopic, DeleteTopic
from coordination.state.acl_types import Operation, ResourceType
from coordination.state.types import Done
from tests.unit.agent.http.conftest import connect
from tests.unit.agent.http.console_changes_rig import (
    DENIED,
    HTTP,
    IMPATIENT,
    ON,
    Both,
    change,
    fields_of,
    form,
    send,
)
from tests.unit.agent.http.console_rig import by, commit, console, let, page

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER


@pytest.fixture
async def open_(tmp_path: Path) -> AsyncIterator[Both]:
    """No ACLs are asked."""
    async with console(tmp_path, **ON) as both:
        yield both


@pytest.fixture
async def closed(tmp_path: Path) -> AsyncIterator[Both]:
    """ACLs are asked, and there are none."""
    async with console(tmp_path, "enforce", **ON) as both:
        yield both


async def test_a_change_is_done_once_however_often_it_is_confirmed(open_: Both) -> None:
    edge, _ = open_
    async with by(edge, "root") as client:
        preview = await send(client, "topic-create", {"topic": "orders", "partitions": "1"})
        sent = fields_of(preview)
        both = await asyncio.gather(*(send(client, "topic-create", sent) for _ in range(2)))
        assert all("Done" in each.said for each in both)
        first = edge.replica.state.topics["orders"].topic_id
        assert isinstance(await edge.replica.propose(DeleteTopic(name="orders")), Done)
        assert "done once" in (await send(client, "topic-create", sent)).said
    assert first
    assert "orders" not in edge.replica.state.topics, "not made again"


async def test_a_preview_that_is_not_true_any_more_is_made_anew(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    topics = edge.replica.state.topics
    async with by(edge, "root") as client:
        given = {"topic": "orders", "value:retention.ms": "5"}
        preview = await send(client, "topic-configs", given)
        other = AlterTopicConfigs.Change(
            name="retention.ms", operation=AlterTopicConfigs.Change.SET, value="7"
        )
        assert isinstance(
            await edge.replica.propose(AlterTopicConfigs(topic="orders", changes=[other])), Done
        )
        anew = await send(client, "topic-configs", fields_of(preview), 409)
        assert "changed since the preview" in anew.said
        assert "7 (the topic)" in anew.said
        assert topics["orders"].configs == {"retention.ms": "7"}
        assert "Done" in (await send(client, "topic-configs", fields_of(anew))).said
        assert topics["orders"].configs == {"retention.ms": "5"}
        preview = await send(client, "topic-delete", {"topic": "orders", "typed": "orders"})
        assert isinstance(await edge.replica.propose(DeleteTopic(name="orders")), Done)
        await change(client, "topic-create", topic="orders", partitions="1")
        await send(client, "topic-delete", fields_of(preview), 409)
    assert "orders" in topics, "it is another topic of this name"


async def test_a_preview_is_of_whom_it_was_shown_to(closed: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    edge, _ = closed
    topics = edge.replica.state.topics
    for user in ("ann", "sam"):
        await let(edge, user, Operation.CREATE, CLUSTER, "kafka-cluster")
    async with by(edge, "ann") as ann, by(edge, "ann") as other, by(edge, "sam") as sam:
        given = {"topic": "orders", "partitions": "1"}
        sent = fields_of(await send(ann, "topic-create", given))
        sam.cookies = ann.cookies
        for client in (sam, other):
            assert "not known here" in (await send(client, "topic-create", sent, 409)).said
        guessed = {**sent, "preview": "0" * 64}
        assert "not known here" in (await send(ann, "topic-create", guessed, 409)).said
        now = edge.parts.clock.monotonic
        monkeypatch.setattr(edge.parts.clock, "monotonic", lambda: now() + 601)
        assert "not known here" in (await send(ann, "topic-create", sent, 409)).said
    assert "orders" not in topics


async def test_pages_of_other_sites_change_nothing(open_: Both) -> None:
    edge, _ = open_
    async with by(edge, "root") as client:
        sent = fields_of(await send(client, "topic-create", {"topic": "orders", "partitions": "1"}))
        own = await client.get("/console/change/topic-create")
        assert own.headers["referrer-policy"] == "same-origin", "else browsers send the origin null"
        for headers in (
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            answer = await client.post("/console/change/topic-create", data=sent, headers=headers)
            assert answer.status_code == 403, headers
            assert "another site" in answer.text
        other = {**DENIED["acl-create"], "preview": sent["preview"]}
        assert "not known here" in (await send(client, "acl-create", other, 409)).said, "of another change"
        told = await client.post("/console/change/topic-create", json=sent)
        assert told.status_code == 415, "scripts of other sites may send it as text"
        assert "orders" not in edge.replica.state.topics
        cookie = (await client.post("/console/change/topic-create", data={"topic": "x"})).headers[
            "set-cookie"
        ]
        assert "SameSite=strict" in cookie
        assert "HttpOnly" in cookie
        assert (await client.get("/console/change/topic-create", params=sent)).status_code == 200
        assert "orders" not in edge.replica.state.topics, "nothing is changed by GET"
        done = await send(client, "topic-create", sent, origin="http://agent")
        assert "Done" in done.said


async def test_with_the_log_away_nothing_is_done_and_nobody_waits_for_ever(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    async with by(edge, "root") as client:
        given = {"topic": "orders", "count": "2"}
        preview = await send(client, "topic-partitions", given)
        edge.log.faults.refused = True
        async with asyncio.timeout(20):
            assert "the log" in (await send(client, "topic-partitions", given, 503)).said
            told = await send(client, "topic-partitions", fields_of(preview), 503)
            assert "Nothing was done" in told.said
            await form(client, "topic-partitions", topic="orders")
        edge.log.faults.refused = False
        async with asyncio.timeout(20):
            for _ in range(400):
                if (await client.post("/console/change/topic-partitions", data=given)).status_code != 503:
                    break
                await asyncio.sleep(0.05)
        assert "Done" in (await send(client, "topic-partitions", fields_of(preview))).said, "still to be done"


async def test_an_outcome_that_is_not_known_is_called_so(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    async with by(edge, "root") as client:
        preview = await send(client, "topic-partitions", {"topic": "orders", "count": "2"})
        edge.log.faults.delivery_delay_s = 4
        told = await send(client, "topic-partitions", fields_of(preview), 504)
    assert "Not known:" in told.said
    assert "REQUEST_TIMED_OUT" in told.said


class Slow(Asking):
    """Asks when it is let."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.let = asyncio.Event()

    async def ask(self, actor: Actor, key: int, request: Any, *, rehearse: bool = False) -> Any:
        if not rehearse:
            await self.let.wait()
        return await super().ask(actor, key, request, rehearse=rehearse)


async def test_a_change_that_takes_long_is_told_of_when_the_page_is_loaded_again(tmp_path: Path) -> None:
    async with console(tmp_path, **IMPATIENT) as (edge, agent):
        slow = Slow(agent.services)
        edge.have(asked=lambda: slow)
        async with by(edge, "root") as client:
            sent = fields_of(await send(client, "topic-create", {"topic": "orders", "partitions": "1"}))
            assert "load this page again" in (await send(client, "topic-create", sent, 504)).said
            slow.let.set()
            for _ in range(400):
                answer = await client.post("/console/change/topic-create", data=sent)
                if answer.status_code == 200:
                    break
            assert "It was confirmed before, and done once" in answer.text
            edge.log.faults.refused = True
            await send(client, "topic-create", sent)  # it is known without the log


async def test_a_topic_that_gets_the_name_while_another_is_deleted_stays(tmp_path: Path) -> None:
    async with console(tmp_path, **IMPATIENT) as (edge, agent):
        slow = Slow(agent.services)
        edge.have(asked=lambda: slow)
        await edge.topic("orders")
        async with by(edge, "root") as client:
            given = {"topic": "orders", "typed": "orders"}
            sent = fields_of(await send(client, "topic-delete", given))
            await send(client, "topic-delete", sent, 504)
            assert isinstance(await edge.replica.propose(DeleteTopic(name="orders")), Done)
            anew = CreateTopic(name="orders", topic_id=bytes(15) + b"x", partitions=1)
            assert isinstance(await edge.replica.propose(anew), Done)
            slow.let.set()
            for _ in range(400):
                answer = await client.post("/console/change/topic-delete", data=sent)
                if "load this page again" not in answer.text:
                    break
            assert "Not done" in answer.text
    assert "orders" in edge.replica.state.topics


async def test_a_group_of_another_agent_is_changed_there(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    (own,) = edge.replica.state.brokers.values()
    other = replace(
        own, node_id=own.node_id + 1, incarnation=0, name="other", http_address="other.example:80"
    )
    kafka = edge.parts.asked()
    assert kafka is not None
    edge.replica.state.brokers[other.node_id] = other
    there = next(g for g in (f"g-{n}" for n in range(99)) if kafka.coordinator(g) == other.node_id)
    await commit(edge, there, "orders", 0)
    async with by(edge, "root") as client:
        for kind, given in (("group-reset", {"to": "latest"}), ("group-delete", {"typed": there})):
            told = await send(client, kind, {"group": there, **given}, 409)
            assert "agent other (HTTP other.example:80) looks after this group" in told.said


async def test_changes_are_off_unless_they_are_switched_on_and_are_bounded(
    tmp_path: Path,
) -> None:
    async with console(tmp_path) as (edge, _):
        await edge.topic("orders")
        async with by(edge, "root") as client:
            assert (await client.get("/console/change/topic-create")).status_code == 404
            links = (await page(client, "/console/topics/orders")).links
            assert not [each for each in links if "change" in each]
    few = {"http": HTTP, "console": {"changes": True, "preview_entries_max": 1}}
    async with console(tmp_path, **few) as (edge, _), by(edge, "root") as client:
        first = fields_of(await send(client, "topic-create", {"topic": "a", "partitions": "1"}))
        await send(client, "topic-create", {"topic": "b", "partitions": "1"})
        assert "not known here" in (await send(client, "topic-create", first, 409)).said
        large = {"topic": "x", "configs": "y" * 300_000}
        assert "larger" in (await send(client, "topic-create", large, 413)).said


async def test_where_nobody_is_asked_who_he_is_changes_are_for_all_who_come_by_a_name_of_the_agents(
    tmp_path: Path,
) -> None:
    anybody: dict[str, Any] = {**ON, "http": {**HTTP, "authentication": "none"}}
    async with console(tmp_path, **anybody) as (edge, _):
        transport = httpx.ASGITransport(edge.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
            await change(client, "topic-create", topic="orders", partitions="1")
        async with httpx.AsyncClient(transport=transport, base_url="http://rebound.example") as client:
            given = {"topic": "other", "partitions": "1"}
            told = await send(client, "topic-create", given, 403, origin="http://rebound.example")
            assert "no name of this agent's" in told.said
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            told = await send(client, "topic-create", given, 403, origin="http://evil.example")
            assert "another site" in told.said
    async with console(tmp_path, "enforce", **anybody) as (edge, _), connect(edge.app) as client:
        assert "http.authentication" in (await form(client, "topic-create", 403)).said
