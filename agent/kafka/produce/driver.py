"""The produce path's driver: buffer → PUT → append → apply → outcomes.

PUTs run side by side; their commands are submitted strictly in the order of the flushes, so a producer's
own order survives. When a flush fails for good, everything behind it fails with it, with a retriable code and
nothing written: flushes whose command waits for the log (they share a Line), flushes under way, what is
buffered, and requests that have come and are not buffered yet (their handler looks at `failures`). A later
batch must not overtake an earlier one that its client will send again. (An idempotent producer that the
partition knows is protected by its sequence numbers as well. One that it does not know may begin at any, so
where each begins is remembered by connection until its first batch is taken, within bounds: firsts.py. For
the others this is as much as Kafka promises with several requests in flight.)

One error table, `code_of`, says what a producer is told: definite failures are retriable without a doubt,
an unknown outcome is REQUEST_TIMED_OUT, never success and never a definite failure.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from agent.kafka.produce import traced
from agent.kafka.produce.budget import ByteBudget
from agent.kafka.produce.buffer import (
    WAITING,
    Flush,
    Offered,
    Outcome,
    Pending,
    ProduceBuffer,
    Request,
    commit_command,
    make_flush,
)
from agent.kafka.produce.planner import FlushLimits, FlushPlanner
from agent.kafka.produce.telling import Telling
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from agent.telemetry.tracing import current
from coordination.commands import Command
from coordination.kafka_codes import Code
from coordination.log import Full, Unavailable
from coordination.replica.errors import OutcomeUnknown, StaleIncarnation
from coordination.replica.proposals import Line
from coordination.state.chunks import BOUND_ANEW
from coordination.state.types import ChunkCommitted, Refused, Result
from coordination.steps import reach
from objectstore import tasks
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import Buffer, StoreError

_log = logger("produce")

PutChunk = Callable[[ChunkId, Sequence[Buffer]], Awaitable[int | None]]
"""Stores a chunk, and says how many PUTs it took beyond the one."""
KeepOwn = Callable[[ChunkId, int, Sequence[Buffer], int], None]


JUDGE_AGAIN = (
    "The topic was bound anew meanwhile, or its quarantine is gone; nothing was written: send again."
)


class Submitter(Protocol):
    """The part of the replica that produce needs."""

    @property
    def incarnation(self) -> int:
        """The incarnation that names this agent's chunks now."""
        ...

    def submit(
        self,
        commands: Sequence[Command],
        *,
        incarnation: int | None = None,
        line: Line | None = None,
        stamps: list[float] | None = None,
    ) -> asyncio.Future[list[Result]]:
        """Enqueue for the append chain, order kept; nothing of a line overtakes what failed before it."""
        ...


class Overtaken(Exception):
    """An earlier flush failed; this one was given up so that it does not overtake it."""


class NotStored(Exception):
    """A chunk could not be made or stored for a reason that nobody expects; it is in no log."""


class Closed(Exception):
    """The agent is leaving."""


class Away(Exception):
    """The agent has stepped aside: it cannot do its work now, others can."""


def code_of(error: BaseException) -> tuple[Code, str]:
    """What a producer is told when its flush ends in `error`."""
    match error:
        case StaleIncarnation():
            return Code.NOT_LEADER_OR_FOLLOWER, "The agent was fenced and has registered anew: send again."
        case Full():
            return Code.NOT_ENOUGH_REPLICAS, f"The log is full; nothing was written: {error}"
        case Unavailable():
            return Code.NOT_ENOUGH_REPLICAS, "The log cannot be reached; nothing was written: send again."
        case OutcomeUnknown():
            return Code.REQUEST_TIMED_OUT, "The log's answer is missing: the batch may have been written."
        case StoreError() | TimeoutError():
            return Code.NOT_ENOUGH_REPLICAS, "The object store failed; nothing was written: send again."
        case NotStored():
            return Code.NOT_ENOUGH_REPLICAS, f"The agent failed; nothing was written: send again. {error}"
        case Overtaken():
            return Code.NOT_ENOUGH_REPLICAS, "An earlier write failed; nothing was written: send again."
        case Away():
            return Code.NOT_LEADER_OR_FOLLOWER, "The agent is not well: send again to another."
        case Closed():
            return Code.NOT_LEADER_OR_FOLLOWER, "The agent is leaving: send again to another."
    return Code.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}"


