"""One agent's replica of the cluster's state: follows the log, applies it, and writes to it.

Everything a handler needs: `state` to look at, `submit` to change it, `barrier` to be sure it is fresh.
Take `replica.state` anew after every await: a reload from a snapshot replaces the object.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from coordination.clock import Clock
from coordination.commands import (
    Command,
    EnterMetadata,
    FenceIncarnation,
    Heartbeat,
    LeaveMetadata,
    RegisterAgent,
    command,
)
from coordination.log import Log, LogEntry, LogError, LogRegressed, Unavailable
from coordination.replica.author import Author
from coordination.replica.clock_watch import ClockWatch
from coordination.replica.doubt import Doubt
from coordination.replica.errors import ReplicaFailed
from coordination.replica.follower import Follower
from coordination.replica.options import ReplicaOptions
from coordination.replica.proposals import Line, Proposals, Results
from coordination.state import Applied, Result, State, StateError
from coordination.state.types import serving_of
from objectstore import coalesced, tasks
from objectstore.store import ObjectStore

CONFIRM_LOOK_S = 0.05
"""Between two looks whether others have the same state, seconds."""
CONFIRM_ASKS = 10
"""Every so many looks they are asked: under load they say so by themselves."""
_logger = logging.getLogger("floe.coordination.replica")


class Replica:
    """Lives in one event loop. `failed` is done, with the reason, when this agent must stop."""

    follower_type: type[Follower] = Follower

    def __init__(
        self, log: Log, store: ObjectStore, clock: Clock, options: ReplicaOptions | None = None
    ) -> None:
        self.options = options or ReplicaOptions()
        self.on_wake: list[Callable[[], None]] = []  # called after a pause longer than the lease
        self._log = log
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._proposals = Proposals(
            self._loop.time,
            self.options.queue_bytes_max,
            self.options.queue_proposals_max,
            log.entry_bytes_max,
        )
        self._follower = self.follower_type(log, store, self.options)
        self._author = Author(log, clock, self.options, self._follower, self._proposals)
        self._follower.listeners.append(self._author.applied)
        self._follower.on_reload.append(self._author.reloaded)
        self._follower.doubt.on_doubt.append(self._serve_nobody)
        self.clock_watch = ClockWatch(2 * self.options.heartbeat_s)
        self._tasks: list[asyncio.Task[None]] = []
        self._next_barrier: asyncio.Future[int] | None = None
        self._last_tick = self._loop.time()
        self._verified = True
        self.failed: asyncio.Future[None] = self._loop.create_future()
        self.failed.add_done_callback(lambda done: done.cancelled() or done.exception())

    # What others look at.

    @property
    def state(self) -> State:
        """The replicated state. Look, never touch; do not keep it over an await."""
        return self._follower.state

    @property
    def revision(self) -> int:
        """Everything in the log at or below this was applied."""
        return self._follower.through

    @property
    def incarnation(self) -> int:
        """This run's number in the log; 0 while there is none (starting, or registering again)."""
        return self._author.incarnation

    @property
    def node_id(self) -> int:
        """The broker id that the state gave this agent; -1 before."""
        return self._author.node_id

    @property
    def lag(self) -> int:
        """Revisions known to be in the log and not yet applied."""
        return self._follower.lag

    @property
    def ready(self) -> bool:
        """Registered, verified after the last pause, and not failed."""
        return bool(self.incarnation) and self._verified and not self.failed.done() and not self.doubt.reason

    @property
    def doubt(self) -> Doubt:
        """Whether this agent's state is what others have, and what became of it where it was not."""
        return self._follower.doubt

    def wall_ms(self) -> int:
        """The time for stamps that clients see, Unix ms: this agent's clock unless others say otherwise.

        One that is behind is known at once: the log's clock is ahead by the stated skew at most.
        """
        agreed_ms = self.clock_watch.agreed_ms
        return agreed_ms if self.clock_watch.off else max(agreed_ms, self._clock.now_ms())

    def status(self) -> dict[str, object]:
        """For status pages: where this replica stands and what it waits for."""
        state = self.state
        return {
            "ready": self.ready,
            "incarnation": f"{self.incarnation:016x}" if self.incarnation else None,
            "node_id": self.node_id,
            "revision": state.revision,
            "through": self.revision,
            "state_hash": state.hash,
            "state_confirmed_through": self._follower.comparison.confirmed,
            "state_doubt": self.doubt.reason,
            "state_disputes": dict(self.doubt.counts),
            "feature_level": state.feature_level,
            "lag_revisions": self.lag,
            "log_clock_ms": state.clock_ms,
            "log_clock_doubt_ms": state.clock_doubt_ms,
            "clock_skew_ms": self.clock_watch.skew_ms,
            "clock_off": self.clock_watch.off,
            "queued_proposals": self._proposals.queued,
            "queued_bytes": self._proposals.queued_bytes,
            "parked_entries": self._proposals.parked,
            "brokers": len(state.brokers),
            "topics": len(state.topics),
            "partitions": state.partition_count,
            "trimmed_through": state.trimmed_through,
            "snapshots": [snapshot.revision for snapshot in state.snapshots],
            "last_error": self._follower.last_error,
            "failed": str(self.failed.exception()) if self.failed.done() else None,
        }

    # Life.

    async def start(self, register: RegisterAgent) -> None:
        """Load, catch up, register; returns once this agent counts. Waits while log or store are away.

        Raises LogRegressed, StateError, ReplicaFailed when this agent cannot take part; then stop() it.
        """
        self._author.registration = register
        await self._follower.load()
        self._last_tick = self._loop.time()  # waiting for a log or a store that was not there is no pause
        self._run(self._follower.run())
        self._run(self._housekeep())
        self._run(self._catch_up_and_write())
        registered = tasks.owned(self._author.registered.wait(), "registration")
        either: list[asyncio.Future[Any]] = [registered, self.failed]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if self.failed.done():
                self.failed.result()
        finally:
            registered.cancel()
        try:
            await self.confirm(self.revision)
        except Unavailable as error:
            _logger.warning("%s: serving nevertheless", error)

    async def confirm(self, revision: int) -> None:
        """Return once another agent has said that it had the same state at this revision, or a later one.

        Where no other agent could say so, at once. Raises Unavailable when none does within `confirm_s`.
        While this agent's state is in doubt that does not count: it returns when it is known.
        """
        looks = 0
        while not self.failed.done():
            comparison = self._follower.comparison
            others = comparison.others(self.state)
            if not self.doubt.reason and (comparison.confirmed >= revision or not others):
                return
            if looks * CONFIRM_LOOK_S >= self.options.confirm_s and not self.doubt.reason:
                raise Unavailable(f"none of {len(others)} other agents said that it has the same state")
            if looks % CONFIRM_ASKS == CONFIRM_ASKS - 1 and self.incarnation:
                self._author.ask()
                self.submit([command(Heartbeat())], incarnation=self.incarnation)
            await asyncio.sleep(CONFIRM_LOOK_S)
            looks += 1
        self.failed.result()

    def contradicts(self, after: int, entries: Sequence[LogEntry]) -> int | None:
        """Of entries that were read above `after`: the first revision where another one was applied here."""
        return self._follower.comparison.contradicts(after, entries)

    @property
    def vouches_above(self) -> int:
        """`contradicts` knows all that was applied above this revision."""
        return self._follower.comparison.begins

    async def enter(self) -> None:
        """Have Metadata name this agent, which registered as joining. Waits while the log is away."""
        registration = self._author.registration
        assert registration is not None, "start() comes first"
        registration.joining = False  # whatever comes, a new incarnation of this process is warm
        while not self.failed.done():
            with suppress(LogError):
                await self.propose(EnterMetadata())
                return
            await asyncio.sleep(self.options.retry_s)

    async def leave(self) -> None:
        """Take this agent out of Metadata, ahead of stop(): clients go elsewhere, its commands count."""
        with suppress(LogError, TimeoutError):
            async with asyncio.timeout(self.options.stop_s):
                await self.propose(LeaveMetadata())

    async def known_to_others(self, seconds: float) -> bool:
        """Wait until every agent that clients are sent to has said that it applied all that this one has.

        Agents say so with each entry, idle ones with each heartbeat. False: some did not within `seconds`.
        """
        revision, told = self.revision, self._loop.create_future()

        def look(_: object) -> None:
            if not told.done() and self._others_know(revision):
                told.set_result(None)

        forget = self.add_listener(look)
        look(None)
        try:
            async with asyncio.timeout(seconds):
                await told
        except TimeoutError:
            return False
        finally:
            forget()
        return True

    def _others_know(self, revision: int) -> bool:
        live = self.state.live
        others = {each.incarnation for each in serving_of(self.state.brokers.values())} - {self.incarnation}
        return all(live[each].applied_revision >= revision for each in others if each in live)

    async def stop(self) -> None:
        """End this incarnation in the log when it is reached within `stop_s`, and answer every proposal."""
        self._author.stopping = True
        if self.incarnation and not self.failed.done():
            with suppress(LogError, TimeoutError):
                async with asyncio.timeout(self.options.stop_s):
                    await self.propose(FenceIncarnation(incarnation=self.incarnation))
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._proposals.close()
        with suppress(LogError, TimeoutError):
            async with asyncio.timeout(self.options.stop_s):
                await self._author.close()
        if not self.failed.done():
            self.failed.cancel()

    # Writing.

    def submit(
        self,
        commands: Sequence[Command],
        *,
        incarnation: int | None = None,
        line: Line | None = None,
        stamps: list[float] | None = None,
    ) -> Results:
        """Queue commands that land together, in order; the future gives one result per command.

        Commands above the size of an entry travel as a multi-part change by themselves. With
        `incarnation` given they count only under that one. The future fails with StaleIncarnation,
        Unavailable (both definite: no effect) or OutcomeUnknown (after a bounded wait). In a `line` none
        overtakes one before it that failed. `stamps` takes the loop times at which their entry was sent and
        the log had answered; not so for a change in parts.
        """
        future = self._proposals.submit(commands, incarnation, line, stamps)
        self._author.wake()
        return future

    async def propose(self, message: Message, *, incarnation: int | None = None) -> Result:
        """Submit one command and wait for its result. Raises what the future of submit() fails with."""
        (result,) = await self.submit([command(message)], incarnation=incarnation)
        return result

    # Reading.

    async def barrier(self) -> int:
        """Wait until everything that was in the log when this was called is applied; returns that revision.

        Callers share the question to the log. Raises Unavailable when it takes too long, and while this
        agent's state is in doubt.
        """
        self._check_doubt()
        if self._next_barrier is None:
            self._next_barrier = self._loop.create_future()
            self._next_barrier.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._run_once(self._ask(self._next_barrier))
        try:
            async with asyncio.timeout(self.options.barrier_s):
                revision = await asyncio.shield(self._next_barrier)
                await self.wait_revision(revision)
        except TimeoutError:
            raise Unavailable(f"the read barrier took over {self.options.barrier_s} s") from None
        self._check_doubt()
        return revision

    def _check_doubt(self) -> None:
        if self.doubt.reason:
            raise Unavailable(f"this agent's state is in doubt: {self.doubt.reason}")

    async def wait_revision(self, revision: int) -> None:
        """Wait until everything at or below `revision` is applied."""
        self._follower.knows(revision)
        await self._follower.wait(revision)

    def add_listener(self, listener: Callable[[Applied], None]) -> Callable[[], None]:
        """Call `listener` after every applied entry; returns what removes it. It must be quick."""
        self._follower.listeners.append(listener)
        return lambda: self._follower.listeners.remove(listener)

    def add_entry_listener(self, listener: Callable[[LogEntry], None]) -> None:
        """Call `listener` with every entry, once it is applied. It must be quick."""
        self._follower.entry_listeners.append(listener)

    def add_reload_listener(self, listener: Callable[[State], None]) -> None:
        """Call `listener` whenever a snapshot replaced the state."""
        self._follower.on_reload.append(listener)

    @property
    def applying(self) -> asyncio.Lock:
        """Held while entries are applied: whoever holds it sees a state that stands still."""
        return self._follower.applying

    def check_awake(self) -> bool:
        """Notice a pause longer than the lease (SIGSTOP, a frozen machine) before what was buffered counts.

        The first call after such a pause runs `on_wake` and returns False; `ready` is False until a read
        barrier has passed. It returns False, too, while this agent's state is in doubt.
        """
        now = self._loop.time()
        paused, self._last_tick = now - self._last_tick, now
        if paused <= self.options.ttl_s:
            return not self.doubt.reason
        _logger.warning("paused for %.1f s: verifying the state before answering", paused)
        self._verified = False
        self._serve_nobody()
        self._run_once(self._verify())
        return False

    def _serve_nobody(self) -> None:
        """What was asked so far is answered by nobody."""
        for tell in list(self.on_wake):
            tell()

    def give_up(self, error: Exception) -> None:
        """This agent must stop: the reason is somebody else's to know."""
        _logger.critical("this agent stops: %s: %s", type(error).__name__, error)
        self._fail(error)

    # Tasks.

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(tasks.start(self._guarded(work), "replica"))

    def _run_once(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._run(work)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (StateError, ReplicaFailed, LogRegressed) as error:
            _logger.critical("this agent stops: %s: %s", type(error).__name__, error)
            self._fail(error)
        except BaseException as error:  # a defect: a replica that silently follows no more would be worse
            if tasks.cancelled(error):
                raise
            tasks.tell("replica", error)
            _logger.critical("this agent stops: unexpected: %r", error)
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            wrapped = error if isinstance(error, Exception) else ReplicaFailed(f"unexpected: {error!r}")
            self.failed.set_exception(wrapped)
        self._proposals.incarnation = 0

    async def _catch_up_and_write(self) -> None:
        while True:
            try:
                await self.barrier()
                break
            except Unavailable as error:
                self._follower.last_error = f"catching up: {error}"
                await asyncio.sleep(self.options.retry_s)
        self._follower.compare()
        await self._author.run()

    async def _verify(self) -> None:
        while not self._verified:
            try:
                await self.barrier()
                self._verified = True
            except Unavailable as error:
                self._follower.last_error = f"verifying after a pause: {error}"
                await asyncio.sleep(self.options.retry_s)

    async def _ask(self, answer: asyncio.Future[int]) -> None:
        await asyncio.sleep(0)  # whoever asks in this round of the loop shares the question
        self._next_barrier = None
        try:
            revision = await self._log.current()
        except LogRegressed as error:
            answer.set_exception(Unavailable(str(error)))
            raise
        except LogError as error:
            answer.set_exception(error)
        else:
            self._follower.knows(revision)
            answer.set_result(revision)
        finally:
            if not answer.done():
                answer.set_exception(Unavailable("the agent is stopping"))

    async def _housekeep(self) -> None:
        looked_at_members = self._loop.time()
        while True:
            await asyncio.sleep(coalesced.pause_s(self.options.tick_s))
            self.check_awake()
            now = self._loop.time()
            self._follower.read_gap_if_overdue(now)
            self._proposals.expire(self.options.queue_wait_s, self.options.outcome_wait_s)
            self.clock_watch.look(self.state, self.incarnation, now)
            idle = now - self._author.last_append >= self._heartbeat_s()
            idle |= self._follower.comparison.asked > self._author.said  # somebody wants to hear
            if self.incarnation and idle and not self._proposals.queued:
                self.submit([command(Heartbeat())], incarnation=self.incarnation)
            if self.incarnation and now - looked_at_members >= self.options.members_s:
                looked_at_members = now
                self._run_once(self._fence_the_dead())

    def _heartbeat_s(self) -> float:
        """Who is alone says less often that it is there: nobody listens but the log's trimming."""
        alone = sum(1 for one in self.state.incarnations.values() if one.live) <= 1
        return max(self.options.heartbeat_s, self.options.heartbeat_alone_s * alone)

    async def _fence_the_dead(self) -> None:
        """Propose the end of every incarnation that counts although its key is gone from the log.

        Who is alone asks nobody: whether its own key is there each heartbeat finds out.
        """
        counted = [number for number, one in self.state.incarnations.items() if one.live]
        if counted == [self.incarnation]:
            return
        try:
            alive = {member.incarnation for member in await self._log.members()}
        except Unavailable as error:
            self._follower.last_error = f"looking at the members: {error}"
            return
        gone = [number for number in counted if number not in alive]
        if self.incarnation in gone:  # the next append finds out that it cannot, and registers again
            self.submit([command(Heartbeat())], incarnation=self.incarnation)
            return
        if gone:  # one of the agents will do: a random one is first, the others see it done
            await asyncio.sleep(self._clock.random() * self.options.retry_s)
        still = [number for number in gone if self.state.is_live(number)]
        if still and self.incarnation:
            _logger.warning("fencing incarnations whose keys are gone: %s", [f"{n:016x}" for n in still])
            self.submit([command(FenceIncarnation(incarnation=number)) for number in still])
