"""Policy `quarantine`: good records go on, bad ones go to the topic's quarantine, as one with their batch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import incremental_alter_configs as iac
from coordination.commands import AlterClusterConfigs, AlterTopicConfigs, BindSchema, DeleteTopic
from coordination.kafka_codes import Code
from coordination.state.quarantine_names import name_of
from coordination.state.types import Done, Refused
from objectstore.batch import NewRecord, build, peek, records, split
from objectstore.compression import Compression
from schema.proto.quarantine_pb2 import Record
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.test_bound_meanwhile import HeldPuts, catch_up
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch, offsets, produce, values
from tests.unit.agent.kafka.test_produce_rules import bind, figures, policy
from tests.unit.agent.rig import Agent, batch
from tests.unit.agent.rules.test_rules_pool import BAD, GOOD
from tests.unit.coordination.conftest import until

JSON = b'{"month": 1}'
ASIDE = "t.quarantine"
RETRY = Code.NOT_ENOUGH_REPLICAS
TWO = {"producer_id": 7, "producer_epoch": 0}


async def alter(agent: Agent, topic: str = "t", **configs: str) -> tuple[int, str | None]:
    """IncrementalAlterConfigs of a topic, as a client sends it: code and message."""
    changes = [iac.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = iac.AlterConfigsResource(resource_type=2, resource_name=topic, configs=changes)
    answer = await agent.call(
        "IncrementalAlterConfigs", iac.IncrementalAlterConfigsRequest(resources=[resource]), 1
    )
    return answer.responses[0].error_code, answer.responses[0].error_message


async def ruled(agent: Agent, **more: Any) -> None:
    """Topic t, bound to a message with rules, with the policy."""
    await create(agent, **more)
    await bind(agent)
    assert await alter(agent, floe_value_rules="quarantine") == (0, None)


async def kept(agent: Agent, index: int = 0, topic: str = ASIDE) -> list[Record]:
    """What is in a partition of the quarantine."""
    partition = agent.services.replica.state.topics[topic].partitions[index]
    found = []
    for ref in partition.slices.plan(0, 1 << 30):
        (content,) = await agent.services.reader.read_each([ref])
        assert not isinstance(content, Exception)
        found += [Record.FromString(each.value or b"") for each in records(content)]
    return found


async def test_good_records_go_on_and_bad_ones_are_kept_with_all_they_had(agent: Agent) -> None:
    await ruled(agent)
    sent = build(
        [
            NewRecord(5, b"a", GOOD),
            NewRecord(6, b"b", BAD, [("h", b"1"), ("n", None)]),
            NewRecord(7, None, JSON),
            NewRecord(8, b"d", GOOD),
        ],
        **TWO,
        base_sequence=10,
    )
    answer = await produce(agent, sent, index=1)
    assert (answer.error_code, answer.base_offset) == (Code.NONE, 0)
    read = await fetch(agent, 0, index=1)
    assert [(each.offset, each.key) for each in records(read.records)] == [(0, b"a"), (3, b"d")]
    assert read.high_watermark == 4
    assert await kept(agent, 0) == [], "it is the partition of the same number"
    broken, none = await kept(agent, 1)
    assert (broken.topic, broken.partition, broken.batch_index, broken.timestamp_ms) == ("t", 1, 1, 6)
    assert (broken.key, broken.value) == (b"b", BAD)
    assert [(each.key, each.value, each.HasField("value")) for each in broken.headers] == [
        ("h", b"1", True),
        ("n", b"", False),
    ]
    assert (broken.producer_id, broken.producer_epoch, broken.sequence) == (7, 0, 11)
    assert (broken.client_id, broken.policy) == ("test", "value=quarantine")
    assert broken.value_schema.message == "nyc.Flight"
    told = [(each.role, each.field, each.rule) for each in broken.violations]
    assert told == [("value", "", "flight.route"), ("value", "month", "int32.gte_lte")]
    assert broken.violations[1].text == "must be greater than or equal to 1 and less than or equal to 12"
    assert (none.batch_index, none.value, none.HasField("key")) == (2, JSON, False)
    assert [(each.role, each.rule) for each in none.violations] == [("value", "schema")]
    assert none.violations[0].text.startswith("the bytes look like JSON")
    assert figures(agent)["floe_rules_quarantined_total"] == 2
    (seen,) = agent.services.rule_figures.quarantined
    assert (seen.topic, seen.records) == ("t", 2)


@pytest.mark.parametrize("compression", list(Compression))
async def test_a_batch_of_bad_records_alone_is_a_hole(agent: Agent, compression: Compression) -> None:
    await ruled(agent)
    made = [NewRecord(5, None, BAD), NewRecord(6, None, JSON)]
    answer = await produce(agent, build(made, compression=compression))
    assert (answer.error_code, answer.base_offset) == (Code.NONE, 0)
    assert (await produce(agent, batch(GOOD, timestamp=9))).base_offset == 2
    read = await fetch(agent, 0)
    assert [(each.offset, each.value) for each in records(read.records)] == [(2, GOOD)]
    empty, _ = split(read.records)
    assert (peek(read.records, empty[0]).record_count, peek(read.records, empty[0]).last_offset) == (0, 1)
    assert len(await kept(agent)) == 2
    # By time as if they were not there: the first at or after, the newest, and none.
    assert await offsets(agent, 0, 6, -3, 10) == [(0, 2, 9), (0, 2, 9), (0, 2, 9), (0, -1, -1)]


async def test_a_retry_is_answered_as_ever_also_by_another_agent(start: StartAgent) -> None:
    one, other = await start("a"), await start("b")
    await ruled(one)
    first, second = batch(GOOD, BAD, **TWO, base_sequence=0), batch(BAD, **TWO, base_sequence=2)
    assert (await produce(one, first)).base_offset == 0
    assert (await produce(one, second)).base_offset == 2
    await catch_up(other)
    for agent in (other, one):
        again = [await produce(agent, each) for each in (first, second)]
        assert [(each.error_code, each.base_offset) for each in again] == [(0, 0), (0, 2)]
    assert [each.sequence for each in await kept(one)] == [1, 2]
    assert figures(one)["floe_rules_quarantined_total"] == 2
    assert "floe_rules_quarantined_total" not in figures(other), "it was there already"


async def test_a_gap_takes_both_away(agent: Agent) -> None:
    await ruled(agent)
    assert (await produce(agent, batch(GOOD, **TWO, base_sequence=0))).error_code == 0
    late = await produce(agent, batch(GOOD, BAD, **TWO, base_sequence=5))
    assert late.error_code == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await kept(agent) == []
    assert (await fetch(agent, 0)).high_watermark == 1


async def test_one_role_s_policy_rejects_the_batch_whatever_the_other_s_says(agent: Agent) -> None:
    await ruled(agent)
    await bind(agent, role=BindSchema.KEY)
    assert await alter(agent, floe_key_rules="reject") == (0, None)
    answer = await produce(agent, build([NewRecord(1, GOOD, BAD), NewRecord(1, BAD, GOOD)]))
    assert answer.error_code == Code.INVALID_RECORD
    assert [each.batch_index for each in answer.record_errors] == [1]
    assert (await produce(agent, build([NewRecord(1, JSON, GOOD)]))).error_code == Code.INVALID_RECORD
    assert await kept(agent) == []
    assert await alter(agent, floe_key_rules="observe") == (0, None)
    answer = await produce(agent, build([NewRecord(1, GOOD, BAD), NewRecord(1, BAD, GOOD)]))
    assert answer.error_code == 0
    assert [each.batch_index for each in await kept(agent)] == [0]
    assert values(await fetch(agent, 0)) == [GOOD]
    assert agent.services.rule_figures.newest[0].records == 1
    assert await alter(agent, floe_key_rules="quarantine") == (0, None)
    answer = await produce(agent, build([NewRecord(1, BAD, BAD)]))
    newest = (await kept(agent))[-1]
    assert [each.role for each in newest.violations] == ["key", "key", "value", "value"]
    assert newest.key_schema.message == "nyc.Flight"


async def test_without_its_quarantine_a_batch_is_refused_and_good_ones_go_on(agent: Agent) -> None:
    await ruled(agent)
    assert isinstance(await agent.services.replica.propose(DeleteTopic(name=ASIDE)), Done)
    assert (await produce(agent, batch(GOOD))).error_code == 0
    for bad in (BAD, JSON):
        answer = await produce(agent, batch(GOOD, bad))
        assert answer.error_code == Code.INVALID_RECORD
        assert "topic 't.quarantine', which would keep them, does not exist" in answer.error_message
        assert "set floe.value.rules=quarantine of topic 't' again" in answer.error_message
        assert [each.batch_index for each in answer.record_errors] == [1]
    assert (await fetch(agent, 0)).high_watermark == 1
    assert await alter(agent, floe_value_rules="quarantine") == (0, None)
    assert (await produce(agent, batch(GOOD, BAD))).error_code == 0
    assert len(await kept(agent)) == 1


async def test_a_quarantine_deleted_while_a_batch_is_on_its_way_leaves_nothing_half(
    start: StartAgent,
) -> None:
    one, other = await start("a"), await start("b")
    await ruled(one)
    await catch_up(other)
    held = HeldPuts(one)
    sent = asyncio.create_task(produce(one, batch(GOOD, BAD, **TWO, base_sequence=0)))
    await until(lambda: held.begun == 1)
    behind = asyncio.create_task(produce(one, batch(GOOD, **TWO, base_sequence=2)))
    assert isinstance(await other.services.replica.propose(DeleteTopic(name=ASIDE)), Done)
    held.let_go()
    assert [(await each).error_code for each in (sent, behind)] == [RETRY, RETRY]
    assert (await fetch(one, 0)).high_watermark == 0
    assert await alter(one, floe_value_rules="quarantine") == (0, None)
    assert (await produce(one, batch(GOOD, BAD, **TWO, base_sequence=0))).error_code == 0
    assert (await produce(one, batch(GOOD, **TWO, base_sequence=2))).error_code == 0
    assert len(await kept(one)) == 1


async def test_more_partitions_share_those_of_the_quarantine(agent: Agent) -> None:
    await ruled(agent, partitions=2)
    more = cp.CreatePartitionsTopic(name="t", count=3, assignments=None)
    answer = await agent.call("CreatePartitions", cp.CreatePartitionsRequest(topics=[more]), 3)
    assert answer.results[0].error_code == 0
    assert (await produce(agent, batch(BAD), index=2)).error_code == 0
    assert [each.partition for each in await kept(agent, 0)] == [2]


async def test_the_append_time_is_the_topic_s(agent: Agent) -> None:
    await ruled(agent, message_timestamp_type="LogAppendTime")
    assert (await produce(agent, batch(GOOD, BAD, timestamp=5))).error_code == 0
    read = await fetch(agent, 0)
    assert peek(read.records).timestamp_type == 1
    assert peek(read.records).max_timestamp > 5
    assert (await kept(agent))[0].timestamp_ms == 6, "the producer's own"


@pytest.mark.parametrize(("limit", "bound"), [("quarantine_records_max", 2), ("quarantine_bytes_max", 100)])
async def test_what_is_too_much_for_a_quarantine_is_refused_whole(
    agent: Agent, limit: str, bound: int
) -> None:
    await ruled(agent)
    object.__setattr__(agent.services.config.produce, limit, bound)
    for bad in (BAD, JSON):
        answer = await produce(agent, batch(GOOD, bad, bad, bad))
        assert answer.error_code == Code.INVALID_RECORD
        assert f"produce.{limit}" in answer.error_message
    assert (await fetch(agent, 0)).high_watermark == 0
    assert await kept(agent) == []


async def test_hundreds_of_bad_records_are_all_set_aside(agent: Agent) -> None:
    await ruled(agent)
    made = [BAD if at % 3 == 0 else JSON if at % 3 == 1 else GOOD for at in range(900)]
    assert (await produce(agent, batch(*made))).error_code == 0
    read = await fetch(agent, 0)
    assert [each.offset for each in records(read.records)] == list(range(2, 900, 3))
    assert [each.batch_index for each in await kept(agent)] == [at for at in range(900) if at % 3 != 2]
    assert all(each.violations for each in await kept(agent))


async def test_one_of_a_name_that_is_none_is_left_alone(agent: Agent) -> None:
    await create(agent)
    await create(agent, ASIDE)
    code, message = await alter(agent, floe_value_rules="quarantine")
    assert code == Code.INVALID_CONFIG
    assert message == (
        "quarantine: topic 't.quarantine' exists and its values are not bound to floe.quarantine.v1.Record: "
        "delete it, or use another policy"
    )
    code, message = await alter(agent, ASIDE, floe_value_rules="quarantine")
    assert code == Code.INVALID_CONFIG
    assert message is not None
    assert "a quarantine has none" in message


async def test_a_cluster_s_default_is_not_to_set_aside(agent: Agent) -> None:
    change = AlterTopicConfigs.Change(name="floe.value.rules", value="quarantine")
    answer = await agent.services.replica.propose(AlterClusterConfigs(changes=[change]))
    assert isinstance(answer, Refused)
    assert "is for single topics" in answer.message
    assert isinstance(await policy(agent, "quarantine", topic="nope"), Refused)
    assert name_of("t") not in agent.services.replica.state.topics


async def test_a_new_topic_comes_with_its_quarantine_and_who_only_asks_makes_none(agent: Agent) -> None:
    state = agent.services.replica.state
    wanted = ct.CreatableTopic(name="t", num_partitions=3, replication_factor=-1)
    wanted.configs = [ct.CreatableTopicConfig("floe.value.rules", "quarantine")]
    for validate_only, there in ((True, []), (False, ["t", ASIDE])):
        request = ct.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000, validate_only=validate_only)
        answer = await agent.call("CreateTopics", request, 7)
        assert answer.topics[0].error_code == 0, answer
        assert list(state.topics) == there
    assert len(state.topics[ASIDE].partitions) == 3
    assert isinstance(await agent.services.replica.propose(DeleteTopic(name=ASIDE)), Done)
    change = iac.AlterableConfig(name="floe.key.rules", value="quarantine")
    resource = iac.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    request = iac.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    answer = await agent.call("IncrementalAlterConfigs", request, 1)
    assert answer.responses[0].error_code == 0, answer
    assert list(state.topics) == ["t"]
