"""Lets go of deleted topics whose time is over (floe.delete.retention.ms as it stood when they were deleted).

Apply has no clock: the job proposes by what most agents say the time is, apply refuses a clock that is ahead
of that, and looks at each topic's time again (coordination/state/deleted.py).
"""

from __future__ import annotations

from agent.telemetry.logs import logger
from coordination.clock import Clock
from coordination.commands import PurgeTopics
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.deleted import PURGED_AT_ONCE_MAX
from coordination.state.types import ClaimHolder

_log = logger("deleted topics")

POLL_S = 5.0


class TopicPurge(Job):
    """Every few seconds, proposes to let go of those that are over."""

    claim = "topic-purge"

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = POLL_S) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock

    async def step(self, held: ClaimHolder) -> None:
        """One look at all of them: there are at most `deleted.TOPICS_MAX`."""
        state = self.replica.state
        judged_ms = deletion_ms(state, self._clock.now_ms())
        over = [each for each in state.deleted.values() if each.until_ms <= judged_ms][:PURGED_AT_ONCE_MAX]
        if not over:
            return
        purge = PurgeTopics(topic_id=[each.topic.topic_id for each in over], judged_ms=judged_ms)
        await self.replica.propose(purge, incarnation=held.incarnation)
        _log.info("deleted topics are let go of", topics=[each.topic.name for each in over[:20]])
