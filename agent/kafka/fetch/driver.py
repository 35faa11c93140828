"""The fetch path's driver: plan, wait for records, read them, cut at batch ends.

A poll waits until `min_bytes` are there or no more fits, its time is over, or an offset is out of range.
That and an unknown topic are answered only after a read barrier: this agent may be behind another one that
the client has spoken to. A chunk that is gone was replaced or trimmed: catch up and plan again (rule 9).

Each partition answers for itself: what cannot be read of one holds up no other (agent/kafka/fetch/pieces.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from agent.kafka.fetch.pieces import Damage, Lost, damage_of, passed_over, taken, unreadable
from agent.kafka.fetch.planner import Plan, Planned, Wanted, cut, plan_fetch
from agent.kafka.fetch.waiters import Standing, Waiters
from agent.telemetry.damages import Damages
from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from agent.telemetry.tracing import step
from coordination.kafka_codes import Code
from coordination.log import Unavailable
from coordination.state.types import Applied, Partition
from objectstore.batch import empty_batch
from objectstore.merged import MergedRanges, SlicePlan
from objectstore.naming import SliceRef
from objectstore.store import StoreError

_log = logger("fetch")

REPLANS_MAX = 3  # times a fetch plans again because a chunk was gone
DAMAGE_PAUSE_S = 0.5  # an answer of nothing but damage comes no faster: some clients ask again at once
LOOKS_MAX = 8  # times that it looks up merged ranges, which may move meanwhile, for one plan


LookedUp = Mapping[tuple[int, int], SlicePlan | StoreError | TimeoutError]
"""Merged ranges by handle and offset, or why one could not be looked up."""


class Follower(Protocol):
    """The part of the replica that fetch needs."""

    async def barrier(self) -> int:
        """Catch up with the log as it is now. Raises Unavailable."""
        ...


class Reader(Protocol):
    """The part of the chunk reader that fetch needs."""

    async def read_each(self, slices: Sequence[SliceRef]) -> list[memoryview | StoreError | TimeoutError]:
        """Each slice's batches, offsets patched, or why they cannot be read."""
        ...


@dataclass(slots=True)
class FetchLimits:
    """Bounds over what a client asks for. Seconds and bytes."""

    wait_s_max: float
    response_bytes_max: int
    barrier_s_max: float = 5.0


@dataclass(slots=True)
class FetchRequest:
    """What a Fetch asks, resolved against the state anew by `resolve` for each plan.

    `quiet`: partitions that it waits for beside these, at their ends; `standing` watches them all.
    """

    resolve: Callable[[], list[Wanted]]
    wait_s: float
    bytes_min: int
    bytes_max: int
    read_committed: bool
    quiet: Callable[[], int] = lambda: 0
    standing: Standing | None = None
    waited_s: float = 0.0
    """Seconds of `wait_s` that are over already."""


@dataclass(slots=True)
class Fetched:
    """One partition's answer."""

    planned: Planned
    records: list[memoryview]


