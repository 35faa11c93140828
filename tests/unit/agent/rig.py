"""Agents without sockets: real replica, state, reader, drivers and handlers over memory log and store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from agent.config import Config
from agent.health.health import Health, Signals
from agent.health.standing import Standing
from agent.kafka.assembly import assemble, open_reader
from agent.kafka.context import Client, Services
from agent.kafka.dispatch import Dispatcher
from agent.kafka.produce.firsts import Firsts
from agent.net.doors import keys_of
from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import RequestHeader
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock, SystemClock
from coordination.commands import Listener, RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica, ReplicaOptions
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.trouble import Troubles
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import Buffer, ObjectStore

FAST = ReplicaOptions(ttl_s=5, heartbeat_s=1, members_s=0.5, tick_s=0.05, queue_wait_s=1, outcome_wait_s=1)
SETTINGS: dict[str, Any] = {
    "log": {"url": "memory:"},
    "store": {"url": "memory:"},
    "tables": {"enabled": False},
    "produce": {"linger_ms": 5, "quiet_ms": 1},
}


class Agent:
    """One agent's Kafka side."""

    def __init__(self, services: Services, log: MemoryLog) -> None:
        self.services = services
        self.log = log
        self.dispatcher = Dispatcher(services)
        self.client = self.connect()

    def connect(self) -> Client:
        """Another connection's identity."""
        return Client(self.services.clock.random_bits(30), "PLAINTEXT", Firsts(self.services.config.produce))

    async def call(
        self, name: str, request: Any, version: int, client: Client | None = None, client_id: str = "test"
    ) -> Any:
        """Encode, dispatch, decode: what a client would get. None when there is no answer."""
        api = BY_NAME[name]
        codec = api.codec()
        body = memoryview(b"".join(codec.encode_request(request, version)))
        header = RequestHeader(api.key, version, 1, client_id, 0)
        answer = await self.dispatcher.answer(client or self.client, header, body)
        return None if answer is None else codec.decode_response(b"".join(answer), version)

    async def stop(self) -> None:
        """End the agent."""
        await self.services.groups.stop()
        await self.services.produce.close()
        await self.services.replica.stop()
        await self.services.rules.close()
        await self.services.reader.close()
        await self.log.close()


@asynccontextmanager
async def two_agents() -> AsyncIterator[tuple[Agent, Agent]]:
    """Two agents of one cluster, `a` and `b`, stopped at the end."""
    server, store = MemoryServer(), MemoryStore()
    first = await start_agent(server, store, "a", 1)
    second = await start_agent(server, store, "b", 2)
    try:
        yield first, second
    finally:
        await second.stop()
        await first.stop()


async def start_agent(
    server: MemoryServer,
    store: ObjectStore,
    name: str = "a",
    port: int = 1,
    *,
    clock: Clock | None = None,
    **settings: Any,
) -> Agent:
    """An agent on a shared log and store. `settings` replace sections of SETTINGS."""
    clock = clock or SystemClock()
    config = Config.model_validate({**SETTINGS, **settings})
    log = MemoryLog(server, clock)
    replica = Replica(log, store, clock, FAST)
    reader = open_reader(config, store)

    async def put(chunk: ChunkId, parts: Sequence[Buffer]) -> None:
        await store.put(chunk_key(chunk), parts)

    health = Health(config, replica, store, Signals(), Troubles(clock.now_ms))
    standing = Standing(config, replica, health, asyncio.get_running_loop().time)
    metrics = Metrics()
    services = assemble(
        config,
        clock,
        replica,
        reader,
        MergedRanges(store),
        put,
        bytes(16),
        metrics,
        standing,
        keys=keys_of(config, metrics),
    )
    agent = Agent(services, log)
    async with asyncio.timeout(10):
        await replica.start(
            RegisterAgent(
                name=name,
                node_id=-1,
                zone=config.agent.zone,
                listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=port)],
                feature_min=1,
                feature_max=FEATURE_LEVEL_MAX,
            )
        )
    services.groups.start()
    return agent


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **producer: int) -> bytes:
    """A batch of keyless records, one millisecond apart."""
    return build([NewRecord(timestamp + n, None, value) for n, value in enumerate(values)], **producer)
