"""Nodes of the simulation: what runs, dies at once and starts again from what is durable."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, cast

from agent.app import App
from agent.config import Config
from agent.http import HttpServer
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from iceberg.writers import ThreadWriter
from objectstore.faulty import FaultRates, FaultyStore
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import ObjectStore
from tests.sim.clock import SimClock
from tests.sim.loop import NODE, VirtualLoop
from tests.sim.network import HOST, Network

PORT_FIRST = 9100
STORE_RETRY = RetryPolicy(tries_max=4, total_s_max=3.0, wait_s_max=0.5)


class Node:
    """A process of the simulated world, with a life number that grows at every start."""

    def __init__(self, loop: VirtualLoop, network: Network, name: str) -> None:
        self.loop = loop
        self.network = network
        self.name = name
        self.life = 0
        self.alive = False

    @property
    def identity(self) -> str:
        """`name/life`."""
        return f"{self.name}/{self.life}"

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as this node."""
        context = contextvars.copy_context()
        context.run(NODE.set, self.identity)
        return context.run(self.loop.create_task, work)

    def begin(self) -> None:
        """A new life."""
        self.life += 1
        self.alive = True
        self.network.trace(f"start {self.identity}")

    def crash(self) -> None:
        """Nothing of this life runs again; its sockets are closed by the machine."""
        if self.alive:
            self.alive = False
            self.network.trace(f"crash {self.identity}")
            self.loop.kill(self.identity)
            self.network.bury(self.identity)


class _NoHttp:
    """Stands where uvicorn would: no client of the simulation asks for pages."""

    async def start(self) -> int:
        """No port."""
        return 1

    async def stop(self) -> None:
        """Nothing to stop."""


class AgentNode(Node):
    """One real agent: everything but HTTP, over the memory log and store."""

    def __init__(
        self,
        loop: VirtualLoop,
        network: Network,
        name: str,
        number: int,
        world: tuple[MemoryServer, ObjectStore],
        settings: Mapping[str, Any],
    ) -> None:
        super().__init__(loop, network, name)
        self.number = number
        self.port = PORT_FIRST + number
        self.server, self._objects = world
        self.settings = settings
        self.skew_ms = 0
        self.app: App | None = None
        self.log: MemoryLog | None = None
        self.store: FaultyStore | None = None
        self.rates = FaultRates()
        self.started: asyncio.Task[Any] | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.port}"

    def start(self) -> asyncio.Task[Any]:
        """Begin a life; the task ends when the agent serves."""
        self.begin()
        self.started = self.spawn(self._run())
        return self.started

    async def _run(self) -> None:
        clock = SimClock(self.loop, self.loop.random.getrandbits(48), self.skew_ms)
        self.log = MemoryLog(self.server, clock)
        self.store = FaultyStore(self._objects, self.loop.random.getrandbits(48), self.rates, clock)
        self.app = App(
            self._config(), clock=clock, log=self.log, store=RetryingStore(self.store, STORE_RETRY, clock)
        )
        self.app._http = cast(HttpServer, _NoHttp())
        service = self.app.background._tables
        if service is not None:
            service._parts = replace(service._parts, writer=ThreadWriter())
            service._writer = None
        await self.app.start()
        self.network.trace(f"serving {self.identity}")

    def _config(self) -> Config:
        listener = {"host": HOST, "port": self.port, "advertised_host": HOST, "advertised_port": self.port}
        return Config.model_validate(
            {
                "log": {"url": "memory:", "lease_ttl_s": 3},
                "replica": {"heartbeat_ms": 1000},
                "store": {"url": "s3://sim/root"},
                "agent": {
                    "name": self.name,
                    "zone": f"z{self.number % 2}",
                },  # a rack of None would hash by its address
                "listeners": [listener],
                **self.settings,
            }
        )
