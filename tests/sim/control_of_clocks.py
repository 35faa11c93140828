"""Rule 15 broken: the highest stamp of all counts, whoever is alone is believed whatever it says, whoever has
a job goes by its own clock, or by the agents' clocks where the store has one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.background import collection
from agent.background.expiry import positions, transactions
from agent.background.retention import job as retention
from agent.background.rewriting.compaction import partition as compaction
from coordination import jobs
from coordination.replica import clock_watch
from coordination.state import agreed_time, expiry
from iceberg import committer, maintenance
from tests.sim.plan import Plan

AHEAD_MS = 9_000
"""By so much all agents are ahead of the store, which is more than the grace that its objects have here."""


def clock_of_one_agent() -> tuple[tuple[Any, str, Any], ...]:
    """What is put in the place of what."""

    def hear(state: Any, author: Any, before_ms: int) -> None:
        state.clock_ms = max(state.clock_ms, author.last_proposed_ms)

    def own(state: Any, now_ms: int) -> int:
        return now_ms

    all_jobs = (positions, transactions, collection, retention, compaction, jobs, committer)
    return (
        (agreed_time, "hear", hear),
        (expiry, "agreed_ms", lambda state: state.clock_ms),
        (clock_watch, "apart_ms", lambda state, incarnation: 0),
        *((each, "deletion_ms", own) for each in all_jobs),
    )


def the_only_agent_is_right() -> tuple[tuple[Any, str, Any], ...]:
    """An agent that is alone is believed at once."""
    return ((agreed_time, "STEP_MS", 1 << 62),)


def the_last_word_counts_whenever_it_was() -> tuple[tuple[Any, str, Any], ...]:
    """What most agents said last is believed, though one of them has been set right since."""
    return ((agreed_time, "_most_stand_by_it", lambda state, author, stamp: True),)


def clocks_jump_by_turns(plan: Plan) -> Plan:
    """One of two agents is wrong, then the other: never both at a time."""
    jumps = tuple((3.0 + 0.6 * number, 0.59, "clock-jumps", (number % 2,)) for number in range(24))
    return replace(plan, agents=2, skews_ms=(0, 0), faults=jumps)


def one_agent_whose_clock_jumps(plan: Plan) -> Plan:
    """One of two agents serves, its clock jumps again and again, and nothing else goes wrong."""
    jumps = tuple((4.0 + 4.0 * number, 3.0, "clock-jumps", (0,)) for number in range(3))
    return replace(plan, agents=2, skews_ms=(0, 0), faults=((2.0, 16.0, "stop", (1,)), *jumps))


def agents_clocks_for_files() -> tuple[tuple[Any, str, Any], ...]:
    """A table's file is as old as the agents say, and not as the store says."""
    real = maintenance.orphans

    class Timeless:
        """A store that does not say when the head was made."""

        def __init__(self, store: Any) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def head(self, key: str) -> Any:
            return replace(await self._store.head(key), modified_ms=1 << 62)

    async def orphans(store: Any, *rest: Any) -> Any:
        return await real(Timeless(store), *rest)

    return ((maintenance, "orphans", orphans),)


def agents_are_ahead(plan: Plan) -> Plan:
    """All agents are ahead of the store, objects take their time, and leases end: claims move meanwhile."""
    ends = tuple((3.0 + number, 0.1, "expire-lease", (number % plan.agents,)) for number in range(16))
    skews_ms = (AHEAD_MS,) * plan.agents
    return replace(plan, skews_ms=skews_ms, store_s=(0.05, 0.3), table_ms=200, faults=ends)
