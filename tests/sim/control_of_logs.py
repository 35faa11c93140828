"""Rules 3 and 11 broken: what a log says of its room is believed, and which log it is nobody looks at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination import memory_log
from coordination.chain import AppendChain
from tests.sim.plan import Plan

Change = tuple[Any, str, Any]
"""Where, which name, what it is instead."""


def follows_any_log() -> tuple[Change, ...]:
    """A follower looks at revisions only: a log that was restored and is as far again is as good."""
    return ((memory_log, "check_last", lambda *known: None),)


def no_room_is_believed() -> tuple[Change, ...]:
    """A log without room has written nothing: nobody asks the key."""
    return ((AppendChain, "_stands_before", lambda self, found, sequence: True),)


def too_late_again_and_again(plan: Plan) -> Plan:
    """The log says now and then that it has no room for what it has taken, far away from all agents."""
    agents = tuple(range(plan.agents))
    faults = tuple((2.0 + 0.5 * number, 0.4, "fill-log-too-late", agents) for number in range(34))
    return replace(plan, faults=faults, rate=12.0, log_s=(0.03, 0.09))