class FetchDriver:
    """Answers fetches from the state and the chunk reader."""

    def __init__(
        self,
        replica: Follower,
        reader: Reader,
        merged: MergedRanges,
        limits: FetchLimits,
        metrics: Metrics,
        damages: Damages,
    ) -> None:
        self._replica = replica
        self._reader = reader
        self._merged = merged
        self._limits = limits
        self._damages = damages
        self._loop = asyncio.get_running_loop()
        self._unread = Episodes(
            _log, self._loop.time, begins="records cannot be read", ends="records are read again"
        )
        self.objects_come_late = False
        """Whether what is not in the bucket may come yet: at a replica of a bucket (decision 0041)."""
        self._leaving = False
        self.away: Callable[[], bool] = lambda: False
        """Whether clients are told to go elsewhere: nobody waits here then."""
        self.waiters = Waiters()
        metrics.fetch_parked.set_function(lambda: self.waiters.count)

    def applied(self, applied: Applied) -> None:
        """Listener of the replica: wakes long polls one turn of the loop later.

        By then the outcome of this agent's own flush has put its bytes into the reader's cache.
        """
        if applied.touched:
            self.waiters.note(applied.touched)
            if self.waiters.count:
                self._loop.call_soon(self.waiters.touched, applied.touched)

    def leave(self) -> None:
        """Answer every parked poll now, and park none from here on."""
        self._leaving = True
        self.waiters.wake_all()

    def waits_s(self, wanted_s: float) -> float:
        """How long a poll waits that is to wait so long, seconds."""
        return min(wanted_s, self._limits.wait_s_max)

    @property
    def parks(self) -> bool:
        """Whether polls wait here."""
        return not (self._leaving or self.away())

    async def fetch(self, request: FetchRequest) -> list[Fetched]:
        """The answer per partition, in the request's order."""
        deadline = self._loop.time() + self.waits_s(request.wait_s) - request.waited_s
        lost = Lost()
        for left in reversed(range(REPLANS_MAX)):
            plan = await self._ready(request, deadline)
            refs = [ref for planned in plan.partitions for ref in planned.slices]
            with step("read", self._loop.time, attributes={"floe.slices": len(refs)}):
                found = await self._reader.read_each(refs) if refs else []
            gone = lost.unproven([*found, *(planned.wanted.failure for planned in plan.partitions)])
            if not gone or self.objects_come_late or not left or not await self._barrier():
                break
            _log.info("objects gone, planning again", objects=len(gone))
            lost.prove(gone)
        fetched, damages = self._answers(plan, found, lost)
        if damages and not any(each.records for each in fetched):
            await self._pause(plan, request, deadline)
        return fetched

    async def _pause(self, plan: Plan, request: FetchRequest, deadline: float) -> None:
        """Give a client that has nothing but damage before it a moment, unless others of its records come."""
        seconds = min(DAMAGE_PAUSE_S, deadline - self._loop.time())
        if seconds > 0 and not self._leaving:
            with self._watched(plan, request) as event:
                await self._woken(event, seconds)

    async def _ready(self, request: FetchRequest, deadline: float) -> Plan:
        """A plan that satisfies the request, or the best there is when its time is over."""
        plan = await self._plan(request)
        if plan.out_of_range or plan.unknown:
            if await self._barrier():
                plan = await self._plan(request)
            else:
                _leave_to_others(plan)
        while not self._satisfied(plan, request):
            left = deadline - self._loop.time()
            if left <= 0:
                break
            with self._watched(plan, request) as event:
                await self._woken(event, left)
            plan = await self._plan(request)
        return plan

    def _satisfied(self, plan: Plan, request: FetchRequest) -> bool:
        return (
            self._leaving
            or self.away()
            or plan.bytes_ready >= min(request.bytes_min, self._bytes_max(request))
            or plan.full
            or plan.out_of_range
            or plan.failed
            or not plan.waits
        )

    def _watched(self, plan: Plan, request: FetchRequest) -> AbstractContextManager[asyncio.Event]:
        """An event for records that may satisfy the request."""
        if request.standing is not None:
            return self.waiters.park(request.standing)
        return self.waiters.watch(plan.waitable)

    async def _woken(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, at most so long."""
        try:
            with step("wait for records", self._loop.time, waits=True):
                async with asyncio.timeout(seconds):
                    await event.wait()
        except TimeoutError:
            return

    async def _plan(self, request: FetchRequest) -> Plan:
        """A plan with merged ranges looked up. The state may move meanwhile: then it is looked at again."""
        looked_up: dict[tuple[int, int], SlicePlan | StoreError | TimeoutError] = {}
        for _ in range(LOOKS_MAX):
            plan = self._planned(request, looked_up)
            missing = plan.merged
            if not missing:
                break
            with step("look up segments", self._loop.time):
                found = await asyncio.gather(*map(self._look_up, missing))
            looked_up.update(zip(map(_key, missing), found, strict=True))
        return plan

    def _planned(
        self,
        request: FetchRequest,
        looked_up: LookedUp,
    ) -> Plan:
        wanted = request.resolve()
        for want in wanted if looked_up else ():
            known = looked_up.get((want.partition.handle, want.offset)) if want.partition else None
            if isinstance(known, StoreError | TimeoutError):
                want.failure = known
            elif known is not None:
                want.older = known
        plan = plan_fetch(wanted, self._bytes_max(request), request.read_committed)
        plan.quiet = request.quiet()
        return plan

    def _bytes_max(self, request: FetchRequest) -> int:
        """How much an answer may hold; no poll waits for more (as in Kafka)."""
        return min(request.bytes_max, self._limits.response_bytes_max)

    async def _look_up(self, planned: Planned) -> SlicePlan | StoreError | TimeoutError:
        """Where a merged range has the wanted records, or why that cannot be known."""
        partition = planned.wanted.partition
        assert isinstance(partition, Partition), "only partitions of the state have merged ranges"
        try:
            return await self._merged.slices(partition, planned.wanted.offset, max(planned.bytes_max, 1))
        except (StoreError, TimeoutError) as error:
            return error

    async def _barrier(self) -> bool:
        """Catch up; False when the log cannot be reached now."""
        try:
            with step("barrier", self._loop.time):
                async with asyncio.timeout(self._limits.barrier_s_max):
                    await self._replica.barrier()
        except (Unavailable, TimeoutError):
            return False
        return True

    def _answers(
        self, plan: Plan, found: Sequence[memoryview | StoreError | TimeoutError], lost: Lost
    ) -> tuple[list[Fetched], list[Damage]]:
        """Every partition's answer, cut to the request's limits, and the damage that was met."""
        fetched: list[Fetched] = []
        damages: list[Damage] = []
        position, nothing_yet = 0, True
        for planned in plan.partitions:
            read = found[position : position + len(planned.slices)]
            position += len(read)
            records, trouble = _records(planned, read, nothing_yet, lost)
            if trouble is not None:
                damage = damage_of(planned, trouble, lost)
                planned.code = Code.CORRUPT_MESSAGE if damage is not None else Code.KAFKA_STORAGE_ERROR
                self._tell(planned, trouble, damage)
                damages += [damage] if damage is not None else []
            elif records:
                self._unread.over(_episode(planned))
            nothing_yet = nothing_yet and not records
            fetched.append(Fetched(planned, records))
        return fetched, damages

    def _tell(self, planned: Planned, trouble: Exception, damage: Damage | None) -> None:
        partition = planned.wanted.partition
        if damage is None:
            self._unread.met(_episode(planned), error=repr(trouble))
        elif isinstance(partition, Partition):
            self._damages.note(partition, damage.start, damage.end, damage.text)


def _episode(planned: Planned) -> str:
    """By whom an episode of trouble with a partition is told from others."""
    partition = planned.wanted.partition
    return "" if partition is None else str(partition.handle)


def _records(
    planned: Planned, read: Sequence[memoryview | StoreError | TimeoutError], nothing_yet: bool, lost: Lost
) -> tuple[list[memoryview], Exception | None]:
    """A partition's batches; without any, what was in the way if something was."""
    if planned.gap:
        return [memoryview(empty_batch(planned.wanted.offset, planned.end_offset))], None
    if planned.failed:
        hole = passed_over(planned, lost)
        if hole is None:
            return [], planned.wanted.failure
        planned.code = Code.NONE
        return [hole], None
    refs, buffers, unread = taken(planned, read, lost)
    return cut(refs, buffers, planned, nothing_yet), unreadable(planned, unread)


def _key(planned: Planned) -> tuple[int, int]:
    partition = planned.wanted.partition
    assert partition is not None, "an unknown partition has no merged range"
    return partition.handle, planned.wanted.offset


def _leave_to_others(plan: Plan) -> None:
    """Bounds that may be old ones are no verdict: a consumer would begin anew."""
    for planned in plan.partitions:
        if planned.code is Code.OFFSET_OUT_OF_RANGE:
            planned.code = Code.NOT_LEADER_OR_FOLLOWER
