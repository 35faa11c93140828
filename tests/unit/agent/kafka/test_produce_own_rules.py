"""Rules of a topic's own (`floe.rules`): what becomes of records is the values' policy."""

from __future__ import annotations

import asyncio
import json

import pytest

from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import create_topics as ct
from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_bound_meanwhile import HeldPuts, catch_up
from tests.unit.agent.kafka.test_followed_subjects import ONE, TWO, VALIDATION, framed, register, told
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce, values
from tests.unit.agent.kafka.test_produce_quarantine import alter, kept
from tests.unit.agent.kafka.test_produce_rules import bind, figures, policy
from tests.unit.agent.rig import Agent, batch
from tests.unit.agent.rules.test_rules_pool import BAD, GOOD
from tests.unit.coordination.conftest import until
from tests.unit.schema import samples
from tests.unit.schema.test_own_rules import ENDLESS, OF_TYPES, UNUSABLE

RETRY = Code.NOT_ENOUGH_REPLICAS
MONTH = json.dumps([{"id": "month", "expression": "value.month < 13", "message": "a year has twelve"}])


async def rules(agent: Agent, text: str, policy: str = "reject", topic: str = "t") -> tuple[int, str | None]:
    """Set rules and policy with one request."""
    return await alter(agent, topic, floe_rules=text, floe_value_rules=policy)


async def test_a_topic_that_is_bound_to_nothing(agent: Agent) -> None:
    await create(agent)
    assert await rules(agent, "has(this.key) && headers['source'] == b'web'") == (0, None)
    good = NewRecord(1, b"k", None, [("source", b"web")])
    assert (await produce(agent, build([good, good]))).error_code == 0
    others = NewRecord(1, None, b"", [("source", b"web")]), NewRecord(1, b"k", b""), good
    code, errors = told(await produce(agent, build(others)))
    assert code == Code.INVALID_RECORD
    assert errors == [
        (0, "record: does not hold: has(this.key) && headers['source'] == b'web' (rule floe.rules)"),
        (1, 'record: cannot be evaluated: Key not found in map : "source" (rule floe.rules)'),
    ]
    assert (await fetch(agent, 0)).high_watermark == 2
    assert figures(agent) == {
        "floe_rules_records_total": 5,
        "floe_rules_bad_records_total": 2,
        "floe_rules_broken_total/record/floe.rules": 2,
    }


async def test_without_a_policy_they_are_not_looked_at(agent: Agent) -> None:
    await create(agent)
    assert await alter(agent, floe_rules="size(value) > 3", floe_key_rules="reject") == (0, None)
    tried = agent.services.rules.pids
    assert (await produce(agent, batch(b"a"))).error_code == 0
    assert figures(agent) == {}
    assert await alter(agent, floe_value_rules="observe") == (0, None)
    assert (await produce(agent, batch(b"a"))).error_code == 0
    (seen,) = agent.services.rule_figures.newest
    assert seen.message == "record 0: record: does not hold: size(value) > 3 (rule floe.rules)"
    assert len(tried) == 1


async def test_beside_the_rules_of_the_message(agent: Agent) -> None:
    """Each of a record's messages has its rules, the record its own; keys without policy are read too."""
    await create(agent)
    await bind(agent)
    await bind(agent, role=BindSchema.KEY)
    own = [
        {"id": "month", "expression": "value.month < 13"},
        {"id": "same", "expression": "key.month <= value.month"},
    ]
    assert await rules(agent, json.dumps(own)) == (0, None)
    assert (await produce(agent, build([NewRecord(1, GOOD, GOOD)]))).error_code == 0
    code, errors = told(await produce(agent, build([NewRecord(1, GOOD, GOOD), NewRecord(1, BAD, BAD)])))
    assert code == Code.INVALID_RECORD
    assert [(index, text.partition(":")[0]) for index, text in errors] == [(1, "value"), (1, "record")]
    assert errors[1][1] == "record: does not hold: value.month < 13 (rule month)"
    code, errors = told(await produce(agent, build([NewRecord(1, BAD, GOOD)])))
    assert errors == [(0, "record: does not hold: key.month <= value.month (rule same)")]
    counted = {name: count for name, count in figures(agent).items() if "broken" in name}
    assert counted == {
        "floe_rules_broken_total/record/month": 1,
        "floe_rules_broken_total/record/same": 1,
        "floe_rules_broken_total/value/flight.route": 1,
        "floe_rules_broken_total/value/int32.gte_lte": 1,
    }


