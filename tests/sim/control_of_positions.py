"""Rule 8 broken for positions: nobody asks by which connection a TxnOffsetCommit came."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.state import fence
from tests.sim.plan import STORY_TIMEOUT_MS, Plan


def late_positions_are_taken() -> tuple[tuple[Any, str, Any], ...]:
    """What names a group of the transaction that is open counts, by whatever connection it came."""
    return (
        (fence, "positions_refusal", lambda transaction, group, source, at: None),
        (fence, "note_positions", lambda transaction, group, source, waiting, named, at: None),
    )


def positions_come_late(plan: Plan) -> Plan:
    """TxnOffsetCommit is held until its client has sent that of its next transaction; all else is well."""
    late = (1.0, plan.seconds - 2.0, "late-positions", (0,))
    return replace(plan, timeout_ms=STORY_TIMEOUT_MS, faults=(late,))
