"""An agent's HTTP side over a real replica, log and store, all in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b

import httpx
import pytest
from starlette.applications import Starlette

from agent.config import Config
from agent.health.health import Health, Signals
from agent.health.watched import WatchedLog, WatchedStore
from agent.http import Parts, build
from agent.rules.pool import RulesPool
from agent.telemetry.metrics import Metrics
from coordination.clock import SystemClock
from coordination.commands import CreateTopic, Listener, RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica, ReplicaOptions
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.types import Done
from coordination.trouble import Troubles
from objectstore.adapters.memory import MemoryStore
from objectstore.faulty import FaultyStore
from tests.unit.agent.http.registry_rig import Registry


@dataclass(slots=True)
class Edge:
    """One agent as its HTTP side sees it, and what breaks below it."""

    parts: Parts
    app: Starlette
    log: MemoryLog
    store: FaultyStore

    @property
    def replica(self) -> Replica:
        """The real replica."""
        return self.parts.replica

    async def topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic through the log."""
        topic_id = blake2b(name.encode(), digest_size=16).digest()
        message = CreateTopic(name=name, topic_id=topic_id, partitions=partitions)
        for key, value in configs.items():
            message.configs.add(name=key, value=value)
        assert isinstance(await self.replica.propose(message), Done)

    def have(self, **changes: object) -> None:
        """Have other parts from now on."""
        self.parts = replace(self.parts, **changes)  # type: ignore[arg-type]  # fields of Parts
        self.app = build(self.parts)

    def rebuilt(self, **changes: object) -> Starlette:
        """The application with other parts."""
        return build(replace(self.parts, **changes))  # type: ignore[arg-type]  # fields of Parts


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    """A registered agent."""
    async with agent_on(MemoryServer(), FaultyStore(MemoryStore(), 1)) as one:
        yield one


def _queues() -> dict[str, int]:
    return {"cached_bytes": 7}


@asynccontextmanager
async def agent_on(
    server: MemoryServer, store: FaultyStore, name: str = "edge", **sections: dict[str, object]
) -> AsyncIterator[Edge]:
    """A registered agent of the cluster that has this log and this store; `sections` of its configuration."""
    clock = SystemClock()
    log = MemoryLog(server, clock)
    signals, troubles = Signals(), Troubles(clock.now_ms)
    watched = WatchedStore(store, signals.store_reads, signals.store_writes)
    replica = Replica(
        WatchedLog(log, signals.log_reads, signals.appends),
        watched,
        clock,
        ReplicaOptions(tick_s=0.05, outcome_wait_s=1, queue_wait_s=1),
    )
    settings: dict[str, dict[str, object]] = {
        "log": {"url": "memory:"},
        "store": {"url": "memory:"},
        "tables": {"enabled": False},
        "http": {"host": "127.0.0.1", "port": 0, "body_bytes_max": 65_536, "barrier_timeout_ms": 2_000},
        "agent": {"name": name},
    }
    config = Config.model_validate({**settings, **sections})
    health = Health(config, replica, watched, signals, troubles)
    health.entered()
    rules = RulesPool(config.rules)
    parts = Parts(config, Metrics(), replica, watched, clock, health, rules=rules, queues=_queues)
    async with asyncio.timeout(10):
        listener = Listener(name="PLAINTEXT", host="broker.example", port=9092)
        await replica.start(
            RegisterAgent(
                name=name,
                node_id=-1,
                listeners=[listener],
                zone="z",
                feature_min=1,
                feature_max=FEATURE_LEVEL_MAX,
            )
        )
    yield Edge(parts, build(parts), log, store)
    await rules.close()
    log.faults.refused = False
    await replica.stop()
    await log.close()


@pytest.fixture
async def client(edge: Edge) -> AsyncIterator[httpx.AsyncClient]:
    """A client of `edge.app` without a socket."""
    async with connect(edge.app) as opened:
        yield opened


@pytest.fixture
def registry(client: httpx.AsyncClient) -> Registry:
    """The schema registry of `edge`."""
    return Registry(client)


def connect(app: Starlette) -> httpx.AsyncClient:
    """A client of an application without a socket."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://agent")
