"""What a plan must have for a kind of fault to mean something in it. Each gives the plan that has it."""

from __future__ import annotations

from dataclasses import replace

from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.plan import LEVEL_BEFORE, STORY_TIMEOUT_MS, Plan


def anything(plan: Plan) -> Plan:
    """As it is."""
    return plan


def newest_level(plan: Plan) -> Plan:
    """Of the newest level from the start."""
    return _without(replace(plan, level=FEATURE_LEVEL_MAX), "upgrade")


def level_before(plan: Plan) -> Plan:
    """Of the level before: what came with the newest takes no part, and all clocks are right (plan.py)."""
    plan = _without(_without(plan, "upgrade"), "clock-")
    return replace(plan, level=LEVEL_BEFORE, hurt=False, upsert=False, registrar=False, gated=False)


def one_zone(plan: Plan) -> Plan:
    """All agents follow one of them."""
    return replace(plan, near=True)


def transactions_of_v1(plan: Plan) -> Plan:
    """Somebody whose EndTxn may come late, and who has time for it."""
    more = () if "v1" in plan.transactors else ("v1",)
    return replace(plan, transactors=(*plan.transactors, *more), timeout_ms=STORY_TIMEOUT_MS)


def members(plan: Plan) -> Plan:
    """A group that goes on without one of them."""
    return replace(plan, members=max(plan.members, 2))


def members_in_transactions(plan: Plan) -> Plan:
    """Likewise, and they commit in transactions that stay open meanwhile."""
    return replace(members(plan), member_kind="v2", timeout_ms=STORY_TIMEOUT_MS)


def scrubbed(plan: Plan) -> Plan:
    """Damage is brought back, and judged."""
    return replace(plan, scrubbed=True, hurt=False)


def scrubbed_archive(plan: Plan) -> Plan:
    """Likewise, with a log that is copied to the bucket."""
    return replace(scrubbed(plan), archived=True, restored=False)


def damaged_for_good(plan: Plan) -> Plan:
    """Records are passed over."""
    return replace(newest_level(plan), hurt=True, scrubbed=False, restored=False)


def mortal(plan: Plan) -> Plan:
    """A topic that comes back when it was deleted."""
    return replace(newest_level(plan), mortal=True)


def restored(plan: Plan) -> Plan:
    """The log goes back to a backup at the end."""
    return replace(plan, restored=True, hurt=False, archived=False, gated=False)


def _without(plan: Plan, kind: str) -> Plan:
    return replace(plan, faults=tuple(each for each in plan.faults if not each[2].startswith(kind)))
