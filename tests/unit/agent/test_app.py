"""Whole agents in this process: sockets, HTTP, start and stop, dependencies that go and come back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from agent.app import App
from agent.config import Config
from agent.kafka.context import Services
from agent.net.wire.generated import fetch as f
from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import produce as p
from coordination.clock import SystemClock
from coordination.kafka_codes import Code
from coordination.log import Unavailable
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultRates, FaultyStore
from objectstore.fingerprint import ForeignBucket
from objectstore.store import ObjectStore
from tests.bench.load import Wire, create_topic
from tests.unit.agent.rig import batch

WAIT_S = 20
RETRIABLE = (Code.NOT_ENOUGH_REPLICAS, Code.REQUEST_TIMED_OUT, Code.NOT_LEADER_OR_FOLLOWER)


def config(name: str, **sections: Any) -> Config:
    tree: dict[str, Any] = {
        "agent": {"name": name},
        "listeners": [{"host": "127.0.0.1", "port": 0}],
        "http": {"host": "127.0.0.1", "port": 0},
        "log": {"url": "memory:"},
        "store": {"url": "memory:"},
        "tables": {"enabled": False},
        "shutdown": {"drain_ms": 0, "timeout_ms": 10_000},
        "produce": {"commit_timeout_ms": 2_000},
        "replica": {"queue_timeout_ms": 1_000, "outcome_timeout_ms": 1_000},
    }
    return Config.model_validate({**tree, **sections})


class World:
    """One log and one store, and the agents on them."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.store = MemoryStore()
        self.logs: list[MemoryLog] = []
        self.apps: list[App] = []

    def make(self, name: str = "a", store: ObjectStore | None = None, **sections: Any) -> App:
        log = MemoryLog(self.server, SystemClock(), timeout_s=0.2)
        app = App(config(name, **sections), log=log, store=store or self.store)
        self.logs.append(log)
        self.apps.append(app)
        return app

    async def start(self, name: str = "a", **more: Any) -> App:
        app = self.make(name, **more)
        async with asyncio.timeout(WAIT_S):
            await app.start()
        return app


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    for app in made.apps:
        await app.stop()


async def connect(app: App) -> Wire:
    return await Wire.open(f"127.0.0.1:{app.kafka_port}")


async def topic(app: App, name: str = "t") -> None:
    await create_topic(f"127.0.0.1:{app.kafka_port}", name, 1)


async def produce(wire: Wire, raw: bytes, acks: int = -1, partition: int = 0) -> Any:
    data = p.TopicProduceData("t", partition_data=[p.PartitionProduceData(partition, memoryview(raw))])
    request = p.ProduceRequest(acks=acks, timeout_ms=2_000, topic_data=[data])
    answer = await wire.call("Produce", request, 9)
    return answer.responses[0].partition_responses[0]