async def test_messages_without_rules_framed_ones_and_nulls(agent: Agent) -> None:
    await create(agent)
    await bind(agent, samples.FLIGHTS, tombstones=True)
    assert await rules(agent, MONTH) == (0, None)
    schema_id = agent.services.replica.state.topics["t"].value_schema_id or 0
    sent = build(
        [
            NewRecord(1, b"k", each)
            for each in (GOOD, framed(schema_id, BAD), None, BAD, framed(schema_id, GOOD))
        ]
    )
    code, errors = told(await produce(agent, sent))
    assert code == Code.INVALID_RECORD
    assert errors == [(at, "record: a year has twelve (rule month)") for at in (1, 3)]


async def test_each_version_of_a_followed_subject_is_what_it_is(agent: Agent) -> None:
    await create(agent, **VALIDATION)
    first, second = await register(agent, ONE), await register(agent, TWO)
    assert await rules(agent, "value.id > 6u") == (0, None)
    good = framed(first), framed(second, b"\x08\x07\x12\x01r")
    assert (await produce(agent, batch(*good))).error_code == 0
    code, errors = told(
        await produce(agent, batch(*good, framed(first, b"\x08\x06"), framed(second, b"\x08\x05")))
    )
    assert (code, [index for index, _ in errors]) == (Code.INVALID_RECORD, [2, 3])
    assert await alter(agent, floe_rules="value.remark == 'r'") == (0, None), "the newest version has it"
    code, errors = told(await produce(agent, batch(*good)))
    assert errors == [(0, "record: cannot be evaluated: no_such_field : remark (rule floe.rules)")]


async def test_bad_records_are_kept_apart_with_rule_and_text(agent: Agent) -> None:
    await create(agent)
    assert await rules(agent, '[{"id": "short", "expression": "size(value) < 3"}]', "quarantine") == (0, None)
    answer = await produce(agent, batch(b"a", b"long", b"b"))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert values(await fetch(agent, 0)) == [b"a", b"b"]
    (record,) = await kept(agent)
    assert (record.value, record.batch_index, record.policy) == (
        b"long",
        1,
        "record=quarantine value=quarantine",
    )
    (violation,) = record.violations
    assert (violation.role, violation.field, violation.rule) == ("record", "", "short")
    assert violation.text == "does not hold: size(value) < 3"
    assert not record.HasField("value_schema")


@pytest.mark.parametrize(("expression", "why"), UNUSABLE + OF_TYPES)
async def test_what_cannot_be_used_is_not_set(agent: Agent, expression: str, why: str) -> None:
    await create(agent)
    await bind(agent)
    code, message = await rules(agent, json.dumps([{"id": "r", "expression": expression}]))
    assert code == Code.INVALID_CONFIG
    assert (message or "").startswith(f"floe.rules: rule r: {why}")
    assert "floe.rules" not in agent.services.replica.state.topics["t"].configs


async def test_by_any_request_that_sets_configs(agent: Agent) -> None:
    """Those of a topic that is made are tried as far as they can be: it is bound afterwards."""
    await create(agent)
    replace = ac.AlterConfigsRequest(
        resources=[ac.AlterConfigsResource(2, "t", [ac.AlterableConfig("floe.rules", "valeu.a > 1")])]
    )
    for validate_only in (True, False):
        replace.validate_only = validate_only
        answer = await agent.call("AlterConfigs", replace, 1)
        assert answer.responses[0].error_code == Code.INVALID_CONFIG
        assert "valeu is nothing" in answer.responses[0].error_message
    for text, code in (
        ("valeu.a > 1", Code.INVALID_CONFIG),
        ("value.a > 1", Code.NONE),
        ("[{}]", Code.INVALID_CONFIG),
    ):
        wanted = ct.CreatableTopic(name=f"new-{code}", num_partitions=1, replication_factor=-1)
        wanted.configs = [ct.CreatableTopicConfig("floe.rules", text)]
        made = await agent.call("CreateTopics", ct.CreateTopicsRequest(topics=[wanted]), 7)
        assert made.topics[0].error_code == code, made.topics[0].error_message


