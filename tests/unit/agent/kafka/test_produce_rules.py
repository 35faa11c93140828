"""Records that break rules of protovalidate: what becomes of them is a policy of the topic."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, BindSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done, Refused
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_bound_meanwhile import HeldPuts, catch_up
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce
from tests.unit.agent.rig import Agent, batch
from tests.unit.agent.rules.test_rules_pool import BAD, GOOD, MINUTES
from tests.unit.coordination.conftest import until
from tests.unit.schema import samples

CHANGE = AlterTopicConfigs.Change
RETRY = Code.NOT_ENOUGH_REPLICAS
RULED = samples.RULED_FLIGHTS


async def bind(
    agent: Agent, source: bytes = RULED, message: str = "nyc.Flight", topic: str = "t", **more: Any
) -> None:
    schema = BindSchema(topic=topic, descriptor_set=samples.descriptor_set(source), message=message, **more)
    assert isinstance(await agent.services.replica.propose(schema), Done)


async def policy(agent: Agent, value: str, role: str = "value", topic: str = "t") -> Done | Refused:
    """Set what becomes of records that break rules."""
    change = AlterTopicConfigs.Change(
        name=f"floe.{role}.rules", operation=AlterTopicConfigs.Change.SET, value=value
    )
    answer: Any = await agent.services.replica.propose(AlterTopicConfigs(topic=topic, changes=[change]))
    return answer


def beside(agent: Agent) -> Agent:
    """The same agent by another connection."""
    return Agent(agent.services, agent.log)


def figures(agent: Agent, topic: str = "t") -> Mapping[str, float]:
    """The metrics of rules of a topic, by name and further labels."""
    return {
        "/".join([sample.name, *(v for k, v in sample.labels.items() if k != "topic")]): sample.value
        for metric in agent.services.metrics.registry.collect()
        for sample in metric.samples
        if sample.name.startswith("floe_rules_") and sample.name.endswith("_total")
        and sample.labels.get("topic") == topic
    }  # fmt: skip


async def test_without_a_policy_rules_are_not_looked_at(agent: Agent) -> None:
    await create(agent)
    await bind(agent)
    assert (await produce(agent, batch(GOOD, BAD))).error_code == Code.NONE
    assert figures(agent) == {}
    assert agent.services.rules.pids == []


@pytest.mark.parametrize("name", ["floe.value.rules", "floe.key.rules"])
async def test_what_is_no_policy_is_refused(agent: Agent, name: str) -> None:
    await create(agent)
    answer = await policy(agent, "maybe", name.split(".")[1])
    assert isinstance(answer, Refused)
    assert answer.message == (
        f"Invalid value maybe for configuration {name}: String must be one of: off, observe, reject, "
        "quarantine"
    )


async def test_a_message_without_rules_costs_nothing_whatever_the_policy(agent: Agent) -> None:
    await create(agent)
    await bind(agent, samples.FLIGHTS)
    await policy(agent, "reject")
    assert (await produce(agent, batch(GOOD, BAD))).error_code == Code.NONE
    assert agent.services.rules.pids == []


async def test_records_that_surely_obey_need_no_worker(agent: Agent) -> None:
    """They are counted all the same; of a batch with others those are told by their places."""
    await create(agent)
    await bind(agent)
    await policy(agent, "observe")
    assert (await produce(agent, batch(*[GOOD] * 40))).error_code == Code.NONE
    assert agent.services.rules.pids == []
    assert figures(agent) == {"floe_rules_records_total": 40}
    mixed = [BAD if at in (7, 8, 39) else GOOD for at in range(40)]
    assert (await produce(agent, batch(*mixed))).error_code == Code.NONE
    assert figures(agent)["floe_rules_bad_records_total"] == 3
    assert figures(agent)["floe_rules_records_total"] == 80
    assert agent.services.rule_figures.newest[0].message.startswith("record 7: value")
    await policy(agent, "reject")
    answer = await produce(agent, batch(*mixed))
    assert [each.batch_index for each in answer.record_errors] == [7, 8, 39]


async def test_reject_names_each_record_field_and_rule(agent: Agent) -> None:
    await create(agent)
    await bind(agent)
    await policy(agent, "reject")
    assert (await produce(agent, batch(GOOD, GOOD))).error_code == Code.NONE
    answer = await produce(agent, batch(GOOD, BAD, GOOD))
    assert answer.error_code == Code.INVALID_RECORD
    ((index, text),) = [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors]
    assert index == 1
    assert (
        "value.month: must be greater than or equal to 1 and less than or equal to 12 (rule int32.gte_lte)"
        in text
    )
    assert answer.error_message == f"1 records break rules; record 1: {text}"
    assert (await fetch(agent, 0)).high_watermark == 2
    assert agent.services.refusals.newest[0].code == "INVALID_RECORD"
    assert figures(agent) == {
        "floe_rules_records_total": 5,
        "floe_rules_bad_records_total": 1,
        "floe_rules_broken_total/value/flight.route": 1,
        "floe_rules_broken_total/value/int32.gte_lte": 1,
    }


async def test_observe_keeps_counts_and_tells(agent: Agent) -> None:
    await create(agent)
    await bind(agent)
    await policy(agent, "observe")
    assert (await produce(agent, batch(GOOD, BAD))).error_code == Code.NONE
    assert (await fetch(agent, 0)).high_watermark == 2
    (seen,) = agent.services.rule_figures.newest
    assert (seen.topic, seen.partition, seen.records, seen.client_id) == ("t", 0, 1, "test")
    assert seen.message.startswith("record 1: value: origin and dest must differ (rule flight.route)")
    assert figures(agent)["floe_rules_bad_records_total"] == 1


async def test_keys_and_values_each_have_their_policy(agent: Agent) -> None:
    from objectstore.batch import NewRecord, build

    await create(agent)
    await bind(agent)
    await bind(agent, role=BindSchema.KEY)
    await policy(agent, "reject", "key")
    await policy(agent, "observe")
    bad_value, bad_key = build([NewRecord(1, GOOD, BAD)]), build([NewRecord(1, BAD, BAD)])
    assert (await produce(agent, bad_value)).error_code == Code.NONE
    answer = await produce(agent, bad_key)
    assert answer.error_code == Code.INVALID_RECORD
    assert [each.batch_index_error_message.split(":")[0] for each in answer.record_errors] == ["key"]


async def test_rules_that_cannot_be_used(agent: Agent) -> None:
    source = b"""syntax = "proto3"; package t; import "buf/validate/validate.proto"; message M {
      int32 month = 2 [(buf.validate.field).cel = { id: "c.id", expression: "this >>> 1" }]; }"""
    await create(agent)
    await bind(agent, source, "t.M")
    await policy(agent, "reject")
    answer = await produce(agent, batch(b""))
    assert answer.error_code == Code.INVALID_RECORD
    assert (
        "Rules of topic t: the rules of t.M do not compile: failed to compile expression c.id"
        in answer.error_message
    )
    await policy(agent, "observe")
    assert (await produce(agent, batch(b""))).error_code == Code.NONE
    assert figures(agent)["floe_rules_failed_total"] == 2
    assert agent.services.rule_figures.newest[0].records == 0


async def test_rules_that_take_too_long_hold_up_their_topic_only(start: StartAgent) -> None:
    agent = await start(rules={"batch_s_max": 2.0})
    for name, source, message in (("t", RULED, "nyc.Flight"), ("costly", samples.COSTLY, "costly.Costly")):
        if name == "t":
            await create(agent)
        else:
            await create(agent, name)
        await bind(agent, source, message, name)
        await policy(agent, "reject", topic=name)
    warm = produce(agent, batch(GOOD)), produce(beside(agent), batch(b""), name="costly")
    assert {each.error_code for each in await asyncio.gather(*warm)} == {Code.NONE}
    held = asyncio.ensure_future(produce(beside(agent), batch(MINUTES), name="costly"))
    await until(lambda: agent.services.rules.sizes["rules_bytes"] > 0)
    assert (await produce(agent, batch(BAD))).error_code == Code.INVALID_RECORD
    assert not held.done()
    answer = await held
    while answer.error_code == Code.NOT_ENOUGH_REPLICAS:  # its worker got no processor: nobody is refused
        answer = await produce(beside(agent), batch(MINUTES), name="costly")
    assert answer.error_code == Code.INVALID_RECORD
    assert "not evaluated within 2 s (rules.batch_s_max)" in answer.error_message
    assert (await produce(agent, batch(b""), name="costly")).error_code == Code.NONE


async def test_what_waits_too_long_is_sent_again(start: StartAgent) -> None:
    agent = await start(rules={"batch_s_max": 2.0, "workers": 1, "wait_ms_max": 100})
    await create(agent)
    await bind(agent, samples.COSTLY, "costly.Costly")
    await policy(agent, "reject")
    held = asyncio.ensure_future(produce(beside(agent), batch(MINUTES)))
    await until(lambda: agent.services.rules.sizes["rules_bytes"] > 0)
    answer = await produce(agent, batch(b""), index=1)
    assert answer.error_code == RETRY
    assert answer.error_message.startswith("Nothing was written: no worker had time for rules of topic t")
    await held


@pytest.mark.parametrize("cluster", [False, True])
async def test_a_policy_set_through_another_agent_counts_from_its_place_in_the_log(
    start: StartAgent, cluster: bool
) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    await bind(one)
    await catch_up(one)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(BAD)))
    await until(lambda: held.begun == 1)
    if cluster:
        changes = [CHANGE(name="floe.value.rules", operation=CHANGE.SET, value="reject")]
        assert isinstance(await other.services.replica.propose(AlterClusterConfigs(changes=changes)), Done)
    else:
        assert isinstance(await policy(other, "reject"), Done)
    held.let_go()
    answer = await sent
    assert (answer.error_code, answer.base_offset) == (RETRY, -1), "judged by the policy before"
    assert (await produce(one, batch(BAD))).error_code == Code.INVALID_RECORD
    assert (await fetch(one, 0)).high_watermark == 0


async def test_policies_change_under_load_and_nothing_bad_is_kept_behind_reject(agent: Agent) -> None:
    await create(agent)
    await bind(agent)

    async def load() -> list[tuple[int, int]]:
        connection, found = beside(agent), []
        for _ in range(25):
            answer = await produce(connection, batch(BAD))
            found.append((answer.error_code, answer.base_offset))
        return found

    running = [asyncio.ensure_future(load()) for _ in range(3)]
    for value in ("observe", "reject", "off", "reject"):
        await asyncio.sleep(0.05)
        await policy(agent, value)
    answers = [each for one in await asyncio.gather(*running) for each in one]
    assert {code for code, _ in answers} <= {Code.NONE, Code.INVALID_RECORD, RETRY}
    kept = sum(code == Code.NONE for code, _ in answers)
    assert (await fetch(agent, 0)).high_watermark == kept
    assert (await produce(agent, batch(BAD))).error_code == Code.INVALID_RECORD
