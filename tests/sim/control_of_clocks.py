"""Rule 15 broken: the highest stamp of all counts, and whoever has a job goes by its own clock."""

from __future__ import annotations

from typing import Any

from agent.background import collection
from agent.background.expiry import positions, transactions
from agent.background.retention import job as retention
from agent.background.rewriting.compaction import partition as compaction
from coordination import jobs
from coordination.replica import clock_watch
from coordination.state import agreed_time, expiry


def clock_of_one_agent() -> tuple[tuple[Any, str, Any], ...]:
    """What is put in the place of what."""

    def hear(state: Any, author: Any, before_ms: int) -> None:
        state.clock_ms = max(state.clock_ms, author.last_proposed_ms)

    def own(state: Any, now_ms: int) -> int:
        return now_ms

    all_jobs = (positions, transactions, collection, retention, compaction, jobs)
    return (
        (agreed_time, "hear", hear),
        (expiry, "agreed_ms", lambda state: state.clock_ms),
        (clock_watch, "apart_ms", lambda state, incarnation: 0),
        *((each, "deletion_ms", own) for each in all_jobs),
    )
