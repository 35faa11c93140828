"""The fetch path's driver: plan, wait for records, read them, cut at batch ends.

A poll waits until `min_bytes` are there, its time is over, or an offset is out of range. That and an unknown
topic are answered only after a read barrier: this agent may be behind another one that the client has
spoken to. A chunk that is gone was replaced or trimmed: catch up and plan again (rule 9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.kafka.fetch.planner import Plan, Planned, Wanted, cut, plan_fetch
from agent.kafka.fetch.waiters import Waiters
from agent.telemetry.logs import logger
from agent.telemetry.metrics import Metrics
from coordination.kafka_codes import Code
from coordination.log import Unavailable
from coordination.state.types import Applied, Partition
from objectstore.batch import empty_batch
from objectstore.merged import MergedRanges, SlicePlan
from objectstore.naming import SliceRef
from objectstore.reader import ChunkMissing
from objectstore.store import StoreError

_log = logger("fetch")

REPLANS_MAX = 3  # times a fetch plans again because a chunk was gone
LOOKS_MAX = 8  # times that it looks up merged ranges, which may move meanwhile, for one plan


class Follower(Protocol):
    """The part of the replica that fetch needs."""

    async def barrier(self) -> int:
        """Catch up with the log as it is now. Raises Unavailable."""
        ...


class Reader(Protocol):
    """The part of the chunk reader that fetch needs."""

    async def read_many(self, slices: Sequence[SliceRef]) -> list[memoryview]:
        """The slices' batches, offsets patched."""
        ...


@dataclass(slots=True)
class FetchLimits:
    """Bounds over what a client asks for. Seconds and bytes."""

    wait_s_max: float
    response_bytes_max: int
    barrier_s_max: float = 5.0


@dataclass(slots=True)
class FetchRequest:
    """What a Fetch asks, resolved against the state anew by `resolve` for each plan."""

    resolve: Callable[[], list[Wanted]]
    wait_s: float
    bytes_min: int
    bytes_max: int
    read_committed: bool


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
    ) -> None:
        self._replica = replica
        self._reader = reader
        self._merged = merged
        self._limits = limits
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._leaving = False
        self.waiters = Waiters()

    def applied(self, applied: Applied) -> None:
        """Listener of the replica: wakes long polls one turn of the loop later.

        By then the outcome of this agent's own flush has put its bytes into the reader's cache.
        """
        if applied.touched and self.waiters.count:
            self._loop.call_soon(self.waiters.touched, applied.touched)

    def leave(self) -> None:
        """Answer every parked poll now, and park none from here on."""
        self._leaving = True
        self.waiters.wake_all()

    async def fetch(self, request: FetchRequest) -> list[Fetched]:
        """The answer per partition, in the request's order."""
        limits = self._limits
        deadline = self._loop.time() + min(request.wait_s, limits.wait_s_max)
        for _ in range(REPLANS_MAX):
            try:
                plan = await self._ready(request, deadline)
                return await self._read(plan)
            except ChunkMissing as error:
                _log.info("object gone, planning again", error=str(error))
                if not await self._barrier():
                    break
        return _failed(self._planned(request, {}))

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
            with self.waiters.watch(plan.waitable) as event:
                await self._woken(event, left)
            plan = await self._plan(request)
        return plan

    def _satisfied(self, plan: Plan, request: FetchRequest) -> bool:
        return (
            self._leaving or plan.bytes_ready >= request.bytes_min or plan.out_of_range or not plan.waitable
        )

    async def _woken(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for the event, at most so long."""
        self._metrics.fetch_parked.inc()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return
        finally:
            self._metrics.fetch_parked.dec()

    async def _plan(self, request: FetchRequest) -> Plan:
        """A plan with merged ranges looked up. The state may move meanwhile: then it is looked at again."""
        looked_up: dict[tuple[int, int], SlicePlan | Code] = {}
        for _ in range(LOOKS_MAX):
            plan = self._planned(request, looked_up)
            missing = plan.merged
            if not missing:
                break
            found = await asyncio.gather(*map(self._look_up, missing))
            looked_up.update(zip(map(_key, missing), found, strict=True))
        return plan

    def _planned(self, request: FetchRequest, looked_up: Mapping[tuple[int, int], SlicePlan | Code]) -> Plan:
        wanted = request.resolve()
        for want in wanted if looked_up else ():
            known = looked_up.get((want.partition.handle, want.offset)) if want.partition else None
            if isinstance(known, Code):
                want.failure = known
            elif known is not None:
                want.older = known
        bytes_max = min(request.bytes_max, self._limits.response_bytes_max)
        return plan_fetch(wanted, bytes_max, request.read_committed)

    async def _look_up(self, planned: Planned) -> SlicePlan | Code:
        """Where a merged range has the wanted records. Raises ChunkMissing."""
        partition = planned.wanted.partition
        assert isinstance(partition, Partition), "only partitions of the state have merged ranges"
        try:
            return await self._merged.slices(partition, planned.wanted.offset, max(planned.bytes_max, 1))
        except ChunkMissing:
            raise
        except (StoreError, TimeoutError) as error:
            _log.warning("a merged range cannot be looked up", error=repr(error))
            return Code.KAFKA_STORAGE_ERROR

    async def _barrier(self) -> bool:
        """Catch up; False when the log cannot be reached now."""
        try:
            async with asyncio.timeout(self._limits.barrier_s_max):
                await self._replica.barrier()
        except (Unavailable, TimeoutError):
            return False
        return True

    async def _read(self, plan: Plan) -> list[Fetched]:
        """Read every slice of the plan and cut it to the request's limits."""
        refs = [ref for planned in plan.partitions for ref in planned.slices]
        try:
            buffers = await self._reader.read_many(refs) if refs else []
        except (StoreError, TimeoutError) as error:
            _log.warning("records cannot be read", error=repr(error))
            return _failed(plan)
        return _cut_all(plan.partitions, buffers)


def _cut_all(partitions: Iterable[Planned], buffers: Sequence[memoryview]) -> list[Fetched]:
    fetched: list[Fetched] = []
    position, nothing_yet = 0, True
    for planned in partitions:
        count = len(planned.slices)
        records = cut(planned.slices, buffers[position : position + count], planned, nothing_yet)
        if planned.gap:
            records = [memoryview(empty_batch(planned.wanted.offset, planned.end_offset))]
        position += count
        nothing_yet = nothing_yet and not records
        fetched.append(Fetched(planned, records))
    return fetched


def _key(planned: Planned) -> tuple[int, int]:
    partition = planned.wanted.partition
    assert partition is not None, "an unknown partition has no merged range"
    return partition.handle, planned.wanted.offset


def _leave_to_others(plan: Plan) -> None:
    """Bounds that may be old ones are no verdict: a consumer would begin anew."""
    for planned in plan.partitions:
        if planned.code is Code.OFFSET_OUT_OF_RANGE:
            planned.code = Code.NOT_LEADER_OR_FOLLOWER


def _failed(plan: Plan) -> list[Fetched]:
    """The answer when the store fails: retriable for whoever had records to read."""
    for planned in plan.partitions:
        if planned.slices or planned.merged:
            planned.code, planned.slices = Code.KAFKA_STORAGE_ERROR, ()
    return [Fetched(planned, []) for planned in plan.partitions]