def poll(offset: int, wait_ms: int) -> f.FetchRequest:
    part = f.FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return f.FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, topics=[f.FetchTopic(topic="t", partitions=[part])]
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells."""
    while not condition():  # noqa: ASYNC110  # polls what has no event to wait for
        await asyncio.sleep(0.01)


async def acknowledged(wire: Wire, raw: bytes) -> Any:
    """Send the batch again and again until it is acknowledged, as clients do."""
    while (answer := await produce(wire, raw)).error_code:
        assert answer.base_offset == -1
        await asyncio.sleep(0.05)
    return answer


async def http(app: App, path: str) -> httpx.Response:
    async with httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{app.http_port}{path}")


async def test_an_agent_serves_kafka_and_http(world: World) -> None:
    app = await world.start()
    await topic(app)
    wire = await connect(app)
    assert (await produce(wire, batch(b"a"))).base_offset == 0
    read = (await wire.call("Fetch", poll(0, 0), 12)).responses[0].partitions[0]
    assert read.high_watermark == 1
    refused = await produce(wire, b"no batch")
    await wire.close()
    assert (await http(app, "/readyz")).status_code == 200
    status = (await http(app, "/status.json")).json()
    assert status["replica"]["topics"] == 1
    (row,) = status["refused"]
    assert (row["topic"], row["message"], row["host"]) == ("t", refused.error_message, "127.0.0.1")
    assert "floe_produce_records_total 1.0" in (await http(app, "/metrics")).text


async def test_a_start_waits_for_log_and_store_and_answers_probes_meanwhile(world: World) -> None:
    store = FaultyStore(world.store, 1, FaultRates(refused=1.0))
    app = world.make(store=store)
    log = world.logs[0]
    log.faults.refused = True
    starting = asyncio.create_task(app.start())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: app.http_port != 0)
        assert (await http(app, "/livez")).status_code == 200
        assert (await http(app, "/readyz")).status_code == 503
        log.faults.refused = False
        await asyncio.sleep(0.05)
        assert not starting.done()
        store.rates = FaultRates()
        await starting
        while (await http(app, "/readyz")).status_code != 200:  # noqa: ASYNC110  # asked once a second
            await asyncio.sleep(0.1)


async def test_a_start_can_be_given_up(world: World) -> None:
    app = world.make()
    world.logs[0].faults.refused = True
    starting = asyncio.create_task(app.start())
    await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait([starting])
    async with asyncio.timeout(WAIT_S):
        await app.stop()


async def test_a_start_that_is_given_up_waits_for_no_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody will answer it: a client that waits made the stop take most of its time limit."""
    app = world.make()
    starting = asyncio.create_task(app.start())
    async with asyncio.timeout(WAIT_S):
        while not app.kafka_ports:
            await asyncio.sleep(0)
            world.logs[0].faults.partitioned = app._services is not None
        wire = await connect(app)
        asked = asyncio.create_task(wire.call("Metadata", md.MetadataRequest(), 9))
        await until(lambda: bool(app._server._shared.tasks))
        drained: list[float] = []
        drain = app._server.drain

        async def noted(timeout_s: float) -> None:
            drained.append(timeout_s)
            await drain(timeout_s)

        monkeypatch.setattr(app._server, "drain", noted)
        starting.cancel()
        await asyncio.wait([starting])
        await app.stop()
        with pytest.raises((OSError, EOFError)):
            await asked
        await wire.close()
    assert drained == [0]


async def test_a_bucket_of_another_cluster_is_refused(world: World) -> None:
    await world.start("a")
    stranger = world.make("b", cluster={"name": "other"})
    with pytest.raises(ForeignBucket, match="other"):
        await stranger.start()


async def test_without_the_log_producers_are_told_to_try_again_and_it_recovers(world: World) -> None:
    app = await world.start()
    await topic(app)
    wire = await connect(app)
    log = world.logs[0]
    log.faults.refused = True
    failed = await produce(wire, batch(b"a"))
    assert failed.error_code in (
        Code.NOT_ENOUGH_REPLICAS,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_LEADER_OR_FOLLOWER,
    )
    assert failed.base_offset == -1
    assert (await wire.call("Metadata", md.MetadataRequest(topics=None), 12)).topics, "metadata is still told"
    assert (await http(app, "/livez")).status_code == 200
    log.faults.refused = False
    async with asyncio.timeout(WAIT_S):
        await acknowledged(wire, batch(b"b"))
    await wire.close()


async def test_without_the_store_producers_are_told_to_try_again_and_it_recovers(world: World) -> None:
    store = FaultyStore(world.store, 1, FaultRates())
    app = await world.start(store=store)
    await topic(app)
    wire = await connect(app)
    store.rates = FaultRates(refused=1.0)
    failed = await produce(wire, batch(b"a"))
    assert (failed.error_code, failed.base_offset) == (Code.NOT_ENOUGH_REPLICAS, -1)
    store.rates = FaultRates()
    answer = await produce(wire, batch(b"b"))
    assert (answer.error_code, answer.base_offset) == (0, 0), "what failed is nowhere"
    await wire.close()


