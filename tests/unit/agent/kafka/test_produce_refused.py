"""A record that is refused leaves a trace: in the log, in the metrics and in /status."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.net.wire.errors import WireError
from agent.net.wire.generated import produce as p
from agent.telemetry.by_topic import OTHERS, TOPICS_MAX
from agent.telemetry.metrics import Metrics
from agent.telemetry.refusals import KINDS_MAX, NEWEST_MAX, TEXT_MAX, TOLD_AGAIN_S, Refusals
from coordination.clock import ManualClock
from coordination.kafka_codes import Code
from tests.unit.agent.kafka.test_bound_meanwhile import GOOD, bind
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, produce, values
from tests.unit.agent.rig import Agent, batch


def counted(metrics: Metrics, topic: str, code: str) -> float:
    value = metrics.registry.get_sample_value("floe_produce_rejected_total", {"topic": topic, "reason": code})
    return value or 0.0


def told(lines: list[Any]) -> list[Any]:
    return [each for each in lines if each["event"] == "records are refused"]


async def test_json_in_a_bound_topic_is_told_counted_and_listed(agent: Agent) -> None:
    await create(agent)
    await bind(agent)
    with capture_logs() as lines:
        answers = [await produce(agent, batch(b'{"year": 2013}'), index=1) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [Code.INVALID_RECORD] * 3
    assert (
        "the bytes look like JSON; the topic takes the protobuf message nyc.Flight"
        in answers[0].error_message
    )
    (line,) = told(lines)
    assert (line["log_level"], line["topic"], line["partition"], line["reason"], line["client_id"]) == (
        "warning",
        "t",
        1,
        "INVALID_RECORD",
        "test",
    )
    assert line["message"] == answers[0].error_message
    assert counted(agent.services.metrics, "t", "INVALID_RECORD") == 3
    newest = agent.services.refusals.newest
    assert [(each.topic, each.partition, each.code) for each in newest] == [("t", 1, "INVALID_RECORD")] * 3
    await produce(agent, batch(GOOD))
    assert len(agent.services.refusals.newest) == 3, "what is taken leaves none"


async def test_what_apply_refuses_leaves_a_trace_too(agent: Agent) -> None:
    await create(agent)
    identity = {"producer_id": 7, "producer_epoch": 0}
    assert (await produce(agent, batch(b"a", base_sequence=0, **identity))).error_code == 0
    answer = await produce(agent, batch(b"c", base_sequence=2, **identity))
    assert answer.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [each.code for each in agent.services.refusals.newest] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]


async def test_what_is_to_be_sent_again_is_no_refusal(agent: Agent) -> None:
    await create(agent)
    await agent.services.produce.close()
    assert (await produce(agent, batch(b"a"))).error_code == Code.NOT_LEADER_OR_FOLLOWER
    assert agent.services.refusals.newest == []


async def test_acks_0_of_which_a_part_is_refused(agent: Agent) -> None:
    """The refused part is told and closes the connection; the other one is stored, as in Kafka."""
    await create(agent)
    topic = p.TopicProduceData(name="t")
    topic.partition_data = [
        p.PartitionProduceData(0, memoryview(batch(b"a"))),
        p.PartitionProduceData(1, memoryview(b"")),
    ]
    with pytest.raises(WireError):
        await agent.call("Produce", p.ProduceRequest(acks=0, timeout_ms=5000, topic_data=[topic]), 9)
    assert [each.partition for each in agent.services.refusals.newest] == [1]
    assert values(await fetch(agent, 0, wait_ms=5000)) == [b"a"]


def test_lines_are_limited_and_say_how_many_there_were() -> None:
    clock, metrics = ManualClock(), Metrics()
    refusals = Refusals(clock, metrics)
    with capture_logs() as lines:
        for _ in range(5):
            refusals.note("t", 0, "INVALID_RECORD", "bad", "app", "10.0.0.7")
        refusals.note("t", 0, "CORRUPT_MESSAGE", "bad", "app", "10.0.0.7")
        clock.advance(TOLD_AGAIN_S)
        refusals.note("t", 0, "INVALID_RECORD", "bad", "app", "10.0.0.7")
    assert [(each["reason"], each["batches"]) for each in told(lines)] == [
        ("INVALID_RECORD", 1),
        ("CORRUPT_MESSAGE", 1),
        ("INVALID_RECORD", 5),
    ]


def test_what_is_kept_is_bounded() -> None:
    metrics = Metrics()
    refusals = Refusals(ManualClock(), metrics)
    with capture_logs():
        for number in range(KINDS_MAX + 10):
            refusals.note(f"t{number}", 0, "INVALID_RECORD", "x" * 10_000, "c" * 10_000, "10.0.0.7")
    assert len(refusals.newest) == NEWEST_MAX
    assert refusals.newest[0].topic == f"t{KINDS_MAX + 9}"
    assert len(refusals.newest[0].message) == TEXT_MAX
    assert len(refusals.newest[0].client_id) == 100
    assert len(refusals._kinds) == KINDS_MAX
    assert counted(metrics, f"t{TOPICS_MAX - 1}", "INVALID_RECORD") == 1
    assert counted(metrics, f"t{TOPICS_MAX}", "INVALID_RECORD") == 0
    assert counted(metrics, OTHERS, "INVALID_RECORD") == KINDS_MAX + 10 - TOPICS_MAX
