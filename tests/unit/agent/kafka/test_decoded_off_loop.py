"""A large request is decoded beside the loop, and nothing of its connection passes it meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agent.kafka.dispatch import DECODED_HERE_BYTES_MAX
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import produce as p
from tests.bench.load import Wire
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.rig import Agent, batch

TOPIC = "flights"
MANY = DECODED_HERE_BYTES_MAX // 16
"""Partitions of a request that is over the limit: each takes 16 bytes or more."""

PIPELINED = 5


def committed(offset: int, count: int = 1) -> oc.OffsetCommitRequest:
    """A commit of partition 0, and of so many more that do not exist."""
    rows = [oc.OffsetCommitRequestPartition(index, offset) for index in range(count)]
    return oc.OffsetCommitRequest("g", topics=[oc.OffsetCommitRequestTopic(TOPIC, partitions=rows)])


def asked(count: int) -> lo.ListOffsetsRequest:
    rows = [lo.ListOffsetsPartition(index, -1, -1) for index in range(count)]
    return lo.ListOffsetsRequest(-1, 0, [lo.ListOffsetsTopic(TOPIC, rows)])


def produced(size: int) -> p.ProduceRequest:
    data = p.PartitionProduceData(0, memoryview(batch(bytes(size))))
    return p.ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[p.TopicProduceData(TOPIC, partition_data=[data])]
    )


@pytest.mark.parametrize(
    ("api", "request_", "version", "beside"),
    [
        ("ListOffsets", asked(1), 7, False),
        ("ListOffsets", asked(MANY), 7, True),
        ("OffsetCommit", committed(1, MANY), 8, True),
        ("Produce", produced(2 * DECODED_HERE_BYTES_MAX), 9, False),
    ],
    ids=["small", "large", "large commit", "large produce"],
)
async def test_large_requests_are_decoded_in_a_thread(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, api: str, request_: Any, version: int, beside: bool
) -> None:
    await create(agent, topic(TOPIC))
    threads: list[int] = []
    module = {"ListOffsets": lo, "OffsetCommit": oc, "Produce": p}[api]
    decode = module.decode_request

    def seen(body: memoryview, its_version: int) -> Any:
        threads.append(threading.get_ident())
        return decode(body, its_version)

    monkeypatch.setattr(module, "decode_request", seen)
    await agent.call(api, request_, version)
    assert [thread != threading.get_ident() for thread in threads] == [beside]


async def test_what_comes_behind_a_large_commit_does_not_pass_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(agent, topic(TOPIC))
    server = Server(agent.dispatcher)
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    wire = await Wire.open(f"127.0.0.1:{port}")
    to_thread = asyncio.to_thread

    async def late(work: Callable[..., Any], *args: Any) -> Any:
        await asyncio.sleep(0.1)
        return await to_thread(work, *args)

    monkeypatch.setattr(asyncio, "to_thread", late)
    commits = [("OffsetCommit", committed(n, MANY if n % 2 else 1), 8) for n in range(1, PIPELINED)]
    position = of.OffsetFetchRequest("g", [of.OffsetFetchRequestTopic(TOPIC, [0])])
    *told, found = await wire.pipeline(*commits, ("OffsetFetch", position, 7))
    assert [answer.topics[0].partitions[0].error_code for answer in told] == [0] * len(commits)
    assert found.topics[0].partitions[0].committed_offset == PIPELINED - 1
    await wire.close()
    await server.drain(1)
