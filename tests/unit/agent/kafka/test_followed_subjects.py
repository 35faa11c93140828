"""Producers to topics that follow subjects: what is refused, by every agent alike and at any time."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from coordination.commands import AlterTopicConfigs, BindSchema, DeleteSchemaVersions, RegisterSchema
from coordination.kafka_codes import Code
from coordination.state.types import Done
from schema import framing
from schema.followed import FollowedPart
from schema.registry import protobuf
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_bound_meanwhile import HeldPuts, catch_up
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce, values
from tests.unit.agent.rig import Agent, batch
from tests.unit.coordination.conftest import until

VALIDATION = {"confluent_value_schema_validation": "true"}
ONE = 'syntax = "proto3"; package shop; message Order { uint64 id = 1; }'
TWO = 'syntax = "proto3"; package shop; message Order { uint64 id = 1; string remark = 2; }'
RETRY = Code.NOT_ENOUGH_REPLICAS


async def register(agent: Agent, text: str, subject: str = "t-value") -> int:
    """Register a schema through this agent; its id."""
    replica = agent.services.replica
    message = RegisterSchema(
        subject=subject,
        schema_type="PROTOBUF",
        text=text,
        canonical=protobuf.parse(text, {}).canonical,
        judged_revision=1 << 40,
    )
    done = await replica.propose(message)
    assert isinstance(done, Done)
    placed: Any = done.value
    return int(placed[0])


async def delete(agent: Agent, version: int, subject: str = "t-value", *, permanent: bool = False) -> None:
    message = DeleteSchemaVersions(subject=subject, version=[version], permanent=permanent)
    assert isinstance(await agent.services.replica.propose(message), Done)


def framed(schema_id: int, payload: bytes = b"\x08\x07") -> bytes:
    return framing.prefix(schema_id, (0,)) + payload


def told(answer: Any) -> tuple[int, list[tuple[int, str]]]:
    """The error, and what is said of each record."""
    errors = [(each.batch_index, each.batch_index_error_message) for each in answer.record_errors or ()]
    return answer.error_code, errors


async def test_records_of_the_topic_s_subject_are_taken_by_any_agent(start: StartAgent) -> None:
    """A version is named as soon as it is registered, wherever that was."""
    one, other = await start("a"), await start("b")
    await create(one, **VALIDATION)
    first = await register(one, ONE)
    assert (await produce(other, batch(framed(first)))).error_code == 0
    second = await register(other, TWO)
    newer = framed(second, b"\x08\x07\x12\x01r")
    assert (await produce(one, batch(newer, framed(first)))).error_code == 0
    assert values(await fetch(one, 0)) == [framed(first), newer, framed(first)]
    assert told(await produce(one, batch(framed(first, b"\x12\x01r"), framed(second)))) == (
        Code.INVALID_RECORD,
        [(0, "value: field `2`: shop.Order has no field number 2")],
    )


async def test_what_does_not_belong_to_the_subject_is_refused(agent: Agent) -> None:
    await create(agent, **VALIDATION)
    await register(agent, ONE)
    foreign = await register(agent, TWO, "u-value")
    code, errors = told(await produce(agent, batch(framed(foreign), framed(99), b"\x08\x07")))
    assert (code, errors[:2]) == (
        Code.INVALID_RECORD,
        [
            (
                0,
                f"value: Confluent frame names schema {foreign}, which is a version of u-value, and not of "
                "subject t-value: register it there first",
            ),
            (
                1,
                "value: Confluent frame names schema 99, which is registered nowhere, and no version of "
                "subject t-value: register it there first",
            ),
        ],
    )
    assert errors[2][1].startswith("value: has no Confluent frame")
    assert (await fetch(agent, 0)).high_watermark == 0


@pytest.mark.parametrize("change", ["deleted", "validated", "strategy"])
async def test_changed_through_another_agent_between_the_look_and_the_commit(
    start: StartAgent, change: str
) -> None:
    """Refused, to be sent again; then it is judged by what holds then."""
    one, other = await start("a"), await start("b")
    configs = VALIDATION if change != "validated" else {}
    await create(one, **configs)
    schema_id = await register(one, ONE, "t-value" if change != "validated" else "u-value")
    await catch_up(one)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(framed(schema_id))))
    await until(lambda: held.begun == 1)
    if change == "deleted":
        await delete(other, 1)
        await delete(other, 1, permanent=True)
    else:
        await configure(
            other,
            confluent_value_schema_validation="true",
            confluent_value_subject_name_strategy="io.confluent.kafka.serializers.subject.RecordNameStrategy",
        )
    held.let_go()
    assert (await sent).error_code == RETRY
    again = await produce(one, batch(framed(schema_id)))
    assert again.error_code == Code.INVALID_RECORD
    assert (await fetch(one, 0)).high_watermark == 0


async def configure(agent: Agent, **configs: str) -> None:
    message = AlterTopicConfigs(topic="t")
    for name, value in configs.items():
        message.changes.add(name=name.replace("_", "."), value=value)
    assert isinstance(await agent.services.replica.propose(message), Done)


async def test_a_version_that_is_registered_meanwhile_disturbs_nobody(start: StartAgent) -> None:
    one, other = await start("a"), await start("b")
    await create(one, **VALIDATION)
    schema_id = await register(one, ONE)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(framed(schema_id))))
    await until(lambda: held.begun == 1)
    await register(other, TWO)
    held.let_go()
    assert (await sent).error_code == 0


async def test_an_agent_without_the_log_says_try_again_and_not_that_the_record_is_bad(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not know may have been registered through another one."""
    await create(agent, **VALIDATION)
    schema_id = await register(agent, ONE)
    assert (await produce(agent, batch(framed(schema_id)))).error_code == 0

    async def no_barrier(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(agent.services.replica, "barrier", no_barrier)
    assert (await produce(agent, batch(framed(99)))).error_code == RETRY
    assert (await produce(agent, batch(framed(schema_id)))).error_code == 0, "what it knows it takes"


async def test_a_binding_that_stays_at_one_version(agent: Agent) -> None:
    await create(agent)
    first, second = await register(agent, ONE, "s"), await register(agent, TWO, "s")
    bound = await agent.services.replica.propose(BindSchema(topic="t", subject="s", subject_version=2))
    assert isinstance(bound, Done)
    assert (await produce(agent, batch(framed(second)))).error_code == 0
    code, errors = told(await produce(agent, batch(framed(first))))
    assert (code, "not of version 2 of subject s" in errors[0][1]) == (Code.INVALID_RECORD, True)
    own = framed(int(str(bound.value)))
    code, errors = told(await produce(agent, batch(own)))
    assert (code, "is a topic's binding" in errors[0][1]) == (Code.INVALID_RECORD, True)


@pytest.mark.parametrize("seed", range(3))
async def test_agents_that_register_and_delete_beside_producers(start: StartAgent, seed: int) -> None:
    """Whatever is stored named a version that was live at its place in the log (its span says: judged)."""
    one, other = await start("a"), await start("b")
    await create(one, partitions=1, **VALIDATION)
    draw, live, ever = random.Random(seed), {}, {}

    async def change() -> None:
        for number in range(12):
            text = ONE.replace("Order {", f"Order {{ string f{number} = {number + 2};")
            agent = draw.choice((one, other))
            schema_id = await register(agent, text)
            live[schema_id] = ever[schema_id] = number + 1
            await asyncio.sleep(0)
            if draw.random() < 0.6:
                gone = draw.choice([*live])
                await delete(agent, live.pop(gone))

    async def send(agent: Agent) -> list[tuple[int, int]]:
        answers = []
        for _ in range(40):
            known = draw.choice([*ever] or [99])
            answer = await produce(agent, batch(framed(known)))
            answers.append((known, answer.error_code))
            await asyncio.sleep(0)
        return answers

    _, *answers = await asyncio.gather(change(), send(one), send(other))
    codes = {code for each in answers for _, code in each}
    assert codes <= {0, int(Code.INVALID_RECORD), int(RETRY)}
    assert 0 in codes
    for agent in (one, other):
        await catch_up(agent)
        for known in ever:
            code = (await produce(agent, batch(framed(known)))).error_code
            assert code == (0 if known in live else Code.INVALID_RECORD)
    stored = sum(code == 0 for each in answers for _, code in each) + 2 * len(live)
    assert (await fetch(one, 0)).high_watermark == stored


async def test_a_defect_with_a_schema_is_its_topic_s(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection and what else is on it go on."""
    await create(agent, **VALIDATION)
    await create(agent, "open")
    record = batch(framed(await register(agent, ONE)))

    def settle(*_: object) -> str | None:
        raise RecursionError

    with monkeypatch.context() as patched:
        patched.setattr(FollowedPart, "settle", settle)
        answer = await produce(agent, record)
        assert answer.error_code == Code.UNKNOWN_SERVER_ERROR
        assert answer.error_message == "The records cannot be judged by the topic's schema: RecursionError"
        assert (await produce(agent, record, name="open")).error_code == 0
    assert (await produce(agent, record)).error_code == 0