class ProduceDriver:
    """One agent's produce buffer and the flushes under way."""

    def __init__(
        self,
        replica: Submitter,
        put_chunk: PutChunk,
        keep_own: KeepOwn,
        cluster_id: bytes,
        limits: FlushLimits,
        bytes_max: int,
        metrics: Metrics,
    ) -> None:
        self._replica = replica
        self._put_chunk = put_chunk
        self._keep_own = keep_own
        self._cluster_id = cluster_id
        self._limits = limits
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._unstored = Episodes(
            _log, self._loop.time, begins="chunk not stored", ends="chunks are stored again"
        )
        self._planner = FlushPlanner(limits)
        self._buffer = ProduceBuffer()
        self.budget = ByteBudget(bytes_max)
        self.failures = 0  # how often what had come was given up
        self._open: dict[int, int] = {}  # by their `judged`: how many requests have no outcome yet
        self._flushes: deque[Flush] = deque()  # whose command is not submitted, in order
        self._line = Line()  # of the commands that are
        self._telling = Telling()
        self._submitted: set[asyncio.Future[list[Result]]] = set()
        self._next_number = 1
        self._timer: asyncio.TimerHandle | None = None
        self._timed = 0.0  # when it is over
        self._traced = False  # whether something in the buffer is
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self.away: Callable[[], bool] = lambda: False
        """Whether this agent has stepped aside: nothing is taken then."""
        self.agents: Callable[[], int] = lambda: 1
        """How many agents the cluster has, this one among them."""
        self.on_companion: Callable[[int, int], None] = lambda handle, records: None
        """Told of a companion that is stored: the handle of its partition and how many records it has."""

    async def room(self, size: int) -> None:
        """Take `size` bytes of the budget; `append` gives them back when the outcome is known."""
        await self.budget.take(size)

    def append(
        self, connection: int, batches: Sequence[Offered], judged: int | None = None, size: int | None = None
    ) -> asyncio.Future[list[Outcome]]:
        """Put the batches of one request into the buffer; resolves to their outcomes, never fails.

        Their bytes must have been taken with `room` before. Synchronous up to the return, so the order
        of the calls is the order of the batches. `judged`: the revision of now, where no topic of theirs was
        bound anew since they were looked at; None: the one by which they were. `size`: of all batches, bytes.
        """
        judged = min(batch.judged for batch in batches) if judged is None else judged
        size = sum(batch.size for batch in batches) if size is None else size
        future: asyncio.Future[list[Outcome]] = self._loop.create_future()
        waiting, trace = [WAITING] * len(batches), current.get()
        request = Request(connection, self._loop.time(), size, future, waiting, len(batches), judged, trace)
        self._traced |= trace is not None
        self._idle.clear()
        self._open[judged] = self._open.get(judged, 0) + 1
        self._buffer.add(request, batches)
        self._planner.arrived(connection, size, len(batches), request.arrived)
        if self._closed:
            self._give_up_all(Closed())
        elif self.away():
            self._give_up_all(Away())
        elif self._timer is None or not self._planner.waits:
            self._poke()
        return future

    def judged_since(self, revision: int) -> bool:
        """Whether no batch waits for its outcome that was judged before the revision, of any partition.

        A chunk says one revision for all of its batches, the oldest: one of a topic that was bound at
        `revision` would be refused for a batch of another topic, and one behind it, in the next chunk, taken.
        """
        return all(judged >= revision for judged in self._open)

    @property
    def buffered_bytes(self) -> int:
        """Record bytes that wait for a flush."""
        return self._planner.buffered_bytes

    async def drain(self) -> None:
        """Flush what is there and wait until every outcome is known. The caller bounds it."""
        self._planner.draining = True
        self._poke()
        await self._idle.wait()

    def send_away(self, *, unknown: bool) -> None:
        """Give up what has not been submitted: nothing of it was written. With `unknown`, tell those whose
        entry was sent, and is not answered, that nobody knows.
        """
        self._give_up_all(Away())
        for future in list(self._submitted) if unknown else ():
            if not future.done():
                future.set_exception(OutcomeUnknown("this agent does not reach the log"))

    async def close(self) -> None:
        """Give up what has not been submitted; later appends are refused."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._telling.all()
        puts = [flush.put for flush in self._flushes if flush.put is not None]
        self._give_up_all(Closed())
        await asyncio.gather(*puts, return_exceptions=True)

    def _look(self) -> None:
        self._timer = None
        self._poke()

    def _poke(self) -> None:
        """Flush while a flush is due, then look again when the planner says."""
        while True:
            decision = self._planner.decide(self._loop.time())
            if decision.reason is None:
                break
            if not self._replica.incarnation:
                self._give_up_all(StaleIncarnation("registering anew"))
                break
            self._flush()
        self._wake(decision.wake_at)

    def _wake(self, at: float | None) -> None:
        """Look again then. A timer that is over sooner stays: to look in vain costs less than another."""
        if self._timer is not None:
            if at is not None and self._timed <= at:
                return
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timed, self._timer = at, self._loop.call_at(at, self._look)

    def _flush(self) -> None:
        now = self._loop.time()
        taken, size = self._buffer.take(self._limits.buffer_bytes_max, self._limits.batches_max)
        self._planner.agents = self.agents()
        self._planner.flushed(size, len(taken), now, self._buffer.oldest)
        chunk = ChunkId(self._replica.incarnation, self._next_number)
        self._next_number += 1
        try:
            flush = make_flush(taken, size, self._cluster_id, chunk, now)
        except BaseException as error:
            tasks.tell("flush", error)
            self._give_up(taken, NotStored(repr(error)))
            self._planner.completed()
            self._give_up_all(Overtaken())
            return
        if self._traced:
            flush.traced = traced.requests_of(taken)
            self._traced = bool(len(self._buffer))
        self._flushes.append(flush)
        self._metrics.puts_in_flight.inc()
        flush.put = tasks.start(self._put(flush), "put", apart=True)

    async def _put(self, flush: Flush) -> None:
        try:
            reach("flush/put")
            self._planner.hedged(await self._put_chunk(flush.chunk, flush.encoded.parts) or 0)
        except (StoreError, TimeoutError) as error:
            flush.failure = error
            self._metrics.put_failed.inc()
            self._unstored.met("store", chunk=chunk_key(flush.chunk), error=repr(error))
        except BaseException as error:  # a flush that neither failed nor is stored holds up all behind it
            flush.failure = NotStored(repr(error))
            self._metrics.put_failed.inc()
            if tasks.cancelled(error):
                raise
            tasks.tell("put", error)
        else:
            flush.stored, flush.stored_at = True, self._loop.time()
            self._unstored.over("store")
        finally:
            self._metrics.puts_in_flight.dec()
        self._metrics.put_seconds.observe(self._loop.time() - flush.started)
        self._metrics.chunk_bytes.observe(flush.encoded.size)
        self._advance()

    def _advance(self) -> None:
        """Submit every flush that is stored and has none before it that is not."""
        while self._flushes and (self._flushes[0].stored or self._flushes[0].failure is not None):
            failure = self._flushes[0].failure
            if failure is not None:
                self._give_up_all(failure)
                return
            flush = self._flushes.popleft()
            reach("flush/submit")
            try:
                future = self._submit(flush)
            except BaseException as error:  # nobody would answer it, and what is behind it would pass
                tasks.tell("submission of a flush", error)
                self._give_up(flush.pending, NotStored(repr(error)))
                self._planner.completed()
                self._give_up_all(Overtaken())
                return
            self._submitted.add(future)
            future.add_done_callback(partial(self._decided, flush))

    def _submit(self, flush: Flush) -> asyncio.Future[list[Result]]:
        command, author = commit_command(flush), flush.chunk.incarnation
        stamps = flush.stamps if flush.traced else None
        return self._replica.submit([command], incarnation=author, line=self._line, stamps=stamps)

    def _decided(self, flush: Flush, future: asyncio.Future[list[Result]]) -> None:
        """The flush's command was applied, or will not be, or nobody knows."""
        self._submitted.discard(future)
        try:
            traced.tell(flush, self._loop.time())
            self._answer(flush, future)
        except BaseException as error:
            tasks.tell("outcome of a flush", error)
            self._give_up(flush.pending, OutcomeUnknown(f"the agent failed: {error!r}"))
            self._give_up_all(Overtaken())  # it may have been refused
        self._completed(self._loop.time() - flush.started)

    def _answer(self, flush: Flush, future: asyncio.Future[list[Result]]) -> None:
        error = Closed() if future.cancelled() else future.exception()
        if error is not None:
            self._give_up(flush.pending, error)
            if not isinstance(error, OutcomeUnknown):
                self._give_up_all(Overtaken())
        else:
            reach("flush/decided")
            self._settle(flush, future.result()[0])
            reach("flush/answered")

    def _settle(self, flush: Flush, result: Result) -> None:
        """Hand out what apply decided; what it accepted stays in memory for tail readers."""
        if isinstance(result, Refused):
            for pending in flush.pending:
                self._resolve(pending, Outcome(result.code, message=result.message))
            return
        assert isinstance(result, ChunkCommitted), f"a chunk's commit answered with {result!r}"
        try:
            self._keep(flush, result)
        except BaseException as defect:  # it is in the log all the same
            tasks.tell("cache of own chunks", defect)
        for pending, error, base in zip(flush.pending, result.errors, result.base_offsets, strict=True):
            if error:
                message = JUDGE_AGAIN if error == BOUND_ANEW else None
                self._resolve(pending, Outcome(Code(error), message=message))
            elif pending.asked_for:
                self._resolve(pending, Outcome(Code.NONE, base))
            else:
                self.on_companion(pending.offered.handle, pending.offered.header.record_count)
        if BOUND_ANEW in result.errors:  # what stands behind must not come first
            self._give_up_all(Overtaken())

    def _keep(self, flush: Flush, result: ChunkCommitted) -> None:
        """Give the reader's cache each run of batches that follow each other in a partition."""
        run: list[Buffer] = []
        handle = start = base = following = -1
        rows = zip(flush.pending, flush.encoded.positions, result.errors, result.base_offsets, strict=True)
        for pending, position, error, offset in rows:
            offered = pending.offered
            if offered.handle != handle or error or offset != following:
                if run:
                    self._keep_own(flush.chunk, start, run, base)
                run, handle, start, base = [], offered.handle, position, offset
            if error:
                continue
            run.append(offered.data)
            following = offset + offered.header.last_offset_delta + 1
        if run:
            self._keep_own(flush.chunk, start, run, base)

    def _give_up(self, pendings: Sequence[Pending], error: BaseException) -> None:
        """Answer those that are not answered yet."""
        code, message = code_of(error)
        for pending in pendings:
            if pending.request.outcomes[pending.slot] is WAITING:
                self._resolve(pending, Outcome(code, message=message))

    def _give_up_all(self, error: Exception) -> None:
        """Give up the flushes whose command is not submitted, and what came behind them.

        Those that are submitted stand before these; or their line has failed, and a new one takes its place.
        """
        self.failures += 1
        if self._line.failed is not None:
            self._line = Line()
        given_up, self._flushes = self._flushes, deque()
        for number, flush in enumerate(given_up):
            if flush.put is not None and flush.put is not asyncio.current_task():
                flush.put.cancel()
            traced.tell(flush, self._loop.time())
            self._give_up(flush.pending, error if number == 0 else Overtaken())
            self._planner.completed()
        if len(self._buffer):
            taken, size = self._buffer.take(1 << 62, 1 << 62)
            self._planner.dropped(size, len(taken))
            self._give_up(taken, Overtaken() if given_up and not isinstance(error, Closed | Away) else error)
        self._settled()

    def _resolve(self, pending: Pending, outcome: Outcome) -> None:
        if not pending.asked_for:
            return
        request = pending.request
        request.outcomes[pending.slot] = outcome
        request.missing -= 1
        if request.missing:
            return
        count = self._open.pop(request.judged)
        if count > 1:
            self._open[request.judged] = count - 1
        self.budget.give(request.size)
        self._planner.answered(request.connection, self._loop.time())
        self._telling.tell(request)

    def _completed(self, took_s: float) -> None:
        self._planner.completed(took_s)
        self._settled()

    def _settled(self) -> None:
        if not self._closed:
            self._poke()
        if not self._flushes and not self._submitted and not len(self._buffer):
            self._idle.set()
