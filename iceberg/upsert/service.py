"""Runs the latest tables of this agent: one turn at a time, of the topic that waits longest.

A table is due when its append table has rows that it lacks and `Pace` says so. Whoever holds the claim goes
on with it; a table that nobody holds is first left to the agent that the rendezvous hash names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordination.log import LogError
from coordination.replica.clock_watch import deletion_ms
from coordination.state.members import runs_jobs
from coordination.trouble import ERROR_LENGTH_MAX, Troubles
from iceberg.claim import ClaimRefused
from iceberg.latest_ids import claim_name, wanted
from iceberg.options import Parts
from iceberg.pointer_commit import CommitError, LostRace, TableConflict
from iceberg.rendezvous import goes_first
from iceberg.steps import Steps
from iceberg.upsert.lags import LatestLags
from iceberg.upsert.plan import Pace
from iceberg.upsert.steps import UpsertSteps
from objectstore import coalesced, tasks
from objectstore.late import ready
from objectstore.removal import Removal
from objectstore.store import StoreError

if TYPE_CHECKING:
    from coordination.state.types import Topic
    from iceberg.upsert.committer import LatestCommitter, Upserted

_logger = logging.getLogger("floe.iceberg.upsert")

_EXPECTED = (CommitError, ClaimRefused, TableConflict, LogError, StoreError, TimeoutError)
TOPICS_STEP = 100
"""Topics looked at before the event loop gets a turn."""


@dataclass(frozen=True, slots=True)
class UpsertOptions:
    """Times in seconds. `busy_percent_max`: share of a table's time that goes into its turns. A failing table
    is tried again after `retry_s`, doubling up to `retry_s_max`.
    """

    interval_s: float = 5.0
    pace: Pace = Pace()  # noqa: RUF009  # frozen
    busy_percent_max: int = 25
    retry_s: float = 1.0
    retry_s_max: float = 60.0
    collect_s: float = 3600.0
    stop_s: float = 10.0


@dataclass(slots=True)
class LatestStatus:
    """What became of a table's turns here: how many, rows that they read, bytes that they wrote; rows without
    a key, and values that were no envelope. `last_ms`, `failing_since_ms`: Unix ms, of the last turn and of
    the first that failed since; 0 for none.
    """

    turns: int = 0
    rows: int = 0
    bytes: int = 0
    keyless: int = 0
    unusable: int = 0
    failures: int = 0
    last_ms: int = 0
    last_error: str = ""
    failing_since_ms: int = 0


@dataclass(slots=True)
class _Job:
    """One table's place in the schedule. Times are the event loop's; `since`: when rows began to wait."""

    committer: LatestCommitter
    due: float
    collected: float
    since: float = -1.0
    failures: int = 0
    more: bool = False
    status: LatestStatus = field(default_factory=LatestStatus)


class UpsertService:
    """Starts with `start()`."""

    def __init__(
        self,
        parts: Parts,
        options: UpsertOptions | None = None,
        *,
        steps: Callable[[str], UpsertSteps] | None = None,
    ) -> None:
        """`steps`: who is told of a topic's turns."""
        self._parts = parts
        self._options = options or UpsertOptions()
        self._steps = steps or (lambda topic: UpsertSteps())
        self._jobs: dict[str, _Job] = {}
        self._removal = Removal(parts.store.delete)
        self._task: asyncio.Task[None] | None = None
        self.lags = LatestLags(parts.replica, parts.clock)
        """How far all latest tables are behind, whoever keeps them."""
        self.troubles = Troubles(parts.clock.now_ms)
        """Is told of every turn that failed, and of the one that did not after it."""

    def status_of(self, topic: str) -> LatestStatus | None:
        """What became of a topic's latest table here; None where this agent does not hold it."""
        job = self._held(topic)
        return job.status if job is not None else None

    def problems_of(self, topic: str) -> tuple[str, ...]:
        """What is wrong with a topic's latest table though it goes on; nothing where another keeps it."""
        job = self._held(topic)
        if job is None:
            return ()
        told, count = [job.committer.conflict], job.status.keyless
        if count:
            told.append(f"records without a key were passed over by this agent: {count}; give each a key")
        return tuple(filter(None, told))

    def problems(self) -> dict[str, int]:
        """How many problems the tables have that this agent keeps, by topic."""
        return {name: len(self.problems_of(name)) for name in self._jobs if self._held(name) is not None}

    def sizes(self) -> dict[str, tuple[int, int, int]]:
        """Files, bytes and snapshots of the tables that this agent keeps, by topic."""
        sizes = ((name, self.size_of(name)) for name in self._jobs)
        return {name: size for name, size in sizes if size is not None}

    def size_of(self, topic: str) -> tuple[int, int, int] | None:
        """The same of one; None where another agent keeps it, or nobody."""
        job = self._held(topic)
        head = job.committer.head if job is not None else None
        return None if head is None else (*head.size, len(head.metadata["snapshots"]))

    def _held(self, topic: str) -> _Job | None:
        job = self._jobs.get(topic)
        return job if job is not None and job.committer.claim.held() is not None else None

    async def start(self) -> None:
        """Begin."""
        self._task = tasks.kept(self._run, "latest tables")
        self.lags.start()

    async def stop(self) -> None:
        """End, wherever it is, and give the claims back within a bound. Idempotent."""
        await self.lags.stop()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.stop_s):
                for job in self._jobs.values():
                    with suppress(LogError):
                        await job.committer.release()
        self._jobs.clear()

    async def _run(self) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # a defect: it is told, and the tables do not end in silence
                tasks.tell("look at latest tables", error)
            await asyncio.sleep(coalesced.pause_s(self._options.interval_s))

    async def _look(self) -> None:
        """One turn of each table that is due, the one that waits longest first."""
        await self._refresh()
        replica = self._parts.replica
        if not runs_jobs(replica.state, replica.incarnation):
            for name in list(self._jobs):
                await self._forget(name)
            return
        now = asyncio.get_running_loop().time()
        due = [name for name, job in self._jobs.items() if self._is_due(job, now)]
        for name in sorted(due, key=lambda each: self._jobs[each].since):
            if name in self._jobs:
                await self._one(name, self._jobs[name])

    async def _refresh(self) -> None:
        """Jobs for the topics that want a latest table."""
        state, now = self._parts.replica.state, asyncio.get_running_loop().time()
        for number, name in enumerate(list(state.topics)):
            topic = state.topics.get(name)
            if topic is not None and wanted(topic, state.cluster_configs, state.feature_level):
                if name not in self._jobs:
                    await ready("iceberg.upsert.committer")
                    await ready("iceberg.maintenance")
                    self._jobs[name] = self._job(topic, now)
            elif name in self._jobs:
                await self._forget(name)
            if number % TOPICS_STEP == TOPICS_STEP - 1:
                await asyncio.sleep(0)
        for name in [each for each in self._jobs if each not in self._parts.replica.state.topics]:
            await self._forget(name)

    def _job(self, topic: Topic, now: float) -> _Job:
        ahead = 0.0 if goes_first(self._parts.replica, topic.topic_id) else 2 * self._options.interval_s
        from iceberg.upsert.committer import LatestCommitter

        committer = LatestCommitter(self._parts, topic.name, self._steps(topic.name))
        return _Job(committer, now + ahead, now)

    async def _forget(self, name: str) -> None:
        """Leave a table to others, or for good; the next look tries again where the log is away."""
        with suppress(LogError):
            await self._jobs[name].committer.release()
            del self._jobs[name]
            self.troubles.passed_on(_title(name))

    def _is_due(self, job: _Job, now: float) -> bool:
        """Whether it is time, and no other agent's business."""
        replica = self._parts.replica
        holder = replica.state.claims.get(claim_name(job.committer.topic))
        if holder is not None and holder.incarnation != replica.incarnation:
            job.since = -1.0
            return False
        new, rows = job.committer.waiting()
        if not new and not job.more:
            job.since = -1.0
            return job.committer.misnamed and job.due <= now
        if job.since < 0:
            job.since = now
        return job.due <= now and (job.more or self._options.pace.due(new, rows, now - job.since))

    async def _one(self, name: str, job: _Job) -> None:
        """One turn; what it cost says when the next may be."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        try:
            with job.committer.turn():
                done = await job.committer.run_once()
                await self._collect(job, started)
        except LostRace as race:
            _logger.info("latest table of %s: %s", name, race)
            self._failed(name, job, race)
        except _EXPECTED as error:
            self._failed(name, job, error)
        except BaseException as error:  # evidence in the log; the other topics carry on
            if tasks.cancelled(error):
                raise
            tasks.tell("turn of a latest table", error)
            self._failed(name, job, error)
        else:
            self._worked(name, job, done)
            took = loop.time() - started
            job.due = loop.time() + took * (100 / self._options.busy_percent_max - 1)

    def _worked(self, name: str, job: _Job, done: Upserted | None) -> None:
        status = job.status
        job.failures, job.since, status.last_error, status.failing_since_ms = 0, -1.0, "", 0
        job.more = done is not None and done.more
        self.troubles.worked(_title(name))
        if done is None:
            return
        status.turns += 1
        status.rows += done.read
        status.bytes += done.bytes
        status.keyless += done.keyless
        status.unusable += done.unusable
        status.last_ms = self._parts.clock.now_ms()
        if done.keyless or done.unusable:
            said = "latest table of %s: passed over %d records without a key, %d that are no envelope"
            _logger.warning(said, name, done.keyless, done.unusable)

    def _failed(self, name: str, job: _Job, error: BaseException) -> None:
        job.failures += 1
        job.status.failures += 1
        job.status.failing_since_ms = job.status.failing_since_ms or self._parts.clock.now_ms()
        job.status.last_error = f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
        if not isinstance(error, LostRace):
            self.troubles.failed(_title(name), error)
        waits = self._options.retry_s * float(2 ** min(job.failures - 1, 16))
        job.due = asyncio.get_running_loop().time() + min(self._options.retry_s_max, waits)

    async def _collect(self, job: _Job, now: float) -> None:
        """Remove files that no snapshot of the table names."""
        if now - job.collected < self._options.collect_s:
            return
        job.collected = now
        parts = self._parts
        # Before the barrier: whatever a successor makes is younger.
        now_ms = deletion_ms(parts.replica.state, parts.clock.now_ms())
        head = await job.committer.settled_head()
        if head is not None:
            grace_s, removal = parts.options.orphan_grace_s, self._removal
            from iceberg import maintenance

            await maintenance.collect(parts.store, parts.warehouse, head, now_ms, grace_s, Steps(), removal)


def _title(topic: str) -> str:
    return f"latest table of {topic}"
