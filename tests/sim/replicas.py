"""Somebody follows the cluster by a bucket alone (docs/replica.md, docs/copy.md), while all goes wrong.

In a plan that archives a replica may follow the cluster's own bucket, one that the store replicates in any
order (replicated.py), or one that `floe copy --follow` keeps: all with the product's own code. Readers ask
the replica as they ask agents, and what they are given goes into the one history of the run: the same record
at the same offset, nothing of an aborted transaction, no hole, no way back. The witness compares its state
with the cluster's at every revision. The process that copies dies at its steps, the replica dies, stands
still and has stores that fail. In the end it has to come to where the cluster is, and show
exactly what that shows; and what the bucket was at some moments is promoted (promoted.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import Context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from agent.following.app import ReplicaApp
from agent.http import HttpServer
from coordination.clock import Clock
from coordination.copying.run import CannotCopy, Copying, CopyingOptions, Round, follow
from coordination.restore.source import CannotRestore
from coordination.state import StateError
from coordination.steps import COPY_STEPS
from iceberg.contents import problem
from objectstore.adapters.memory import MemoryStore
from objectstore.copied import NotOurCopy
from objectstore.copying import CopyOptions
from objectstore.faulty import FaultRates, FaultyStore
from objectstore.fingerprint import BrokenFingerprint
from objectstore.retry import RetryingStore
from objectstore.store import ObjectStore
from tests.checker.findings import Finding
from tests.sim import promoted
from tests.sim.clients import Reader, Surroundings
from tests.sim.clock import START_MS, SimClock
from tests.sim.distant_store import DistantStore, drawn
from tests.sim.faults.store import HEALTHY, RATES, REFUSED
from tests.sim.final import committed, read_all
from tests.sim.node import STORE_RETRY, AgentNode, _NoHttp
from tests.sim.replicated import REPLICATED, Replicated

if TYPE_CHECKING:
    from tests.sim.world import World

BUCKET, COPY = "bucket", "copy"
NUMBER = 50
"""Of the replica among nodes: behind all agents."""
FOLLOW = {"poll_ms": 300, "gap_wait_ms": 3000}
URL, EVERY_S, KEEP_S = "s3://sim/root", 0.7, 3.0
"""The bucket's, between two rounds, and how long a copy keeps what the source deletes."""
READERS = ("x0", "x1")
BEHIND_S_MAX = 40.0
"""Within which it comes to where the cluster is, when all is healed."""
TROUBLED_S, PAUSE_S = (0.3, 4.0), 2.0
FROZEN_S, FROZEN_MAX = 1.5, 8
STOPPED_S = 0.5


class ReplicaNode(AgentNode):
    """One real replica: everything but HTTP."""

    async def _run(self) -> None:
        clock = self.clock = SimClock(self.loop, self.loop.random.getrandbits(48), self.skew_ms)
        self.store = _faulty(self, self._objects, clock)
        app = ReplicaApp(self._config(), clock=clock, store=RetryingStore(self.store, STORE_RETRY, clock))
        self.app = app
        app._http = cast(HttpServer, _NoHttp())
        await app.start()
        self.network.trace(f"serving {self.identity}")


def _faulty(node: AgentNode, objects: ObjectStore, clock: Clock) -> FaultyStore:
    ways, random = node.ways, node.loop.random
    distant = DistantStore(objects, lambda: drawn(random, ways.store_s))
    return FaultyStore(distant, random.getrandbits(48), FaultRates(stale_writes=0), clock)


