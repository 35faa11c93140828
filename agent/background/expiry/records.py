"""Lets go of records below the log start whose time is over: floe.records.grace.ms, as it was then.

As with deleted topics (topics.py): proposed by what most agents say the time is, decided by apply
(coordination/state/held.py).
"""

from __future__ import annotations

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


class RecordsPurge(Job):
    """Every few seconds, proposes to let go of those that are over."""

    claim = "records-purge"

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = POLL_S) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock

    async def step(self, held: ClaimHolder) -> None:
        """One look at the partitions that hold any; one command, of as many as it may name."""
        state = self.replica.state
        judged_ms = deletion_ms(state, self._clock.now_ms())
        due = [each for each in state.holding.values() if over(each, judged_ms) > each.held_start]
        if not due:
            return
        handles = [each.handle for each in due[:PARTITIONS_AT_ONCE_MAX]]
        purge = PurgeRecords(partition=handles, judged_ms=judged_ms)
        result = await self.replica.propose(purge, incarnation=held.incarnation)
        if isinstance(result, Done):
            _log.info("held records are let go of", partitions=len(handles), offsets=result.value)