async def test_an_expression_that_eats_memory_ends_a_worker_and_is_not_set(start: StartAgent) -> None:
    agent = await start(rules={"worker_bytes_max": 256 << 20})
    await create(agent)
    doubled = "size(s) > 3"
    for _ in range(6):
        doubled = f"[{' + '.join('s' * 10)}].map(s, {doubled})[0]"
    code, message = await rules(agent, f"['{'a' * 2_000}'].map(s, {doubled})[0]")
    assert code == Code.INVALID_CONFIG
    assert "the process that evaluates rules ended 2 times over this" in (message or "")
    assert await rules(agent, "size(value) < 3") == (0, None)
    assert (await produce(agent, batch(b"a"))).error_code == 0


async def test_a_rule_that_has_become_endless_on_some_records_stops_at_them(start: StartAgent) -> None:
    """It holds on what it was tried on."""
    agent = await start(rules={"batch_s_max": 2.0})
    await create(agent)
    assert await rules(agent, f"size(value) < 3 || {ENDLESS}") == (0, None)
    assert (await produce(agent, batch(b"a"))).error_code == 0
    _, errors = told(await produce(agent, batch(b"a", b"long")))
    assert errors == [(1, "record: cannot be evaluated: Iteration budget exceeded (rule floe.rules)")]
    answer = await produce(agent, batch(*[b"long"] * 5_000, timestamp=1))
    assert answer.error_code == Code.INVALID_RECORD
    assert (await produce(agent, batch(b"a"))).error_code == 0


async def test_rules_set_through_another_agent_count_from_their_place_in_the_log(start: StartAgent) -> None:
    """On a topic that is bound to nothing."""
    one, other = await start("a"), await start("b")
    await create(one)
    await policy(one, "reject")
    await catch_up(one)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(b"long")))
    await until(lambda: held.begun == 1)
    assert await alter(other, floe_rules="size(value) < 3") == (0, None)
    held.let_go()
    answer = await sent
    assert (answer.error_code, answer.base_offset) == (RETRY, -1), "judged by no rules"
    assert (await produce(one, batch(b"long"))).error_code == Code.INVALID_RECORD
    assert (await fetch(one, 0)).high_watermark == 0


async def test_nobody_is_refused_by_rules_that_were_over_when_his_records_came(start: StartAgent) -> None:
    one, other = await start("a"), await start("b")
    await create(one)
    assert await rules(one, "size(value) < 3") == (0, None)
    assert await alter(other, floe_rules="size(value) < 9") == (0, None)
    answer = await produce(one, batch(b"long"))
    assert answer.error_code in (Code.NONE, RETRY), "sent again it is judged by the rules of now"
    assert (await produce(one, batch(b"long"))).error_code == Code.NONE


async def test_they_change_under_load_and_nothing_bad_is_kept_behind_them(agent: Agent) -> None:
    await create(agent)

    async def load() -> list[int]:
        connection, found = Agent(agent.services, agent.log), []
        for _ in range(25):
            found.append((await produce(connection, batch(b"long"))).error_code)
        return found

    running = [asyncio.ensure_future(load()) for _ in range(3)]
    for text, what in (
        ("size(value) < 3", "reject"),
        ("size(value) < 9", "reject"),
        ("size(value) < 3", "reject"),
    ):
        assert await rules(agent, text, what) == (0, None)
        await asyncio.sleep(0.05)
    codes = [each for one in await asyncio.gather(*running) for each in one]
    assert set(codes) <= {Code.NONE, Code.INVALID_RECORD, RETRY}
    assert (await fetch(agent, 0)).high_watermark == codes.count(Code.NONE)
    assert (await produce(agent, batch(b"long"))).error_code == Code.INVALID_RECORD


async def test_a_batch_of_many_records_is_shared_by_workers(start: StartAgent) -> None:
    agent = await start(rules={"workers": 3})
    await create(agent)
    assert await rules(agent, "value != b'bad'") == (0, None)
    code, errors = told(await produce(agent, batch(*[b"good"] * 5_000, b"bad")))
    assert (code, [index for index, _ in errors]) == (Code.INVALID_RECORD, [5_000])
    assert len(agent.services.rules.pids) == 2