class Following:
    """The replica of a run, and what it follows; nothing where the plan has none."""

    def __init__(self, world: World) -> None:
        self._world, self.mode = world, world.plan.follows
        self.findings: list[Finding] = []
        self.frozen: list[Mapping[str, Any]] = []
        """What the bucket had at some moments."""
        self.copies: list[FaultyStore] = []
        """Of the process that copies: its source and its destination."""
        self.rounds = self.failed_rounds = 0
        self.bucket: MemoryStore = world.objects
        if not self.mode:
            return
        if self.mode != BUCKET:
            self.bucket = MemoryStore(lambda: START_MS + int(world.loop.time() * 1000))
        self.replicated = (
            Replicated(world.loop, world.objects, self.bucket) if self.mode == REPLICATED else None
        )
        settings = {"follow": FOLLOW, "agent": {"name": "replica", "zone": "z0", "node_id": NUMBER}}
        self.node = ReplicaNode(
            world.loop, world.network, "replica", NUMBER, (world.server, self.bucket), settings,
            world.plan.ways(),
        )  # fmt: skip

    def cast(self) -> list[str]:
        """Its clients, who copies, and who troubles both."""
        return [*READERS, "havoc", *["copier"] * (self.mode == COPY)] if self.mode else []

    def life(self, client: str, around: Surroundings) -> Any:
        """Of one of these; None of any other."""
        if client in READERS:
            return Reader(self.around(around))
        return (
            {"havoc": Havoc, "copier": Copier}[client](self, around)
            if client in ("havoc", "copier")
            else None
        )

    def around(self, around: Surroundings) -> Surroundings:
        """What those have around them who know the replica alone."""
        return replace(around, bootstrap=[self.node.bootstrap])

    def begin(self) -> None:
        """Start the replica."""
        if self.mode:
            self.node.start()

    def freeze(self) -> None:
        """Keep what the bucket has now."""
        if len(self.frozen) < FROZEN_MAX:
            self.frozen.append(dict(self.bucket._objects))

    def stores(self, rates: FaultRates) -> None:
        """Of the replica, and of who copies."""
        for store in [self.node.store, *self.copies]:
            if store is not None:
                store.rates = rates

    def restarted(self) -> None:
        """A replica that ended is started again, as its supervisor would; it must have had a reason."""
        error = self.node.error
        if isinstance(error, StateError):
            self.findings.append(Finding("replica-poisoned", "", f"{error!r}"[:300], ()))
        if error is not None:
            self._world.seen.counts[f"replica ended {type(error).__name__}"] += 1
            self.node.crash()
        if not self.node.alive:
            self.node.start()

    def heal(self) -> None:
        """All that was wrong is right."""
        self.stores(HEALTHY)
        self._world.loop.resume(self.node.identity)
        self.restarted()

    # The end.

    async def judged(self, around: Surroundings, read: Mapping[str, set[int]]) -> list[Finding]:
        """What it shows in the end against what the cluster's own agents showed (`read`: offsets by key)."""
        if not self.mode:
            return []
        self._world.seen.armed.clear()
        self.heal()
        if self.mode == COPY:
            self._world._begin_client("copier")
        due = self._world.server.revision
        if not await self._comes_to(due):
            at = self.node.app.replica.status() if self.node.app is not None else None
            told = f"{due} is due, {BEHIND_S_MAX:.0f} s long: {at}, {self.node.error!r}, {self.failed_rounds}"
            return [*self.findings, Finding("replica-behind", "", told, ())]
        found = await read_all(self.around(around))
        if found:
            return found
        shown = committed(around.recorder)
        for key in sorted(read.keys() | shown.keys()):
            missing, more = (
                sorted(a.get(key, set()) - b.get(key, set())) for a, b in ((read, shown), (shown, read))
            )
            if missing or more:
                self.findings.append(
                    Finding("replica-differs", key, f"not shown {missing}, added {more}", ())
                )
        self.frozen.append(dict(self.bucket._objects))
        if self.replicated is not None:
            self.frozen.append(self.replicated.arrived())
        self.findings += await promoted.judged(self._world, self.frozen)
        self._count()
        return self.findings

    async def _comes_to(self, revision: int) -> bool:
        try:
            async with asyncio.timeout(BEHIND_S_MAX):
                while not self.node.ready or self.node.app.replica.revision < revision:  # type: ignore[union-attr]  # it is ready
                    self.restarted()
                    await asyncio.sleep(STOPPED_S)
        except TimeoutError:
            return False
        return True

    def _count(self) -> None:
        counts = self._world.seen.counts
        counts[f"replica follows {self.mode}"] += 1
        counts["replica copy rounds"] += self.rounds
        counts["replica copy rounds that failed"] += self.failed_rounds
        counts["replica lives"] += self.node.life
        if self.replicated is not None:
            counts["replica objects overtaken"] += self.replicated.overtaken


