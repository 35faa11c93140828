"""Changes from the console: what each does, to whom it is denied in words, what is wrong with fields."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.http.needs import CHANGES
from agent.net.wire.generated import consumer_group_heartbeat as cgh
from coordination.commands import CreateTopic, DeleteTopic
from coordination.state.acl_types import Operation, ResourceType
from tests.unit.agent.http.conftest import Edge
from tests.unit.agent.http.console_changes_rig import DENIED, ON, Both, change, fields_of, form, send
from tests.unit.agent.http.console_rig import by, commit, console, in_transaction, let, page
from tests.unit.agent.http.registry_rig import A, Registry
from tests.unit.agent.kafka.test_handlers_produce_fetch import produce
from tests.unit.agent.rig import Agent, batch

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


async def test_topics_are_made_grown_altered_and_deleted(open_: Both) -> None:
    edge, _ = open_
    topics = edge.replica.state.topics
    async with by(edge, "root") as client:
        await change(client, "topic-create", topic="orders", partitions="2", configs="retention.ms=5\n")
        assert len(topics["orders"].partitions) == 2
        assert topics["orders"].configs == {"retention.ms": "5"}
        links = (await page(client, "/console/topics/orders")).links
        assert "/console/change/topic-configs?topic=orders" in links
        await change(client, "topic-partitions", topic="orders", count="3")
        assert len(topics["orders"].partitions) == 3
        shown = await form(client, "topic-configs", topic="orders")
        assert "How long a tombstone of a compacted topic stays" in shown.said, "its documentation is beside"
        given = fields_of(shown)
        given |= {"value:cleanup.policy": "compact", "unset:retention.ms": "1"}
        preview = await send(client, "topic-configs", given)
        assert "delete (cluster or default)" in preview.said
        assert "compact (the topic)" in preview.said
        assert "max.message.bytes" not in preview.said, "only what changes is shown"
        await send(client, "topic-configs", fields_of(preview))
        assert topics["orders"].configs == {"cleanup.policy": "compact"}
        wrong = await send(client, "topic-delete", {"topic": "orders", "typed": "order"}, 400)
        assert "this is not 'orders'" in wrong.said
        await change(client, "topic-delete", topic="orders", typed="orders")
        assert "orders" not in topics


async def test_a_deleted_topic_is_listed_with_what_it_holds_and_comes_back(open_: Both) -> None:
    edge, agent = open_
    state = edge.replica.state
    await edge.topic("orders", partitions=2)
    assert (await produce(agent, batch(b"a", b"b", b"c"), name="orders")).error_code == 0
    topic_id = state.topics["orders"].topic_id
    async with by(edge, "root") as client:
        await change(client, "topic-delete", topic="orders", typed="orders")
        assert "/console/deleted-topics" in (await page(client, "/console/topics")).links
        shown = await page(client, "/console/deleted-topics", search="ord")
        row = shown.said[shown.said.index("orders") :]
        assert topic_id.hex() in row
        assert f"{state.deleted[topic_id].size_bytes} B" in row
        assert "User:root" in row
        way = f"/console/change/topic-undelete?topic={topic_id.hex()}"
        assert way in shown.links
        given = fields_of(await form(client, "topic-undelete", topic=topic_id.hex()))
        await edge.replica.propose(CreateTopic(name="orders", topic_id=b"!" * 16, partitions=1))
        taken = await send(client, "topic-undelete", given, 400)
        assert "Topic 'orders' exists" in taken.said
        preview = await send(client, "topic-undelete", {**given, "name": "back"})
        assert "back" not in state.topics, "a preview changes nothing"
        assert "Done" in (await send(client, "topic-undelete", fields_of(preview))).said
        assert state.topics["back"].topic_id == topic_id
        assert state.topics["back"].partitions[0].high_watermark == 3
        assert not state.deleted
        await send(client, "topic-undelete", given, 404)
        assert way not in (await page(client, "/console/deleted-topics")).links


async def test_records_go_before_an_offset(open_: Both) -> None:
    edge, agent = open_
    await edge.topic("orders", partitions=2)
    assert (await produce(agent, batch(b"a", b"b", b"c"), name="orders")).error_code == 0
    first = edge.replica.state.topics["orders"].partitions[0]
    async with by(edge, "root") as client:
        await change(client, "records-delete", topic="orders", partition="0", before="1")
        assert first.log_start == 1
        preview = await send(client, "records-delete", {"topic": "orders"})
        assert (await produce(agent, batch(b"d"), name="orders")).error_code == 0
        await send(client, "records-delete", fields_of(preview))
        assert first.log_start == 3, "what came behind the preview stays"
        beyond = {"topic": "orders", "partition": "0", "before": "9"}
        assert "has the offsets 3 to 4" in (await send(client, "records-delete", beyond, 400)).said


RESETS = (
    ("earliest", "", 0),
    ("latest", "", 5),
    ("offset", "3", 3),
    ("offset", "99", 5),
    ("shift", "-1", 1),
    ("shift", "-9", 0),
    ("time", "1700000000003", 3),
    ("time", "2023-11-14T22:13:20.001Z", 1),
    ("time", "2030-01-01", 5),
)


async def test_positions_are_reset_as_previewed(open_: Both) -> None:
    edge, agent = open_
    topics, groups = edge.replica.state.topics, edge.replica.state.groups
    async with by(edge, "root") as client:
        for number, (to, value, then) in enumerate(RESETS):
            topic, group = f"t-{number}", f"g-{number}"
            await edge.topic(topic)
            records = batch(b"a", b"b", b"c", b"d", b"e")
            assert (await produce(agent, records, name=topic)).error_code == 0
            await commit(edge, group, topic, 2)
            preview = await send(client, "group-reset", {"group": group, "to": to, "value": value})
            assert (await produce(agent, batch(b"x"), name=topic)).error_code == 0
            assert "Done" in (await send(client, "group-reset", fields_of(preview))).said
            position = groups[group].offsets.get(topics[topic].partitions[0].handle)
            assert position is not None
            assert position.offset == then, (to, value)


async def test_a_form_is_about_what_it_was_opened_for(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    (partition,) = edge.replica.state.topics["orders"].partitions
    for name in ("team\u00a0a", "team\u200b"):
        await commit(edge, name, "orders", 7)
        async with by(edge, "root") as client:
            given = fields_of(await form(client, "group-reset", group=name))
            assert "Done" in (await change(client, "group-reset", **given, to="earliest")).said
        position = edge.replica.state.groups[name].offsets.get(partition.handle)
        assert position is not None
        assert position.offset == 0


async def test_a_time_is_found_behind_the_beginning_of_an_open_transaction(open_: Both) -> None:
    edge, agent = open_
    await edge.topic("orders")
    (partition,) = edge.replica.state.topics["orders"].partitions
    await commit(edge, "readers", "orders", 1)
    names = await in_transaction(edge, partition.handle)
    own = {name: names[name] for name in ("producer_id", "producer_epoch")}
    early, at = batch(b"tx", transactional=True, base_sequence=0, **own), 1_700_000_001_000
    assert (await produce(agent, early, name="orders", transactional_id="tx")).error_code == 0
    for number in range(3):
        assert (await produce(agent, batch(b"a", timestamp=at + number), name="orders")).error_code == 0
    assert (partition.last_stable, partition.high_watermark) == (0, 4)
    async with by(edge, "root") as client:
        await change(client, "group-reset", group="readers", to="time", value=str(at + 1))
        position = edge.replica.state.groups["readers"].offsets.get(partition.handle)
        assert position is not None
        assert position.offset == 2, "at the partition's end what is committed before it is skipped"
        look = {"start": "time", "at": at + 1, "partition": 0}
        assert "0 shown of 0 records" in (await page(client, "/console/topics/orders/records", **look)).said


async def test_a_group_is_deleted_and_reset_only_without_members(open_: Both) -> None:
    edge, agent = open_
    await edge.topic("orders")
    await commit(edge, "readers", "orders", 0)
    await commit(edge, "busy", "orders", 0)
    await _join(agent, "busy")
    async with by(edge, "root") as client:
        for kind, given in (("group-reset", {"to": "latest"}), ("group-delete", {"typed": "busy"})):
            said = (await send(client, kind, {"group": "busy", **given}, 409)).said
            assert "the group has members" in said
            assert "Do it" not in said
        await change(client, "group-delete", group="readers", typed="readers")
    assert list(edge.replica.state.groups) == ["busy"]


async def _join(agent: Agent, group: str) -> None:
    asked = cgh.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    answer = await agent.call("ConsumerGroupHeartbeat", asked, 1)
    assert answer.error_code == 0, answer


async def test_acls_come_and_go(closed: Both) -> None:
    edge, _ = closed
    given = {
        "principal": "User:ann",
        "host": "*",
        "permission": "Allow",
        "operation": "Read",
        "type": "Topic",
        "name": "orders",
        "pattern": "Literal",
    }
    async with by(edge, "root") as client:
        await change(client, "acl-create", **given)
        assert len(edge.replica.state.acls.acls) == 1
        assert "there is this ACL already" in (await send(client, "acl-create", given, 400)).said
        way = next(each for each in (await page(client, "/console/acls")).links if "acl-delete" in each)
        shown = await client.get(way)
        assert 'value="orders"' in shown.text
        assert "no network" in (await send(client, "acl-create", {**given, "host": "10.0.0.0/99"}, 409)).said
        await change(client, "acl-delete", **given)
    assert not edge.replica.state.acls.acls


async def test_a_subject_has_its_level(open_: Both) -> None:
    edge, _ = open_
    async with by(edge, "root") as client:
        registry = Registry(client)
        await registry.register("orders-value", A)
        await change(client, "subject-level", subject="orders-value", level="FULL")
        assert (await client.get("/config/orders-value")).json() == {"compatibilityLevel": "FULL"}
        assert (
            "is none of"
            in (await send(client, "subject-level", {"subject": "orders-value", "level": "ALL"}, 400)).said
        )


async def test_who_may_only_look_is_denied_each_change_in_words_and_who_may_nothing_sees_nothing(
    closed: Both,
) -> None:
    edge, _ = closed
    await edge.topic("orders")
    await edge.topic("gone")
    await edge.replica.propose(DeleteTopic(name="gone"))
    await commit(edge, "readers", "orders", 0)
    async with by(edge, "root") as client:
        await Registry(client).register("orders-value", A)
    for operation, kind, name in (
        (Operation.DESCRIBE, TOPIC, "orders"),
        (Operation.DESCRIBE_CONFIGS, TOPIC, "orders"),
        (Operation.DESCRIBE, GROUP, "readers"),
        (Operation.DESCRIBE, CLUSTER, "kafka-cluster"),
    ):
        await let(edge, "ann", operation, kind, name)
    assert set(DENIED) == set(CHANGES), "each kind is tried here"
    before = _seen(edge)
    async with by(edge, "ann") as client:
        for kind, given in DENIED.items():
            shown = await send(client, kind, given, 409)
            assert "User:ann may not" in shown.said, kind
            assert "Do it" not in shown.said, kind
        links = [
            each
            for path in (
                "/console/topics/orders",
                "/console/group?id=readers",
                "/console/acls",
                "/console/deleted-topics",
            )
            for each in (await page(client, path)).links
        ]
        assert not [each for each in links if "/change/" in each]
    async with by(edge, "sam") as client:
        for kind, given in DENIED.items():
            shown = await send(client, kind, given, 409 if kind == "topic-create" else 403)
            assert "User:sam may not" in shown.said, kind
    assert _seen(edge) == before


def _seen(edge: Edge) -> object:
    """What the changes in DENIED would change."""
    state = edge.replica.state
    topics = {each.name: (each.configs, len(each.partitions)) for each in state.topics.values()}
    groups = {name: list(each.offsets.offsets) for name, each in state.groups.items()}
    return repr((topics, list(state.deleted), groups, list(state.acls.acls), state.subjects.settings))


async def test_what_is_denied_meanwhile_is_not_done(closed: Both) -> None:
    edge, _ = closed
    await edge.topic("orders")
    await let(edge, "ann", Operation.ALTER, TOPIC, "orders")
    async with by(edge, "ann") as ann, by(edge, "root") as root:
        preview = await send(ann, "topic-partitions", {"topic": "orders", "count": "2"})
        acl = {**DENIED["acl-create"], "operation": "Alter", "type": "Topic", "name": "orders"}
        await change(root, "acl-delete", **acl)
        await let(edge, "ann", Operation.DESCRIBE, TOPIC, "orders")
        told = await send(ann, "topic-partitions", fields_of(preview), 409)
        assert "Not done" in told.said
        assert "this asks for Alter on the topic; an ACL has to allow it" in told.said
        await commit(edge, "readers", "orders", 0)
        await let(edge, "ann", Operation.READ, GROUP, "readers")
        told = await send(ann, "group-reset", {"group": "readers", "to": "latest"}, 409)
        assert "this asks for Read on the topic" in told.said, "of the group alone it is not enough"
    assert len(edge.replica.state.topics["orders"].partitions) == 1


async def test_fields_say_what_is_wrong_with_them(open_: Both) -> None:
    edge, _ = open_
    await edge.topic("orders")
    await commit(edge, "readers", "orders", 0)
    cases: tuple[tuple[str, dict[str, str], str, str], ...] = (
        ("topic-create", {"topic": "a/b", "partitions": "1"}, "topic", "a/b"),
        ("topic-create", {"topic": "orders", "partitions": "1"}, "topic", "exists"),
        ("topic-create", {"topic": "x", "partitions": "many"}, "partitions", "no whole number"),
        ("topic-create", {"topic": "x", "configs": "retention.ms"}, "configs", "name=value"),
        ("topic-create", {"topic": "x", "configs": "no.such=1"}, "configs", "no.such"),
        ("topic-partitions", {"topic": "orders", "count": "1"}, "count", "1"),
        ("topic-configs", {"topic": "orders", "value:retention.ms": "x"}, "value:retention.ms", "LONG"),
        ("records-delete", {"topic": "orders", "partition": "7"}, "partition", "0 to 0"),
        ("group-reset", {"group": "readers", "to": "time", "value": "soon"}, "value", "no time"),
        ("group-reset", {"group": "readers", "to": "back"}, "to", "none of these"),
        ("group-reset", {"group": "readers", "partitions": "0"}, "topic", "say which"),
        ("group-reset", {"group": "readers", "topic": "none"}, "topic", "not there"),
        ("acl-create", {**DENIED["acl-create"], "operation": "Any"}, "operation", "none of"),
        ("acl-create", {**DENIED["acl-create"], "name": ""}, "name", "missing"),
    )
    async with by(edge, "root") as client:
        for kind, given, field, words in cases:
            shown = await send(client, kind, given, 400)
            assert words in shown.said, (kind, given)
            marked = [a for _, a in shown.elements if a.get("aria-invalid") == "true"]
            assert [each["name"] for each in marked] == [field], (kind, given)
        nothing = await send(client, "topic-configs", {"topic": "orders"}, 400)
        assert "nothing in this form is changed" in nothing.said


async def test_the_audit_log_names_who_did_it(open_: Both) -> None:
    edge, agent = open_
    trail = agent.services.trail
    await edge.topic("orders")
    await commit(edge, "readers", "orders", 0)
    async with by(edge, "root") as client:
        await change(client, "topic-partitions", topic="orders", count="2")
        await change(client, "group-reset", group="readers", to="latest")
    told = {each.change.operation: each for each in trail.take(100) if each.kind == "CHANGE"}
    assert told["CreatePartitions"].actor.principal == "root"
    assert told["CreatePartitions"].actor.door == "HTTP"
    assert told["ResetOffsets"].change.resource == "readers"
    assert told["ResetOffsets"].outcome == "NONE"


def test_every_change_asks_for_something() -> None:
    for name, (_, row) in CHANGES.items():
        assert row.need is not None, name
        assert re.fullmatch("[a-z]+-[a-z]+", name)
