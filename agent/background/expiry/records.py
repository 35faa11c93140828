"""Lets go of records below the log start whose time is over: floe.records.grace.ms, as it was then.

As with deleted topics (topics.py): proposed by what most agents say the time is, decided by apply
(coordination/state/held.py).
"""

from __future__ import annotations

import asyncio

from agent.telemetry.logs import logger
from coordination.clock import Clock
from coordination.commands import PurgeRecords
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.held import PARTITIONS_AT_ONCE_MAX, over
from coordination.state.types import ClaimHolder, Done

_log = logger("held records")

POLL_S = 5.0
LOOKS_PER_STEP = 1000  # partitions looked at before the event loop gets its turn: about a millisecond


class RecordsPurge(Job):
    """Every few seconds, proposes to let go of those that are over."""

    claim = "records-purge"

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = POLL_S) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock

    async def step(self, held: ClaimHolder) -> None:
        """One look at the partitions that hold any; one command, of as many as it may name."""
        judged_ms = deletion_ms(self.replica.state, self._clock.now_ms())
        handles = await self._due(judged_ms)
        if not handles:
            return
        purge = PurgeRecords(partition=handles, judged_ms=judged_ms)
        result = await self.replica.propose(purge, incarnation=held.incarnation)
        if isinstance(result, Done):
            _log.info("held records are let go of", partitions=len(handles), offsets=result.value)

    async def _due(self, judged_ms: int) -> list[int]:
        """Handles of the first partitions of which something is over. Apply looks again."""
        handles, due = list(self.replica.state.holding), list[int]()
        for start in range(0, len(handles), LOOKS_PER_STEP):
            holding = self.replica.state.holding
            for handle in handles[start : start + LOOKS_PER_STEP]:
                partition = holding.get(handle)  # it may be gone, or hold nothing any more
                if partition is not None and over(partition, judged_ms) > partition.held_start:
                    due.append(handle)
            if len(due) >= PARTITIONS_AT_ONCE_MAX:
                break
            await asyncio.sleep(0)
        return due[:PARTITIONS_AT_ONCE_MAX]
