"""Nodes of the simulation: what runs, dies at once and starts again from what is durable."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, cast

from starlette.types import ASGIApp

from agent.app import App
from agent.background.jobs import Background
from agent.background.rewriting.compaction.job import Compaction
from agent.background.rewriting.compaction.worker import HelperWorker
from agent.background.rewriting.compaction.worker import Session as CompactionSession
from agent.background.rewriting.merging.job import Merging
from agent.background.rewriting.merging.worker import Session as MergingSession
from agent.background.rewriting.merging.worker import Worker
from agent.background.rewriting.worker import Session, answer_of
from agent.cluster.relay.log import RelayedLog
from agent.config import Config
from agent.http import HttpServer
from coordination.commands import RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.faulty import FaultRates, FaultyStore
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import ObjectStore
from tests.sim.clock import SimClock
from tests.sim.distant_store import DistantStore, Hanging, drawn
from tests.sim.loop import NODE, VirtualLoop
from tests.sim.network import HOST, Network

PORT_FIRST = 9100
LATE = (
    "iceberg.committer",
    "iceberg.upsert.committer",
    "iceberg.catalog",
    "iceberg.maintenance",
    "iceberg.peeking",
)
"""What an agent imports when it first needs it (objectstore/late.py): here it is there."""
for _each in LATE:
    import_module(_each)

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

    def crash(self, told: bool = True) -> None:
        """Nothing of this life runs again; its sockets are closed by the machine, unless that is gone too."""
        if self.alive:
            self.alive = False
            self.network.trace(f"{'crash' if told else 'power off'} {self.identity}")
            self.loop.kill(self.identity)
            self.network.bury(self.identity, told)


class _NoHttp:
    """Stands where uvicorn would: who asks for pages asks the application itself (registrar.py)."""

    async def start(self) -> int:
        """No port."""
        return 1

    async def stop(self) -> None:
        """Nothing to stop."""


class _Helper:
    """A helper without its process: the work of a thread."""

    pid = None

    def __init__(self, session: Session) -> None:
        self._session = session

    async def ask(self, message: object, parts: Sequence[memoryview] = ()) -> tuple[object, memoryview]:
        """See agent.background.rewriting.worker.Asking."""
        content = memoryview(b"".join(parts))
        answer, back = await asyncio.to_thread(answer_of, self._session, message, content)
        return answer, memoryview(b"".join(back))

    async def close(self) -> None:
        """Nothing to end."""


def _without_processes(background: Background) -> None:
    """Let a node's helpers work in threads, which the loop runs in virtual time."""
    merging, compaction = background._merging, background._compaction

    def _merging(cluster_id: bytes) -> Merging:
        job = merging(cluster_id)
        job._parts = replace(job._parts, worker=Worker(_Helper(MergingSession())))
        return job

    def _compaction(cluster_id: bytes) -> Compaction:
        job = compaction(cluster_id)
        job._parts = replace(job._parts, worker=HelperWorker(_Helper(CompactionSession())))
        return job

    background._merging = _merging  # type: ignore[method-assign]  # what it makes is changed, not how
    background._compaction = _compaction  # type: ignore[method-assign]  # likewise
    service = background.committers
    if service is not None:
        service._options = replace(service._options, writer_process=False)


@dataclass(slots=True)
class Ways:
    """What lies between an agent and what it depends on. A fault may change it, for the calls that follow.

    `store_s`, `log_s`: the least and the most that one way to the store or the log, or back, takes.
    """

    entry_bytes: int
    store_s: tuple[float, float] = (0.0, 0.0)
    log_s: tuple[float, float] = (0.0, 0.0)


