"""Transactions v1 by clients that do not ask for ApiVersions on each connection: KafkaJS, Sarama, others."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from agent.kafka.transactions.requests import StaleConnection
from agent.net.listening import ConnectionInfo, RequestContext
from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated.api_versions import ApiVersionsRequest
from agent.net.wire.generated.txn_offset_commit import TxnOffsetCommitRequest
from coordination.kafka_codes import Code
from tests.unit.agent.kafka.test_handlers_produce_fetch import create, fetch
from tests.unit.agent.kafka.test_handlers_transactions import COMMITTED, position, shown
from tests.unit.agent.kafka.transactions_rig import V1, Txn
from tests.unit.agent.rig import Agent

AGAIN = Code.COORDINATOR_LOAD_IN_PROGRESS
OLD = {"produce": 11, "add": 0, "add_offsets": 0, "offsets": 0, "end": 1}
BATCHED = {**V1, "add": 5}


class Connected(Txn):
    """A producer whose requests are read, and answered, as they come by a connection."""

    first: ConnectionInfo
    info: ConnectionInfo

    def connect(self) -> ConnectionInfo:
        """Go on by another connection."""
        self.info = ConnectionInfo(self.agent.services.clock.random_bits(30), "PLAINTEXT", "")
        return self.info

    def call(self, api: str, request: Any, version: int) -> Coroutine[Any, Any, Any]:
        """One request: read now, answered once it is waited for."""
        known = BY_NAME[api]
        body = memoryview(b"".join(known.codec().encode_request(request, version)))
        self.info.only_api_versions &= api == "ApiVersions"
        return self._answer(RequestContext(self.info, known.key, version, 1, "js"), body)

    async def _answer(self, context: RequestContext, body: memoryview) -> Any:
        key, version = context.api_key, context.api_version
        answer = await self.agent.dispatcher(context, RequestHeader(key, version, 1, "js", 0), body)
        codec = next(api.codec() for api in BY_NAME.values() if api.key == key)
        return codec.decode_response(b"".join(answer or ()), version)


async def begun(agent: Agent, versions: dict[str, int] | None = None) -> Connected:
    """One that has committed a transaction by a connection that it has left."""
    await create(agent)
    producer = Connected(agent, versions=versions or V1)
    producer.first = producer.connect()
    await producer.init()
    await producer.add(0)
    await producer.send(b"a")
    assert await producer.end(commit=True) == 0
    producer.connect()
    return producer


def stale(agent: Agent) -> float:
    """How many connections the fence has closed."""
    return float(agent.services.metrics.transactions_stale._value.get())


@pytest.mark.parametrize("versions", [OLD, V1, BATCHED], ids=["oldest", "v1", "batched"])
async def test_who_comes_by_another_connection_is_told_once_to_come_again(
    agent: Agent, versions: dict[str, int]
) -> None:
    """By that one, on which nothing had told that it is younger than the last end: else, never again."""
    producer = await begun(agent, versions)
    assert await producer.add(0) == [AGAIN]
    assert not agent.services.replica.state.transactions["x"].ongoing
    assert await producer.add(0) == [0]
    await producer.send(b"b")
    assert await producer.add_group() == 0
    assert await producer.offsets(7) == 0
    assert await producer.end(commit=True) == 0
    producer.connect()
    assert await producer.add_group() == AGAIN
    assert await producer.add_group() == 0
    assert await producer.end(commit=False) == 0
    assert await position(agent) == (0, 7)
    assert shown(await fetch(agent, 0, **COMMITTED)) == [(0, b"a"), (2, b"b")]
    assert stale(agent) == 0


async def test_a_commit_by_another_connection_counts_once_it_comes_again(agent: Agent) -> None:
    producer = await begun(agent)
    await producer.add(0)
    assert await producer.add(0) == [0]
    assert await producer.add_group() == 0
    assert await producer.offsets(7) == 0
    producer.connect()
    assert await producer.offsets(8) == AGAIN
    assert await producer.offsets(8) == 0
    producer.connect()
    assert await producer.end(commit=True) == AGAIN
    assert await position(agent) == (0, -1)
    assert await producer.end(commit=True) == 0
    assert await position(agent) == (0, 8)


async def test_whoever_asked_for_api_versions_first_is_not_told_to_come_again(agent: Agent) -> None:
    producer = await begun(agent)
    await producer.call("ApiVersions", ApiVersionsRequest(), 2)
    assert await producer.add(0) == [0]


async def test_what_was_read_before_the_answer_proves_nothing_by_it(agent: Agent) -> None:
    """Two tries of an EndTxn on a connection that was given up arrive in the next transaction."""
    producer = await begun(agent)
    left = producer.info
    producer.connect()
    assert await producer.add(0) == [AGAIN]
    assert await producer.add(0) == [0]
    await producer.send(b"b")
    live, producer.info = producer.info, left
    assert await asyncio.gather(producer.end(commit=True), producer.end(commit=True)) == [AGAIN, AGAIN]
    assert agent.services.replica.state.transactions["x"].ongoing
    producer.info = live
    assert await producer.end(commit=False) == 0
    assert shown(await fetch(agent, 0, **COMMITTED)) == [(0, b"a")]


async def test_a_connection_by_which_requests_counted_is_closed(agent: Agent) -> None:
    """Its client has gone on by another one: what comes by it is late, however much of it there is."""
    producer = await begun(agent)
    second = producer.info
    await producer.add(0)
    assert await producer.add(0) == [0]
    producer.connect()
    assert await producer.end(commit=False) == AGAIN
    assert await producer.end(commit=False) == 0
    for left in (producer.first, second):
        producer.info = left
        with pytest.raises(StaleConnection):
            await producer.add(0)
    assert stale(agent) == 2
    producer.connect()
    assert [await producer.add(0) for _ in range(2)] == [[AGAIN], [0]]


async def test_without_a_place_for_a_code_the_connection_is_closed(agent: Agent) -> None:
    """A TxnOffsetCommit that names no partition: its client would take the answer for a good one."""
    producer = await begun(agent)
    await producer.add_group()
    assert await producer.add_group() == 0
    assert await producer.offsets(7) == 0
    producer.connect()
    with pytest.raises(StaleConnection):
        await producer.call("TxnOffsetCommit", TxnOffsetCommitRequest("x", "g", *producer.pair, topics=[]), 3)
