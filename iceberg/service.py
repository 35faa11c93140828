"""Runs the committers of this agent: one per topic, a bounded number at a time.

A topic is due when records came in (the replica tells) and its interval has passed. Whoever holds the topic's
claim commits it; for a topic that nobody holds, the agent that the rendezvous hash names goes first and the
others wait two intervals, so that the work spreads and still outlives any agent. A topic with a backlog makes
one commit and waits for its next turn behind the others that are due.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coordination.log import LogError
from coordination.replica.clock_watch import deletion_ms
from coordination.state import Applied, State
from coordination.state.members import runs_jobs
from coordination.state.types import Topic
from coordination.trouble import ERROR_LENGTH_MAX, Troubles
from iceberg.audited import Audits
from iceberg.claim import ClaimRefused, claim_name
from iceberg.head import enabled, follows, hoists, place, table_key
from iceberg.lag import TableLags
from iceberg.ledger import LedgerError
from iceberg.options import Committed, Parts
from iceberg.pace import Pace
from iceberg.pointer_commit import CommitError, LostRace, TableConflict
from iceberg.rendezvous import goes_first
from iceberg.status import TopicStatus
from iceberg.steps import Steps
from iceberg.writing import WriterDied
from objectstore import coalesced, tasks
from objectstore.batch import CorruptBatch
from objectstore.late import ready
from objectstore.removal import Removal
from objectstore.store import StoreError

if TYPE_CHECKING:
    from iceberg.committer import Committer
    from iceberg.writers import ProcessWriter

_logger = logging.getLogger("floe.iceberg.service")

SHOWN_S = 300.0
"""For how long the freshness of a table is told that has had nothing to commit since; seconds."""

STATUSES_MAX = 10_000
"""Topics whose last outcome is remembered; the oldest are forgotten."""
TOPICS_STEP = 100
"""Topics looked at before the event loop gets a turn."""


@dataclass(frozen=True, slots=True)
class ServiceOptions:
    """Times in seconds. A failing topic is tried again after `retry_s`, doubling up to `retry_s_max`.

    `writer_process` makes Parquet in a helper process, so that the event loop never waits for it;
    `objects_per_s_max` is of small commits (pace.py).
    """

    interval_s: float = 5.0
    objects_per_s_max: float = 0.0
    committers_in_flight_max: int = 2
    retry_s: float = 1.0
    retry_s_max: float = 60.0
    collect_s: float = 3600.0
    stop_s: float = 10.0
    writer_process: bool = True


@dataclass(slots=True)
class _Job:
    """One topic's place in the schedule. Times are the event loop's.

    `more`: its last commit left records, `large`: it was of much data. `over`: it is given up as soon as its
    claim is.
    """

    committer: Committer
    due: float
    failures: int = 0
    more: bool = False
    large: bool = False
    over: bool = False
    followed: float = 0.0
    collected: float = 0.0
    committed: float = 0.0
    bound: tuple[int | None, int | None, int, bool, bool] = (None, None, 0, False, False)
    problems: tuple[str, ...] = ()
    status: TopicStatus = field(default_factory=TopicStatus)


_OF_RECORDS = (CommitError, CorruptBatch, WriterDied)
"""What is in the way of some records, and of nothing else that is done for their table."""
_EXPECTED = (*_OF_RECORDS, ClaimRefused, LedgerError, TableConflict, LogError, StoreError, TimeoutError)

OnCommit = Callable[[str, Committed], None]


class CommitterService:
    """Starts with `start()`; `on_commit(topic, what)` is told of every commit."""

    def __init__(
        self,
        parts: Parts,
        options: ServiceOptions | None = None,
        *,
        steps: Callable[[str], Steps] | None = None,
    ) -> None:
        self._options = options or ServiceOptions()
        self._writer: ProcessWriter | None = None
        self._parts, self._ready = parts, False
        self._pace, self._removal = Pace(self._options.objects_per_s_max), Removal(parts.store.delete)
        self.on_commit: OnCommit | None = None
        self._steps = steps or (lambda topic: Steps())
        self._jobs: dict[str, _Job] = {}
        self._dirty: dict[str, int] = {}  # topic → wall clock of its newest record's entry, ms
        self._statuses: OrderedDict[str, TopicStatus] = OrderedDict()
        self._scanned: tuple[float, tuple[int, int]] = (0.0, (-1, -1))
        self._wake = asyncio.Event()
        self._freed = asyncio.Event()  # a turn ended: another topic may have it
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loop_task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self.lags = TableLags(parts.replica, parts.clock)
        """How far all tables are behind, whoever commits them."""
        self.audits = Audits(parts.replica, parts.store, parts.warehouse)
        """What audits found of all tables."""
        self.troubles = Troubles(parts.clock.now_ms)
        """Is told of every commit that failed, and of the one that did not after it."""

    def status(self) -> dict[str, TopicStatus]:
        """What became of the commits, by topic."""
        return dict(self._statuses)

    def status_of(self, topic: str) -> TopicStatus:
        """What became of a topic's commits here."""
        return self._statuses.get(topic) or TopicStatus()

    def problems(self) -> dict[str, tuple[str, ...]]:
        """What is wrong with the tables that this agent commits, by topic."""
        held = self._parts.replica.incarnation
        found = ((name, job) for name, job in self._jobs.items() if job.committer.claim.holds(held))
        return {name: job.status.problems for name, job in found if job.status.problems}

    def freshness_s(self) -> dict[str, float | None]:
        """By topic that this agent commits: how old the newest row was when it was committed, seconds.

        None before the first commit, and once nothing has come for SHOWN_S: the table has all there is.
        """
        state, now = self._parts.replica.state, asyncio.get_running_loop().time()
        found: dict[str, float | None] = {}
        for name, job in self._jobs.items():
            if name not in state.topics or not job.committer.claim.holds(self._parts.replica.incarnation):
                continue
            waits = name in self._dirty or name in self._running
            known = job.status.freshness_ms >= 0 and (waits or now - job.committed < SHOWN_S)
            found[name] = job.status.freshness_ms / 1000 if known else None
        return found

    def sizes(self) -> dict[str, tuple[int, int, int, float]]:
        """Of tables that this agent commits: files, bytes, snapshots, last compaction (Unix time, or 0)."""
        held, found = self._parts.replica.incarnation, {}
        for name, job in self._jobs.items():
            head = job.committer.head
            if head is not None and job.committer.claim.holds(held):
                kept = len(head.metadata["snapshots"])
                found[name] = (*head.size, kept, job.status.last_compaction_ms / 1000)
        return found

    def committer(self, topic: str) -> Committer | None:
        """The committer of a topic, when this agent has one."""
        job = self._jobs.get(topic)
        return job.committer if job is not None and not job.over else None

    async def start(self) -> None:
        """Begin to commit."""
        replica = self._parts.replica
        self._unlisten = replica.add_listener(self._applied)
        replica.add_reload_listener(self._reloaded)
        self._loop_task = tasks.kept(self._run, "tables")
        self.lags.start()
        self.audits.start()

    async def stop(self) -> None:
        """Let commits under way end within a bound, give the claims back. Idempotent."""
        self._unlisten()
        self._unlisten = lambda: None
        await self.lags.stop()
        await self.audits.stop()
        if self._loop_task is not None:
            self._loop_task.cancel()
            await asyncio.gather(self._loop_task, return_exceptions=True)
            self._loop_task = None
        if self._running:
            await asyncio.wait(list(self._running.values()), timeout=self._options.stop_s)
            for task in list(self._running.values()):
                task.cancel()
            await asyncio.gather(*self._running.values(), return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._options.stop_s):
                for job in self._jobs.values():
                    with suppress(LogError):
                        await job.committer.release()
        self._jobs.clear()
        if self._writer is not None:
            await self._writer.close()

    def _applied(self, applied: Applied) -> None:
        if not applied.touched and not applied.fenced:
            return
        state, now_ms = self._parts.replica.state, self._parts.clock.now_ms()
        if applied.fenced:  # its claims are free: somebody has to go on
            self._dirty.update({name: now_ms for name in state.topics if name not in self._dirty})
        partitions = state.partitions
        for handle in applied.touched:
            partition = partitions[handle]
            if partition is not None:
                self._dirty[partition.topic.name] = now_ms
        self._wake.set()

    def _reloaded(self, state: State) -> None:
        now_ms = self._parts.clock.now_ms()
        self._dirty.update(dict.fromkeys(state.topics, now_ms))
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        tick = min(1.0, max(0.01, self._options.interval_s / 5))
        while True:
            try:
                await self._refresh(loop.time())
                self._start_due(loop.time())
            except Exception as error:  # a defect: it is told, and the tables do not end in silence
                tasks.tell("look at the tables", error)
            self._wake.clear()
            await _within(tick, self._freed)
            self._freed.clear()
            if not self._dirty:
                await _within(self._options.interval_s, self._wake)

    async def _refresh(self, now: float) -> None:
        """Jobs for the topics there are; new topics and new bindings make a topic due without records."""
        state = self._parts.replica.state
        seen = (len(state.topics), state.next_schema_id)
        if seen == self._scanned[1] and now - self._scanned[0] < self._options.interval_s:
            return  # a look at every topic is not for every tick
        self._scanned = (now, seen)
        for number, name in enumerate(list(state.topics)):
            try:
                await self._make_ready(name)
                self._look(name, now)
            except Exception as error:  # a defect: it is told, and concerns no other topic's table
                tasks.tell("look at a table", error)
            if number % TOPICS_STEP == TOPICS_STEP - 1:
                await asyncio.sleep(0)
        for name in self._jobs:
            if name not in self._parts.replica.state.topics:
                self._end(name)
        self._dirty = {name: at_ms for name, at_ms in self._dirty.items() if name in self._jobs}

    async def _make_ready(self, name: str) -> None:
        """Import what makes tables, before the first topic that wants one is looked at."""
        state = self._parts.replica.state
        topic = state.topics.get(name)
        if self._ready or topic is None or not enabled(topic, state.cluster_configs):
            return
        await ready("iceberg.committer")
        await ready("iceberg.maintenance")
        if self._options.writer_process:
            await ready("iceberg.writers")
            from iceberg.writers import ProcessWriter

            self._writer = ProcessWriter()
            self._parts = replace(self._parts, writer=self._writer)
        self._ready = True

    def _look(self, name: str, now: float) -> None:
        """Whether a topic wants a table, and whether it is due for another reason than records."""
        state = self._parts.replica.state
        topic, cluster = state.topics.get(name), state.cluster_configs
        if topic is None:
            return  # deleted since the look began
        if not enabled(topic, cluster):
            if name in self._jobs:
                self._end(name)
            return
        schemas = (topic.key_schema_id, topic.value_schema_id)
        bound = (*schemas, len(topic.partitions), follows(topic, cluster), hoists(topic, cluster))
        job = self._jobs.get(name)
        if job is None or job.over:
            from iceberg.committer import Committer

            job = _Job(Committer(self._parts, name, self._steps(name)), now + self._head_start(topic))
            self._jobs[name] = job
        elif (
            job.bound == bound
            and place(state, topic) == table_key(topic)
            and not job.committer.compaction_due
        ):
            return  # a table that shall have another name is looked at until it has it
        job.bound = bound
        self._dirty.setdefault(name, self._parts.clock.now_ms())

    def _end(self, name: str) -> None:
        """Give up the table of a topic that is gone or wants none, once nothing of it is under way."""
        self._jobs[name].over = True
        if name not in self._running:
            self._running[name] = tasks.start(self._give_up(name, self._jobs[name]), "give up a table")

    def _head_start(self, topic: Topic) -> float:
        """Seconds that this agent leaves to the one that the rendezvous hash names."""
        if goes_first(self._parts.replica, topic.topic_id):
            return 0.0
        return 2 * self._options.interval_s

    async def _give_up(self, name: str, job: _Job) -> None:
        """Forget the topic, once its claim is given back: else the next look gives it up again."""
        await self._release(name, job)
        if self._jobs.get(name) is job and job.committer.claim.held() is None:
            del self._jobs[name]

    def _start_due(self, now: float) -> None:
        replica = self._parts.replica
        if not runs_jobs(replica.state, replica.incarnation):
            self._leave_to_others()
            return
        allowed = self._pace.allows(now)
        for name in list(self._dirty):
            if len(self._running) >= self._options.committers_in_flight_max:
                return
            job = self._jobs.get(name)
            if job is not None and (job.due > now or not (allowed or job.large)) and not job.failures:
                continue  # of very many a look at each claim takes too long
            if job is None or job.over or self._held_by_another(name):
                self._dirty.pop(name)
                self._passed_on(name)
            elif name not in self._running and job.due <= now:
                self._running[name] = tasks.start(self._commit(name, job), "commit a table")

    def _leave_to_others(self) -> None:
        """Release what this agent holds: agents live whose role it is."""
        for name, job in self._jobs.items():
            self._passed_on(name)
            if name not in self._running and job.committer.claim.held() is not None:
                self._running[name] = tasks.start(self._release(name, job), "release a table")

    async def _release(self, name: str, job: _Job) -> None:
        try:
            with suppress(LogError):
                await job.committer.release()
        finally:
            self._running.pop(name, None)
            self._passed_on(name)

    def _passed_on(self, name: str) -> None:
        """Whether the topic's table fails is not this agent's to tell any more."""
        self.troubles.passed_on(f"table of {name}")

    def _held_by_another(self, name: str) -> bool:
        replica = self._parts.replica
        holder = replica.state.claims.get(claim_name(name))
        return holder is not None and holder.incarnation != replica.incarnation

    async def _commit(self, name: str, job: _Job) -> None:
        """One turn of a topic; what is left of it, and what comes in meanwhile, makes it due again."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        newest_ms = self._dirty.pop(name, self._parts.clock.now_ms())
        self._remember(name, job)
        try:
            with job.committer.turn():
                await self._turn(name, job, newest_ms)
            job.failures, job.status.last_error, job.status.failing_since_ms = 0, "", 0
            self.troubles.worked(f"table of {name}")
            waits = self._options.interval_s
        except LostRace as race:
            _logger.info("topic %s: %s", name, race)
            waits = self._failed(name, job, race, newest_ms)
        except _EXPECTED as error:
            waits = self._failed(name, job, error, newest_ms)
        except BaseException as error:  # evidence in the log; the other topics carry on
            if tasks.cancelled(error):
                raise
            tasks.tell("commit of a table", error)
            waits = self._failed(name, job, error, newest_ms)
        finally:
            self._note_problems(job)
            self._running.pop(name, None)
            self._wake.set()
            self._freed.set()
        job.due = started + waits
        if job.more:  # behind all that are due by now, and at once if none is
            job.due = loop.time()
            self._dirty[name] = self._dirty.pop(name, newest_ms)

    async def _turn(self, name: str, job: _Job, newest_ms: int) -> None:
        """One commit, and what else the table needs in its own time: whatever becomes of the commit."""
        job.more = False
        try:
            done = await job.committer.run_once()
        except _OF_RECORDS:
            await self._beside(job)
            raise
        if done is not None:
            job.more = done.more
            self._note(name, job, done, newest_ms)
        await self._beside(job)

    def _note_problems(self, job: _Job) -> None:
        job.status.problems = (*job.problems, *job.committer.problems)

    async def _beside(self, job: _Job) -> None:
        """Let old rows and files go; with a backlog no more often than a topic without one would."""
        now = asyncio.get_running_loop().time()
        if not job.more or now - job.followed >= self._options.interval_s:
            job.followed = now
            await job.committer.follow()
        await self._compact(job)
        await self._collect(job, now)

    async def _compact(self, job: _Job) -> None:
        """Make large files of small ones; what is left is for the next turn, with records or without."""
        done, status = await job.committer.compact(), job.status
        if done is not None:
            status.compactions += 1
            status.files_compacted += done.files_read
            status.bytes_compacted += done.bytes
            status.last_compaction_ms = self._parts.clock.now_ms()
            _logger.info(
                "topic %s: %d small files are %d now", job.committer.topic, done.files_read, done.files
            )
        if job.committer.compaction_due:
            self._dirty.setdefault(job.committer.topic, self._parts.clock.now_ms())

    def _remember(self, name: str, job: _Job) -> None:
        self._statuses[name] = job.status
        self._statuses.move_to_end(name)
        if len(self._statuses) > STATUSES_MAX:
            self._statuses.popitem(last=False)

    def _note(self, name: str, job: _Job, done: Committed, newest_ms: int) -> None:
        status = job.status
        status.commits += 1
        status.rows += done.rows
        status.bytes += done.bytes
        status.last_commit_ms, job.problems = self._parts.clock.now_ms(), done.problems
        job.large = done.more or self._pace.large(done.files, done.bytes)
        job.committed = asyncio.get_running_loop().time()
        if not done.more and done.rows:
            status.freshness_ms = max(0, self._parts.clock.now_ms() - newest_ms)
        if self.on_commit is not None:
            self.on_commit(name, done)

    def _failed(self, name: str, job: _Job, error: BaseException, newest_ms: int) -> float:
        job.failures += 1
        job.status.failures += 1
        job.status.last_error = f"{type(error).__name__}: {error}"[:ERROR_LENGTH_MAX]
        job.status.failing_since_ms = job.status.failing_since_ms or self._parts.clock.now_ms()
        if not isinstance(error, LostRace):
            self.troubles.failed(f"table of {name}", error)
        self._dirty.setdefault(name, newest_ms)
        factor = float(2 ** min(job.failures - 1, 16))
        return min(self._options.retry_s_max, self._options.retry_s * factor)

    async def _collect(self, job: _Job, now: float) -> None:
        if not job.collected:
            job.collected = now  # not at once: a start is busy enough
        if now - job.collected < self._options.collect_s:
            return
        job.collected = now
        parts = self._parts
        # Before the barrier: whatever a successor makes is younger.
        now_ms = deletion_ms(parts.replica.state, parts.clock.now_ms())
        head = await job.committer.settled_head()
        if head is None:
            return
        from iceberg import maintenance

        grace_s, removal = parts.options.orphan_grace_s, self._removal
        count = await maintenance.collect(
            parts.store, parts.warehouse, head, now_ms, grace_s, Steps(), removal
        )
        if count:
            _logger.info("topic %s: removed %d files that no snapshot names", job.committer.topic, count)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for the event, at most so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(coalesced.pause_s(seconds)):
            await event.wait()
