"""What each agent pays for what all of them write: it follows the log and applies every entry."""

from __future__ import annotations

from agent.costs import coefficients as measured

US, NS = 1e-6, 1e-9


def gathered(per_s: float, alone: float, crowd: float) -> float:
    """CPU seconds of one of `per_s` a second: `alone` where it comes singly, `crowd` where many come at once.

    While one is dealt with, more may come, and are dealt with together behind it.
    """
    return crowd + max(0.0, alone - crowd) / (1 + per_s * alone)


def apply_cores(agents: int, entries: float, slices: float) -> float:
    """Of each agent, cores, for so many entries a second of all agents, with so many batches.

    Entries of the others come over the wire, its own it applies as part of its flush.
    """
    others = entries * (agents - 1) / agents
    an_entry = gathered(others, measured.FOLLOW_ENTRY.value * US, measured.FOLLOW_CROWD.value * US)
    clocks = measured.LIVE_AGENT.value * NS * agents
    return others * (an_entry + clocks) + slices / measured.APPLY.value