async def test_reads_go_on_from_memory_without_the_store(world: World) -> None:
    store = FaultyStore(world.store, 1, FaultRates())
    app = await world.start(store=store)
    await topic(app)
    wire = await connect(app)
    await produce(wire, batch(b"a"))
    store.rates = FaultRates(refused=1.0)
    read = (await wire.call("Fetch", poll(0, 0), 12)).responses[0].partitions[0]
    assert (read.error_code, read.high_watermark) == (0, 1)
    await wire.close()


async def test_a_fenced_agent_registers_anew_and_goes_on(world: World) -> None:
    app = await world.start()
    await topic(app)
    wire = await connect(app)
    await produce(wire, batch(b"a"))
    before = app.replica.incarnation
    await world.logs[0].fence(before)
    async with asyncio.timeout(WAIT_S):
        answer = await acknowledged(wire, batch(b"b"))
    assert answer.base_offset == 1
    assert app.replica.incarnation != before
    await wire.close()


async def test_a_stop_leaves_metadata_answers_polls_and_finishes_flushes(world: World) -> None:
    leaving, staying = await world.start("a", shutdown={"drain_ms": 300}), await world.start("b")
    await topic(staying)
    wire = await connect(leaving)
    writer = await connect(leaving)
    assert (await produce(writer, batch(b"in time"))).error_code == 0
    parked = asyncio.create_task(wire.call("Fetch", poll(1, 60_000), 12))
    await asyncio.sleep(0.05)
    stopping = asyncio.create_task(leaving.stop())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: len(staying.replica.state.brokers) == 1)
        read = (await parked).responses[0].partitions[0]
        assert read.error_code == 0
        late = await produce(writer, batch(b"late"))
        assert (late.error_code, late.base_offset) == (Code.NOT_LEADER_OR_FOLLOWER, -1), (
            "sent away, unwritten"
        )
        again = (await wire.call("Fetch", poll(0, 60_000), 12)).responses[0].partitions[0]
        assert again.error_code == Code.NOT_LEADER_OR_FOLLOWER, "at once, so that clients look who leads now"
        await stopping
    assert not staying.replica.state.is_live(leaving.replica.incarnation)
    other = await connect(staying)
    assert (await other.call("Fetch", poll(0, 0), 12)).responses[0].partitions[0].high_watermark == 1
    for each in (wire, writer, other):
        await each.close()


async def test_the_last_agent_serves_until_its_end(world: World) -> None:
    app = await world.start("a", shutdown={"drain_ms": 300})
    await topic(app)
    writer = await connect(app)
    stopping = asyncio.create_task(app.stop())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: not app.replica.state.brokers)
        assert (await produce(writer, batch(b"late"))).error_code == 0, "there is nobody to send clients to"
        await stopping
    await writer.close()


async def test_clients_are_sent_to_an_agent_only_when_it_is_warm(world: World) -> None:
    """It registers, reads the tails ahead that will be its, then enters Metadata."""
    first = await world.start("a")
    await topic(first)
    wire = await connect(first)
    for number in range(5):
        await produce(wire, batch(b"%d" % number))
    named = []
    first.replica.add_listener(
        lambda _: named.append([b.named for b in first.replica.state.brokers.values()])
    )
    second = await world.start("b", peers={"warm_bytes_max": 1 << 20})
    assert [False, True] in [sorted(each) for each in named]
    assert all(broker.named for broker in first.replica.state.brokers.values())
    leads = second.warmer.warmed_bytes > 0
    assert leads == (services_of(second).hints.leader(0) == second.replica.node_id)
    await wire.close()


