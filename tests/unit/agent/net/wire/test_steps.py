"""What is encoded in steps has the bytes that the codec gives at once, and others run in between."""

from __future__ import annotations

import asyncio
import copy
import random
from typing import Any

import pytest

from agent.net.wire import steps
from agent.net.wire.api import BY_NAME
from agent.net.wire.generated import list_offsets as lo
from tests import fuzz_wire

PATHS = {
    "CreateTopics": ("topics", "configs"),
    "DescribeConfigs": ("results", "configs"),
    "DescribeLogDirs": ("results", "topics", "partitions"),
    "DescribeProducers": ("topics", "partitions", "active_producers"),
    "DescribeTopicPartitions": ("topics", "partitions"),
    "ElectLeaders": ("replica_election_results", "partition_result"),
    "FindCoordinator": ("coordinators",),
    "ListConfigResources": ("config_resources",),
    "ListOffsets": ("topics", "partitions"),
    "ListTransactions": ("transaction_states",),
    "OffsetFetch": ("groups", "topics", "partitions"),
    "OffsetForLeaderEpoch": ("topics", "partitions"),
}
SINCE = {"FindCoordinator": 4, "OffsetFetch": 8}
CASES = [
    (name, version)
    for name in PATHS
    for version in range(max(BY_NAME[name].min, SINCE.get(name, 0)), BY_NAME[name].max + 1)
]


def grown(rng: random.Random, rows: list[Any], path: tuple[str, ...]) -> None:
    """More rows than a compact array's number says in one byte, here and there; none in other places."""
    if rows:
        rows += [copy.deepcopy(rng.choice(rows)) for _ in range(rng.choice((0, 3, 130)))]
    for row in rows[:3] if path else ():
        grown(rng, getattr(row, path[0]), path[1:])


@pytest.mark.parametrize("at_once", [3, 60])
@pytest.mark.parametrize(("name", "version"), CASES)
async def test_steps_give_the_bytes_of_the_codec(
    name: str, version: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "ROWS_PER_STEP", at_once)
    rng = random.Random(f"{name} {version} {at_once}")
    api = next(each for each in fuzz_wire.APIS if each.name == name)
    codec, path = BY_NAME[name].codec(), PATHS[name]
    for _ in range(3):
        response = fuzz_wire.random_message(rng, api, "response", version)
        grown(rng, getattr(response, path[0]), path[1:])
        before, whole = copy.deepcopy(response), b"".join(codec.encode_response(response, version))
        made = await steps.encoded(codec, response, version, *path)
        assert b"".join(made.buffers) == whole
        assert response == before


async def test_versions_before_groups_have_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ROWS_PER_STEP", 2)
    codec, rng = BY_NAME["OffsetFetch"].codec(), random.Random(3)
    api = next(each for each in fuzz_wire.APIS if each.name == "OffsetFetch")
    for version in range(1, 8):
        response = fuzz_wire.random_message(rng, api, "response", version)
        grown(rng, response.topics, ("partitions",))
        whole = b"".join(codec.encode_response(response, version))
        made = await steps.encoded(codec, response, version, "topics", "partitions")
        assert b"".join(made.buffers) == whole


@pytest.mark.parametrize("topics", [1, 7, 40_000])
async def test_others_run_between_steps_and_no_step_is_large(
    topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40,000 partitions, in one topic or in many: what the codec is given at once has a bound."""
    rows = [[lo.ListOffsetsPartitionResponse(p) for p in range(40_000 // topics)] for _ in range(topics)]
    response = lo.ListOffsetsResponse(
        topics=[lo.ListOffsetsTopicResponse(f"t{at}", each) for at, each in enumerate(rows)]
    )
    given: list[int] = []
    whole = lo.encode_response

    def watched(message: lo.ListOffsetsResponse, version: int) -> list[Any]:
        given.append(sum(1 + len(topic.partitions) for topic in message.topics))
        return whole(message, version)

    monkeypatch.setattr(lo, "encode_response", watched)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    await steps.encoded(BY_NAME["ListOffsets"].codec(), response, 8, "topics", "partitions")
    task.cancel()
    assert max(given) <= steps.ROWS_PER_STEP + 1
    assert turns >= 40_000 // steps.ROWS_PER_STEP


async def test_a_pace_lets_others_run_every_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "ROWS_PER_STEP", 10)
    order: list[str] = []
    pace = steps.Pace()

    async def work() -> None:
        for _ in range(25):
            order.append("row")
            await pace.row()

    async def other() -> None:
        order.extend("o")
        await asyncio.sleep(0)
        order.extend("o")

    await asyncio.gather(work(), other())
    assert order == ["row"] * 10 + ["o"] + ["row"] * 10 + ["o"] + ["row"] * 5
