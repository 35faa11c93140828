"""Rules of protovalidate where a topic follows a subject: those of the version that a record names."""

from __future__ import annotations

import pytest

from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done
from schema import followed, framing
from tests.unit.agent.kafka.test_followed_subjects import (
    ONE,
    VALIDATION,
    configure,
    framed,
    register,
    told,
)
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce
from tests.unit.agent.kafka.test_produce_rules import figures, policy
from tests.unit.agent.rig import Agent, batch

RULED = """syntax = "proto3"; package shop; import "buf/validate/validate.proto";
  message Order { uint64 id = 1 [(buf.validate.field).uint64.gt = 6]; string remark = 2; }
  message Note { string text = 1; }
  message Outer { message Inner { string name = 1 [(buf.validate.field).string.min_len = 3]; } }"""
REJECT = {**VALIDATION, "floe_value_rules": "reject"}
SMALL, LARGE = b"\x08\x06", b"\x08\x07"  # ids
BROKEN = "value.id: must be greater than 6 (rule uint64.gt)"


async def test_each_record_is_judged_by_the_rules_of_the_version_that_it_names(agent: Agent) -> None:
    await create(agent, **REJECT)
    first, second = await register(agent, ONE), await register(agent, RULED)
    assert (await produce(agent, batch(framed(first, SMALL), framed(second, LARGE)))).error_code == 0
    answer = told(await produce(agent, batch(framed(first, SMALL), framed(second, SMALL))))
    assert answer == (Code.INVALID_RECORD, [(1, BROKEN)])
    assert (await fetch(agent, 0)).high_watermark == 2


async def test_versions_without_rules_start_no_worker(agent: Agent) -> None:
    await create(agent, **REJECT)
    first = await register(agent, ONE)
    assert (await produce(agent, batch(framed(first, SMALL)))).error_code == 0
    assert agent.services.rules.pids == []
    assert figures(agent) == {}


async def test_other_messages_of_a_file_have_their_own_rules(agent: Agent) -> None:
    """By the indexes of the frame, nested ones too; what has no rules is not evaluated."""
    await create(agent, **REJECT)
    schema_id = await register(agent, RULED)
    note = framing.prefix(schema_id, (1,)) + b"\x0a\x01x"
    inner = framing.prefix(schema_id, (2, 0)) + b"\x0a\x02ab"
    answer = told(await produce(agent, batch(note, inner, framed(schema_id, LARGE))))
    assert answer == (
        Code.INVALID_RECORD,
        [(1, "value.name: must be at least 3 characters (rule string.min_len)")],
    )


async def test_a_version_that_is_registered_with_rules_is_known_to_all_that_named_none(agent: Agent) -> None:
    """Its records come in one batch with those that were looked up long before."""
    await create(agent, **REJECT)
    first = await register(agent, ONE)
    assert (await produce(agent, batch(framed(first, SMALL)))).error_code == 0
    second = await register(agent, RULED)
    answer = told(await produce(agent, batch(*[framed(first, SMALL)] * 5000, framed(second, SMALL))))
    assert answer == (Code.INVALID_RECORD, [(5000, BROKEN)])


async def test_what_was_forgotten_between_two_looks_is_looked_up_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed, "KINDS_MAX", 1)
    await create(agent, **REJECT)
    first, second = await register(agent, ONE), await register(agent, RULED)
    for _ in range(3):
        assert (await produce(agent, batch(framed(first, SMALL)))).error_code == 0
        answer = told(await produce(agent, batch(framed(second, SMALL))))
        assert answer == (Code.INVALID_RECORD, [(0, BROKEN)])


async def test_keys_follow_too(agent: Agent) -> None:
    from objectstore.batch import NewRecord, build

    await create(agent, confluent_key_schema_validation="true", floe_key_rules="reject")
    schema_id = await register(agent, RULED, "t-key")
    answer = told(await produce(agent, build([NewRecord(1, framed(schema_id, SMALL), b"")])))
    assert answer == (Code.INVALID_RECORD, [(0, BROKEN.replace("value", "key"))])


async def test_observe_keeps_and_tells(agent: Agent) -> None:
    await create(agent, **VALIDATION)
    schema_id = await register(agent, RULED)
    await policy(agent, "observe")
    assert (await produce(agent, batch(framed(schema_id, SMALL)))).error_code == 0
    (seen,) = agent.services.rule_figures.newest
    assert seen.message == f"record 0: {BROKEN}"
    await configure(agent, floe_value_rules="off")
    assert (await produce(agent, batch(framed(schema_id, SMALL)))).error_code == 0
    assert figures(agent)["floe_rules_records_total"] == 1


async def test_a_binding_of_floe_s_own_to_a_subject(agent: Agent) -> None:
    await create(agent)
    schema_id = await register(agent, RULED, "orders")
    bound = BindSchema(topic="t", subject="orders")
    assert isinstance(await agent.services.replica.propose(bound), Done)
    await policy(agent, "reject")
    assert told(await produce(agent, batch(framed(schema_id, SMALL))))[1] == [(0, BROKEN)]
