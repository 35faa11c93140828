"""How well this agent is: checks by name, the probes that feed them, the reasons why it is not ready.

What real traffic does is evidence (watched.py). Where there is none, a probe asks: one small PUT, one look
at one object, one read barrier, each every `health.probe_interval_ms`, and at once where something hangs.
Appends have heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from agent.config import Config
from agent.health.checks import Applying, Asked, Bad, Check, LoopDelay, Tried
from agent.health.evidence import Evidence
from agent.health.pace import Bounds, Paces
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from coordination.log import LogError
from coordination.replica import Replica
from coordination.trouble import Trouble, Troubles
from objectstore import coalesced, tasks
from objectstore.store import NotFound, ObjectStore, StoreError

_log = logger("health")

TICK_S = 0.25  # between two looks
SUSPECT_S = 0.5  # unanswered for this long, a probe asks too
AGE_S_MAX = 1.0  # evidence that /readyz takes for new
TOLD_S = 1.0  # a check that was bad for less is not worth a line
PROBE_OBJECT = "cluster.json"  # there as long as the cluster is
PROBE_FOLDER = "preflight/"  # with a small object of each agent, written again and again


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's answer. `message`: what is wrong, `for_s`: how many seconds; empty when it is fine."""

    name: str
    ok: bool
    latency_ms: float
    message: str = ""
    for_s: float = 0.0
    leaves: bool = False


class Signals:
    """What becomes of this agent's calls to the log and the store. Made before both."""

    def __init__(self) -> None:
        now = asyncio.get_running_loop().time
        self.log_reads = Evidence(now)
        self.appends = Evidence(now)
        self.store_reads = Evidence(now)
        self.store_writes = Evidence(now)


