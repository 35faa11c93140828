"""Rules of positions, broken: by which connection they came, what is newer, what is pending, the barrier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.kafka.context import BARRIER_S_MAX, Context
from agent.kafka.handlers import k09_offset_fetch
from coordination.state import fence, group_offsets
from tests.sim.plan import STORY_TIMEOUT_MS, Plan


def late_positions_are_taken() -> tuple[tuple[Any, str, Any], ...]:
    """What names a group of the transaction that is open counts, by whatever connection it came."""
    return (
        (fence, "positions_refusal", lambda transaction, group, source, at: None),
        (fence, "note_positions", lambda transaction, group, source, waiting, named, at: None),
    )


def commits_overtake() -> tuple[tuple[Any, str, Any], ...]:
    """What a coordinator of before held back is written over what the next one acknowledged."""
    return ((group_offsets, "_overtaken", lambda group, message, at: False),)


def pending_counts_as_stable() -> tuple[tuple[Any, str, Any], ...]:
    """A member reads on from positions that a transaction under way may change."""
    return ((k09_offset_fetch, "pending_of", lambda state, group: frozenset()),)


class _Sure(Context):
    """Takes what this agent has applied for all that there is."""

    async def barrier(self, seconds: float = BARRIER_S_MAX) -> bool:
        """Nobody is asked."""
        return True


def positions_without_barrier() -> tuple[tuple[Any, str, Any], ...]:
    """OffsetFetch is answered from what the agent has applied by then."""
    handle = k09_offset_fetch.handle

    async def sure(ctx: Context, request: Any, version: int) -> Any:
        return await handle(_Sure(ctx.services, ctx.client, ctx.client_id), request, version)

    return ((k09_offset_fetch, "handle", sure),)


def positions_come_late(plan: Plan) -> Plan:
    """TxnOffsetCommit is held until its client has sent that of its next transaction; all else is well."""
    late = (1.0, plan.seconds - 2.0, "late-positions", (0,))
    return replace(plan, timeout_ms=STORY_TIMEOUT_MS, faults=(late,))
