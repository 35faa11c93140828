"""One administrative request is one change, however much it names; nobody sees it in part (rule 12)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from agent.kafka.handlers.k03_metadata import ROWS_PER_STEP
from agent.net.wire.generated import alter_configs as ac
from agent.net.wire.generated import create_partitions as cp
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import incremental_alter_configs as ia
from agent.net.wire.generated import metadata as md
from coordination.kafka_codes import Code
from coordination.state import State
from tests.unit.agent.kafka.admin_calls import TOPIC, create, metadata, topic
from tests.unit.agent.rig import Agent

NAMES = [f"t{number:03}" for number in range(60)]
RETENTION = "retention.ms"
Count = Callable[[State], int]


@contextmanager
def seen(agent: Agent, count: Count) -> Iterator[set[int]]:
    """What `count` says of every state that the agent goes through."""
    replica = agent.services.replica
    counted = {count(replica.state)}
    remove = replica.add_listener(lambda applied: counted.add(count(replica.state)))
    yield counted
    remove()


def codes(rows: list[Any]) -> set[int]:
    return {row.error_code for row in rows}


def set_to(value: str) -> Count:
    return lambda state: sum(t.configs.get(RETENTION) == value for t in state.topics.values())


async def test_all_topics_of_a_request_change_together(agent: Agent) -> None:
    with seen(agent, lambda state: len(state.topics)) as counted:
        await create(agent, *map(topic, NAMES))
    assert counted == {0, len(NAMES)}
    changed = [ia.AlterConfigsResource(TOPIC, n, [ia.AlterableConfig(RETENTION, 0, "7")]) for n in NAMES]
    with seen(agent, set_to("7")) as counted:
        answer = await agent.call("IncrementalAlterConfigs", ia.IncrementalAlterConfigsRequest(changed), 1)
    assert (codes(answer.responses), counted) == ({0}, {0, len(NAMES)})
    replaced = [ac.AlterConfigsResource(TOPIC, n, [ac.AlterableConfig(RETENTION, "8")]) for n in NAMES]
    with seen(agent, set_to("8")) as counted:
        answer = await agent.call("AlterConfigs", ac.AlterConfigsRequest(replaced), 2)
    assert (codes(answer.responses), counted) == ({0}, {0, len(NAMES)})
    grown = [cp.CreatePartitionsTopic(name, 2, None) for name in NAMES]
    with seen(agent, lambda state: state.partition_count) as counted:
        answer = await agent.call("CreatePartitions", cp.CreatePartitionsRequest(grown, 5_000), 3)
    assert (codes(answer.results), counted) == ({0}, {len(NAMES), 2 * len(NAMES)})
    gone = [dt.DeleteTopicState(name=name) for name in NAMES]
    with seen(agent, lambda state: len(state.topics)) as counted:
        answer = await agent.call("DeleteTopics", dt.DeleteTopicsRequest(gone, timeout_ms=5_000), 6)
    assert (codes(answer.responses), counted) == ({0}, {len(NAMES), 0})


async def test_what_is_wrong_with_one_topic_is_its_own(agent: Agent) -> None:
    await create(agent, *map(topic, NAMES[:3]))
    wanted = [(NAMES[0], "5"), ("no-such", "5"), (NAMES[1], "soon"), (NAMES[2], "5")]
    rows = [ia.AlterConfigsResource(TOPIC, n, [ia.AlterableConfig(RETENTION, 0, v)]) for n, v in wanted]
    twice = rows[0]
    expected = [0, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.INVALID_CONFIG, 0]
    for tried in (True, False):
        request = ia.IncrementalAlterConfigsRequest(rows, tried)
        answer = await agent.call("IncrementalAlterConfigs", request, 1)
        assert [row.error_code for row in answer.responses] == expected
        assert set_to("5")(agent.services.replica.state) == (0 if tried else 2)
    request = ia.IncrementalAlterConfigsRequest([*rows, twice])
    answer = await agent.call("IncrementalAlterConfigs", request, 1)
    twofold = [Code.INVALID_REQUEST, *expected[1:], Code.INVALID_REQUEST]
    assert [row.error_code for row in answer.responses] == twofold


async def test_a_rehearsal_finds_what_the_request_itself_would_have_left(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordination.state.topics.PARTITIONS_MAX", 5)
    rows = [topic("a", 3), topic("b", 3), topic("c", 2)]
    for tried in (True, False):
        made = await create(agent, *rows, validate_only=tried)
        assert [row.error_code for row in made] == [0, Code.INVALID_PARTITIONS, 0]


@pytest.mark.parametrize("what", ["grown", "deleted"])
async def test_an_answer_that_takes_long_shows_one_moment(agent: Agent, what: str) -> None:
    """Metadata of many topics is made in steps; what changes all of them between two is not half in it."""
    names = [f"m{number:03}" for number in range(12)]
    await create(agent, *(topic(name, ROWS_PER_STEP) for name in names))
    asked = asyncio.ensure_future(metadata(agent, *names) if what == "grown" else metadata(agent))
    state = agent.services.replica.state
    while not agent.services.topic_bodies.size:  # noqa: ASYNC110 - until it is at work
        await asyncio.sleep(0)
    for name in names:  # as one End does it
        if what == "deleted":
            del state.topics[name]
        else:
            state.topics[name].partitions.append(state.topics[name].partitions[0])
    answer: md.MetadataResponse = await asked
    assert [row.error_code for row in answer.topics] == [0] * len(names)
    assert {len(row.partitions) for row in answer.topics} == {ROWS_PER_STEP}