class Copier:
    """`floe copy --follow`: one process."""

    def __init__(self, following: Following, around: Surroundings) -> None:
        self._following, self._around = following, around

    async def live(self) -> None:
        """Until it is killed. What ends the command is a finding."""
        following, world = self._following, self._following._world
        clock = SimClock(world.loop, world.loop.random.getrandbits(48))
        following.copies = [
            _faulty(following.node, each, clock) for each in (world.objects, following.bucket)
        ]
        source, target = (RetryingStore(each, STORE_RETRY, clock) for each in following.copies)
        options = CopyingOptions(
            CopyOptions(objects_max=4, bytes_max=1 << 16, check=problem), keep_deleted_s=KEEP_S
        )
        copying = Copying(source, target, URL, clock, options)
        try:
            await follow(copying, EVERY_S, clock, self._made, self._failed)
        except (CannotCopy, CannotRestore, NotOurCopy, BrokenFingerprint) as error:
            following.findings.append(Finding("copy-ended", "", repr(error)[:300], ()))

    def _made(self, made: Round) -> None:
        self._following.rounds += 1
        self._following._world.seen.counts["replica copy: objects the source lacks"] += made.missing_count
        self._following._world.seen.counts["replica copy: objects found damaged"] += made.damaged_count

    def _failed(self, error: Exception) -> None:
        self._following.failed_rounds += 1
        self._following._world.seen.counts[f"replica copy failed {type(error).__name__}"] += 1


class Havoc:
    """Does one thing after the other to the replica and to who copies, and puts it right again."""

    def __init__(self, following: Following, around: Surroundings) -> None:
        self._following, self._around = following, around

    async def live(self) -> None:
        """Until told to stop; what a life before has left is put right first."""
        following, random = self._following, self._around.loop.random
        following.heal()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._freeze())
            while not self._around.stopping.is_set():
                await asyncio.sleep(random.expovariate(1 / PAUSE_S))
                if self._around.stopping.is_set():
                    return
                name = random.choice(list(self._kinds()))
                following._world.trace(f"havoc {name}")
                following._world.seen.counts[f"havoc {name}"] += 1
                self._kinds()[name]()
                await asyncio.sleep(random.uniform(*TROUBLED_S))
                following.heal()

    def _kinds(self) -> dict[str, Any]:
        """By name what is done."""
        following, world = self._following, self._following._world
        node = following.node
        kinds: dict[str, Any] = {
            "kill": node.crash,
            "power-off": partial(node.crash, told=False),
            "pause": partial(world.loop.pause, node.identity),
            "bad-store": partial(following.stores, RATES),
            "no-store": partial(following.stores, REFUSED),
        }
        if following.mode == COPY:
            kinds["kill-copier"] = self._arm
        return kinds

    def _arm(self, *, dies: bool = True) -> None:
        """When who copies comes to one of its steps, the bucket of that moment is kept, and it dies."""
        world = self._following._world
        copier = next(each for each in world.clients if each.name == "copier")

        def happens() -> None:
            self._following.freeze()
            if dies:
                world.loop.call_soon(world.crash_client, copier, context=Context())

        world.seen.armed["copier"] = (world.loop.random.choice(COPY_STEPS), happens)

    async def _freeze(self) -> None:
        """Keep what a copy has at steps of its rounds. Of other buckets only the end is judged."""
        random = self._around.loop.random
        while self._following.mode == COPY and not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / FROZEN_S))
            if "copier" not in self._following._world.seen.armed:
                self._arm(dies=False)
