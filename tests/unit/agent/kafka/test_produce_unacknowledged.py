"""Produce with acks=0: what becomes of the records is counted and noted; a failure ends the connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.net.connection import Limits
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import produce as p
from objectstore.adapters.memory import MemoryStore
from objectstore.store import StoreError
from tests.bench.load import Wire
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.net.server.harness import until
from tests.unit.agent.rig import Agent, batch
from tests.unit.agent.test_app import World

TOPIC = "t"
FIRST = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
GAP = FIRST | {"base_sequence": 50}
CALLS = 10


class Store(MemoryStore):
    """May be down, or hold up what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.open = asyncio.Event()
        self.open.set()

    async def put(self, *args: Any, **kwargs: Any) -> Any:
        await self.open.wait()
        if self.down:
            raise StoreError("down")
        return await super().put(*args, **kwargs)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def agent(start: StartAgent, store: Store) -> Agent:
    return await start(store_port=store)


@pytest.fixture
async def wire(agent: Agent) -> AsyncIterator[Wire]:
    """A connection that takes one request at a time, to an agent with a topic."""
    server = Server(agent.dispatcher, Limits(requests_in_flight_max=1))
    agent.services.hang_up = server.hang_up
    (port,) = await server.start([Listener("PLAINTEXT", "127.0.0.1", 0)])
    one = await Wire.open(f"127.0.0.1:{port}")
    await create(one, TOPIC)
    yield one
    await one.close()
    await server.drain(1)


async def create(wire: Wire, name: str) -> None:
    made = ct.CreateTopicsRequest([ct.CreatableTopic(name, 1, 1)], 10_000)
    assert (await wire.call("CreateTopics", made, 7)).topics[0].error_code == 0


def produced(acks: int = 0, **producer: int) -> p.ProduceRequest:
    data = p.PartitionProduceData(0, memoryview(batch(b"a", b"b", **producer)))
    return p.ProduceRequest(None, acks, 20_000, [p.TopicProduceData(TOPIC, partition_data=[data])])


async def end(wire: Wire) -> int:
    """The partition's end, behind everything that was sent on the connection."""
    part = lo.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = lo.ListOffsetsRequest(replica_id=-1, topics=[lo.ListOffsetsTopic(TOPIC, [part])])
    return int((await wire.call("ListOffsets", asked, 9)).topics[0].partitions[0].offset)


async def closed(wire: Wire) -> None:
    """Returns when the agent has hung up, unasked; nothing is answered before."""
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        async with asyncio.timeout(20):
            await wire.receive()


async def test_what_is_stored_is_counted(agent: Agent, wire: Wire) -> None:
    for _ in range(CALLS):
        await wire.post("Produce", produced(), 9)
    assert await end(wire) == 2 * CALLS
    registry = agent.services.metrics.registry
    assert registry.get_sample_value("floe_produce_records_total") == 2 * CALLS
    assert registry.get_sample_value("floe_produce_bytes_total") == CALLS * len(batch(b"a", b"b"))


async def test_what_apply_refuses_is_noted_and_ends_the_connection(agent: Agent, wire: Wire) -> None:
    with capture_logs() as lines:
        await wire.call("Produce", produced(-1, **FIRST), 9)
        await wire.post("Produce", produced(**GAP), 9)
        await closed(wire)
    assert [each.code for each in agent.services.refusals.newest] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
    (line,) = [each for each in lines if each["event"] == "connection closed for a request"]
    assert "Produce with acks=0" in line["reason"]


async def test_what_cannot_be_stored_ends_the_connection(agent: Agent, wire: Wire, store: Store) -> None:
    store.down = True
    with capture_logs() as lines:
        await wire.post("Produce", produced(), 9)
        await closed(wire)
    (line,) = [each for each in lines if each["event"] == "connection closed for a request"]
    assert "The object store failed; nothing was written" in line["reason"]


async def test_nothing_begins_behind_what_failed(agent: Agent, wire: Wire, store: Store) -> None:
    """As with Kafka, which reads no more of the connection."""
    store.down = True
    store.open.clear()
    await wire.post("Produce", produced(), 9)
    await wire.post("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("late", 1, 1)], 10_000), 7)
    await until(lambda: agent.services.produce.budget.used > 0)
    store.open.set()
    await closed(wire)
    assert "late" not in agent.services.replica.state.topics


async def test_a_defect_where_the_outcome_is_told_ends_the_connection_too(
    agent: Agent, wire: Wire, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of several batches in the request others may have been refused, which nobody would hear of."""

    def failing(*args: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(agent.services.gaps, "stored", failing)
    store.open.clear()
    await wire.post("Produce", produced(), 9)
    await wire.post("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic("late", 1, 1)], 10_000), 7)
    await until(lambda: agent.services.produce.budget.used > 0)
    store.open.set()
    await closed(wire)
    assert "late" not in agent.services.replica.state.topics


async def test_they_share_flushes_beyond_the_limit_of_requests(
    agent: Agent, wire: Wire, store: Store
) -> None:
    """That limit is for answers that are owed. Else a connection wrote so many requests per PUT at most."""
    store.open.clear()
    size, budget = len(batch(b"a", b"b")), agent.services.produce.budget
    for number in range(1, CALLS + 1):
        await wire.post("Produce", produced(), 9)
        while budget.used < number * size:  # noqa: ASYNC110  # no event tells it
            await asyncio.sleep(0.01)
    store.open.set()
    assert await end(wire) == 2 * CALLS


async def test_a_whole_agent_hangs_up() -> None:
    world = World()
    try:
        app = await world.start()
        wire = await Wire.open(f"127.0.0.1:{app.kafka_port}")
        await create(wire, TOPIC)
        await wire.call("Produce", produced(-1, **FIRST), 9)
        await wire.post("Produce", produced(**GAP), 9)
        await closed(wire)
        assert [each.code for each in app.refusals.newest] == ["OUT_OF_ORDER_SEQUENCE_NUMBER"]
        await wire.close()
    finally:
        for each in world.apps:
            await each.stop()