class Health:
    """One agent's. `start` begins to look by itself; until then it looks when it is asked."""

    waits_for = ""
    """What the agent's start waits for, and why; empty when for nothing."""
    _found: list[Finding] | None = None

    def __init__(
        self, config: Config, replica: Replica, store: ObjectStore, signals: Signals, troubles: Troubles
    ) -> None:
        given = config.health
        self.troubles = troubles
        self.stopping = False
        """Once it leaves."""
        self.why_aside: Callable[[], str] = str
        """Why clients are not sent to this agent; empty when they are (standing.py)."""
        self.on_look: list[Callable[[], None]] = []
        """Called after every look."""
        self._replica, self._store = replica, store
        self._loop = asyncio.get_running_loop()
        self._interval_s = given.probe_interval_ms / 1000
        self._patience_s = given.patience_ms / 1000
        self._timeout_s = config.http.barrier_timeout_ms / 1000
        self._answer_s = given.answer_ms_max / 1000
        now = self._loop.time
        self.paces = Paces(replica, now, signals.appends, signals.store_writes, Bounds.of(given))
        """How fast this agent is beside the others."""
        self.delay = LoopDelay(self._loop.time)
        tried = (
            Tried("log", signals.log_reads, AGE_S_MAX),
            Tried("append", signals.appends, AGE_S_MAX, self.paces.appends_slow),
            Tried("store", signals.store_reads, AGE_S_MAX),
            Tried("store write", signals.store_writes, AGE_S_MAX, self.paces.writes_slow),
        )
        self._checks: list[Check] = [*tried, Applying(replica, self._loop.time), self.delay]
        self._add_those_of(replica)
        log, _, reads, writes = tried
        self._asked: dict[Tried, tuple[Callable[[], Awaitable[object]], bool]] = {
            log: (replica.barrier, True),
            reads: (self._read, True),
            writes: (self._write, False),  # what costs is not asked while traffic tells
        }
        self._probed: dict[Tried, float] = {}  # when each was asked last
        self._probes: dict[Tried, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._entered = asyncio.Event()
        self._bad = Episodes(_log, now, begins="a check is bad", ends="a check is fine again")

    def _add_those_of(self, replica: Replica) -> None:
        watch = replica.clock_watch
        self.add("clock", lambda: watch.reason if watch.off else "")
        self.add("state", lambda: replica.doubt.reason)

    # What it says.

    @property
    def joining(self) -> bool:
        """Until clients are sent to this agent."""
        return not self._entered.is_set()

    def entered(self) -> None:
        """Clients are sent to this agent from now on. Idempotent."""
        self._entered.set()

    def add(self, name: str, ask: Callable[[], str], *, leaves: bool = True) -> None:
        """A further check: `ask` says what is wrong, empty when nothing is. It is called often: be quick."""
        self._checks.append(Asked(name, ask, self._loop.time, leaves))

    def findings(self) -> list[Finding]:
        """What every check says, as of now: of this look, while one goes on."""
        return self._found if self._found is not None else [_finding(check) for check in self._checks]

    def failure(self) -> str | None:
        """Why this agent can work no more (a broken invariant, a newer feature level); None when it can."""
        failed = self._replica.failed
        return str(failed.exception()) if failed.done() and not failed.cancelled() else None

    def reasons(self) -> list[str]:
        """Why this agent is not ready; empty when it is. /readyz, floe_ready and the status say just this."""
        reasons, aside = self.faults(), self.why_aside()
        if aside:
            reasons.append(f"this agent has stepped aside: {aside}")
        if self.stopping:
            reasons.append("the agent is shutting down")
        return reasons

    def faults(self) -> list[str]:
        """What keeps this agent from doing its work; empty when nothing does."""
        reasons = [f"{found.name}: {found.message}" for found in self.findings() if not found.ok]
        failure = self.failure()
        if failure:
            reasons.append(f"this agent must be restarted: {failure}")
        elif not self._replica.ready:
            unregistered = "the replica is not registered with the log, or verifies itself after a pause"
            reasons.append(self.waits_for or unregistered)
        elif self.joining:
            reasons.append("the agent is warming up: clients are not sent to it yet")
        return reasons

    def grave(self) -> list[Finding]:
        """What has been bad for so long that clients are better served elsewhere."""
        return [f for f in self.findings() if not f.ok and f.leaves and f.for_s >= self._patience_s]

    def failing(self) -> list[Trouble]:
        """The jobs that fail again and again, the longest first."""
        return self.troubles.now()

    # Looking.

    async def refresh(self) -> None:
        """Ask what was not asked within AGE_S_MAX, side by side; at most for `health.answer_ms_max`.

        What has not answered by then goes on, within `http.barrier_timeout_ms`; the next look knows of it.
        Where nothing keeps the start waiting, its end is waited for as long: who probes once a second would
        learn of it a second late.
        """
        now = self._loop.time()
        for check, (_, cheap) in self._asked.items():
            age_s = now - (self._probed.get(check, -1e9) if cheap else check.evidence.begun)
            if age_s >= (AGE_S_MAX if cheap else self._interval_s):
                self._probe(check, self._timeout_s)
        if self._probes:
            await asyncio.wait(list(self._probes.values()), timeout=self._answer_s)
        if self.joining and not self.waits_for:
            with suppress(TimeoutError):
                async with asyncio.timeout_at(now + self._answer_s):
                    await self._entered.wait()
        if self.joining:  # not ready anyhow: what it waits for is told at once
            for check in list(self._probes):
                check.evidence.unanswered(self._probed[check])

    def start(self) -> None:
        """Clients are sent to this agent; look by itself from here on."""
        self.entered()
        self._task = tasks.kept(self._run, "health")

    async def stop(self) -> None:
        """End the looking. Idempotent."""
        tasks = [*self._probes.values(), *([self._task] if self._task is not None else [])]
        self._task = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            before, pause_s = self._loop.time(), coalesced.pause_s(TICK_S)
            await asyncio.sleep(pause_s)
            self.delay.turn(self._loop.time() - before - pause_s)
            try:
                self._look()
            except Exception:  # a defect of one check must not end the others
                _log.exception("looking at this agent's health")

    def _look(self) -> None:
        self._found = self.findings()  # asked once a look: all of it is one moment
        try:
            self._look_around()
        finally:
            self._found = None

    def _look_around(self) -> None:
        self._tell()
        now, in_doubt = self._loop.time(), self.paces.in_doubt()
        for check, (_, cheap) in self._asked.items():
            suspect = check.look() is not None or check.slow or check.evidence.bad_s() > SUSPECT_S
            interval_s = SUSPECT_S if suspect or (in_doubt and not cheap) else self._interval_s
            if now - check.evidence.begun >= interval_s:
                self._probe(check, self._patience_s)
        for tell in self.on_look:
            tell()

    def _tell(self) -> None:
        """Each check that is bad is an episode of the log."""
        for found in self.findings():
            if found.ok:
                self._bad.over(found.name, check=found.name)
            elif found.for_s >= TOLD_S:
                self._bad.met(found.name, check=found.name, reason=found.message)

    def _probe(self, check: Tried, timeout_s: float) -> None:
        if check not in self._probes:
            self._probed[check] = self._loop.time()
            task = tasks.start(self._ask(check, timeout_s), f"probe {check.name}")
            self._probes[check] = task
            task.add_done_callback(lambda _: self._probes.pop(check, None))

    async def _ask(self, check: Tried, timeout_s: float) -> None:
        """Ask; what becomes of it is noted by who carries it out."""
        ask, _ = self._asked[check]
        began = self._loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                await ask()
        except TimeoutError:
            check.evidence.unanswered(began)
        except (LogError, StoreError, OSError):
            pass

    async def _read(self) -> None:
        with suppress(NotFound):  # that is an answer, too
            await self._store.head(PROBE_OBJECT)

    async def _write(self) -> None:
        if self._replica.node_id >= 0:
            await self._store.put(f"{PROBE_FOLDER}agent-{self._replica.node_id}", [b"floe"])


def _finding(check: Check) -> Finding:
    bad: Bad | None = check.look()
    if bad is None:
        return Finding(check.name, True, check.latency_ms())
    return Finding(check.name, False, check.latency_ms(), bad.reason, bad.for_s, check.leaves)