async def test_the_only_agent_names_itself_while_it_warms_up(world: World) -> None:
    """A client that is told of no broker has nobody to ask again: aiokafka stays so for ever."""
    await topic(await world.start("a"))
    await world.apps[0].stop()
    app, warm = world.make("a"), asyncio.Event()

    async def warm_up(seconds: float) -> None:
        await warm.wait()

    app.warmer.warm_up = warm_up  # type: ignore[method-assign]  # a tail that takes its time
    starting = asyncio.create_task(app.start())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: bool(app.replica.state.brokers))
        assert not any(broker.named for broker in app.replica.state.brokers.values())
        wire = await connect(app)
        told = await wire.call("Metadata", md.MetadataRequest(topics=[md.MetadataRequestTopic(name="t")]), 8)
        assert [(each.node_id, each.port) for each in told.brokers] == [(app.replica.node_id, app.kafka_port)]
        assert [each.leader_id for each in told.topics[0].partitions] == [app.replica.node_id]
        assert (await produce(wire, batch(b"early"))).error_code == 0
        warm.set()
        await starting
    await wire.close()


async def test_what_an_agent_leaves_behind_is_read_ahead_by_the_next(world: World) -> None:
    """One reads ahead its share when it joins, and the rest when the other leaves: each record once."""
    first = await world.start("a")
    await create_topic(f"127.0.0.1:{first.kafka_port}", "t", 8)
    wire = await connect(first)
    now_ms = SystemClock().now_ms()  # retention removes what is old
    for partition in range(8):
        answer = await produce(wire, batch(b"x" * 100, timestamp=now_ms), partition=partition)
        assert answer.error_code == 0
    second = await world.start("b", peers={"warm_bytes_max": 1 << 20})
    partitions = second.replica.state.topics["t"].partitions
    sizes = {each.handle: sum(s.length for s in each.slices.newest(1 << 20)) for each in partitions}
    hints, own = services_of(second).hints, second.replica.node_id
    share = sum(size for handle, size in sizes.items() if hints.leader(handle) == own)
    assert 0 < share < sum(sizes.values())
    async with asyncio.timeout(WAIT_S):
        await until(lambda: second.warmer.warmed_bytes == share)
    await wire.close()
    await first.stop()
    async with asyncio.timeout(WAIT_S):
        await until(lambda: second.warmer.warmed_bytes == sum(sizes.values()))


def services_of(app: App) -> Services:
    assert app._services is not None
    return app._services


async def test_two_agents_recognise_a_retry_of_the_same_batch(world: World) -> None:
    first, second = await world.start("a"), await world.start("b")
    await topic(first)
    raw = batch(b"a", b"b", producer_id=3, producer_epoch=0, base_sequence=0)
    one, two = await connect(first), await connect(second)
    answers = [await produce(one, raw), await produce(two, raw), await produce(one, raw)]
    assert [(a.error_code, a.base_offset) for a in answers] == [(0, 0)] * 3
    assert first.replica.state.topics["t"].partitions[0].high_watermark == 2
    await one.close()
    await two.close()


async def test_waking_from_a_pause_drops_connections_before_they_are_read(world: World) -> None:
    app = await world.start()
    await topic(app)
    wire = await connect(app)
    await produce(wire, batch(b"a"))
    app.replica._last_tick -= 1000  # as if the process had been stopped
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await produce(wire, batch(b"sent before the pause"))
    again = await connect(app)
    async with asyncio.timeout(WAIT_S):
        assert (await produce(again, batch(b"b"))).base_offset == 1
    for each in (wire, again):
        await each.close()


async def test_a_port_that_is_taken_is_named(world: World) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        app = world.make(listeners=[{"host": "127.0.0.1", "port": port}])
        with pytest.raises(OSError, match=str(port)):
            await app.start()


async def test_an_agent_that_is_in_metadata_asks_the_log_for_nothing_to_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that goes away at that moment ends no agent: clients were told of it."""
    app = world.make()
    assert app.config.scrub.enabled
    enter = app.replica.enter

    async def away() -> str:
        raise Unavailable("no answer")

    async def entered() -> None:
        await enter()
        monkeypatch.setattr(app.log, "identity", away)

    monkeypatch.setattr(app.replica, "enter", entered)
    async with asyncio.timeout(WAIT_S):
        await app.start()
    assert app.background.scrub is not None