class _SmallEntries(MemoryLog):
    """A log whose entries are small, so that changes travel in parts that are not large."""

    def __init__(
        self, server: MemoryServer, clock: SimClock, entry_bytes: int, latency_s: Callable[[], float]
    ) -> None:
        super().__init__(server, clock, latency_s=latency_s)
        self._entry_bytes = entry_bytes

    @property
    def entry_bytes_max(self) -> int:
        """See coordination.log.Log."""
        return self._entry_bytes


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
        ways: Ways,
    ) -> None:
        super().__init__(loop, network, name)
        self.ways = ways
        self.near = replace(ways)
        """What lies between when nothing is slow."""
        self.starved = False
        self.feature_max = FEATURE_LEVEL_MAX
        """The newest level that its version knows."""
        self.number = number
        self.port = PORT_FIRST + number
        self.server, self._objects = world
        self.settings = settings
        self.skew_ms = 0
        self.clock: SimClock | None = None
        self.app: App | None = None
        self.http: ASGIApp | None = None
        """What it would serve over HTTP (registrar.py)."""
        self.log: MemoryLog | None = None
        self.member = 0
        """Whose copy of the log it follows at first."""
        self.relayed: list[RelayedLog | None] = []
        """What it followed the log by, in each of its lives."""
        self.store: FaultyStore | None = None
        self.rates = FaultRates(stale_writes=0)
        self.held: set[str] = set()
        self.hanging = Hanging(self.loop.random)
        self.started: asyncio.Task[Any] | None = None
        self.stopping = False

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return f"{HOST}:{self.port}"

    @property
    def ready(self) -> bool:
        """Whether it serves, and is registered."""
        started = self.started is not None and self.started.done()
        return started and self.app is not None and self.app.replica.ready

    @property
    def error(self) -> BaseException | None:
        """What ended it; None also where it was told to."""
        failed = self.app.replica.failed if self.app is not None else None
        for each in (self.started, failed):
            if each is not None and each.done() and not each.cancelled() and each.exception() is not None:
                return each.exception()
        return None

    def start(self) -> asyncio.Task[Any]:
        """Begin a life; the task ends when the agent serves."""
        self.begin()
        self.stopping = False
        self.started = self.spawn(self._run())
        return self.started

    def stop(self) -> None:
        """Leave in good order, as SIGTERM asks; the process ends when that is done."""
        if self.alive and not self.stopping and self.app is not None:
            self.stopping = True
            self.network.trace(f"stop {self.identity}")
            self.spawn(self._stop(self.app))

    async def _stop(self, app: App) -> None:
        if self.started is not None and not self.started.done():
            self.started.cancel()
            await asyncio.wait([self.started])
        await app.stop()
        self.network.trace(f"stopped {self.identity}")
        self.crash()

    def set_clock_right(self) -> None:
        """Its wall clock jumps to the others'."""
        self.skew_ms = 0
        if self.clock is not None:
            self.clock.skew_ms = 0
            self.clock.set_right()

    async def _run(self) -> None:
        clock = self.clock = SimClock(self.loop, self.loop.random.getrandbits(48), self.skew_ms)
        ways, random = self.ways, self.loop.random
        self.log = _SmallEntries(self.server, clock, ways.entry_bytes, lambda: drawn(random, ways.log_s))
        self.log.member = self.member
        objects = DistantStore(self._objects, lambda: drawn(random, ways.store_s), self.hanging)
        self.store = FaultyStore(objects, random.getrandbits(48), self.rates, clock)
        self.store.held = self.held
        self.app = App(
            self._config(), clock=clock, log=self.log, store=RetryingStore(self.store, STORE_RETRY, clock)
        )
        self.relayed.append(self.app.relayed)
        self.http = cast(ASGIApp, self.app._http._server.config.app)
        self.app._http = cast(HttpServer, _NoHttp())
        _without_processes(self.app.background)
        self._of_version(self.app)
        await self.app.start()
        self.network.trace(f"serving {self.identity}")

    def _of_version(self, app: App) -> None:
        """Let it say the version that it is to have."""
        registration = app._registration

        def told(peer_address: str) -> RegisterAgent:
            message = registration(peer_address)
            message.feature_max = self.feature_max
            return message

        app._registration = told  # type: ignore[method-assign]  # what it makes is changed, not how

    def _config(self) -> Config:
        listener = {"host": HOST, "port": self.port, "advertised_host": HOST, "advertised_port": self.port}
        return Config.model_validate(
            {
                "log": {"url": "memory:", "lease_ttl_s": 3},
                "replica": {"heartbeat_ms": 1000},
                "store": {"url": "s3://sim/root"},
                "agent": {
                    "name": self.name,
                    "zone": "z" if "relay" in self.settings else f"z{self.number % 2}",
                },  # a rack of None would hash by its address
                "listeners": [listener],
                **self.settings,
            }
        )
