"""Who copies queues between two clusters, with a rule broken: each is caught by what is there in the end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coordination.restore.rebuild import rebuild
from tests.sim import promoted
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan
from tests.sim.queues import QueueCopier


def _told(plan: Plan) -> Plan:
    return replace(plan, queues=True, restored=False, hurt=False)


def _copied(plan: Plan) -> Plan:
    return replace(plan, follows="copy", scrubbed=False, hurt=False)


def _takes_tails_alone() -> Any:
    """What is merged into segments is not taken along by a promotion."""
    usual = rebuild

    async def rebuilt(*given: Any) -> Any:
        made = await usual(*given)
        for each in (partition for partition in made.state.partitions if partition is not None):
            if each.merged is not None:
                each.log_start = each.merged.end_offset
        return made

    return patched((promoted, "rebuild", rebuilt))


QUEUES = (
    Control(
        "queue-positions-first",
        "where a copier goes on is committed with its copies",
        frozenset({"queue-lost"}),
        lambda: patched((QueueCopier, "positions_first", True)),
        lambda plan: plan.writers > 0,
        _told,
    ),
    Control(
        "queue-without-fence",
        "who takes a copier's place over fences it",
        frozenset({"queue-doubled"}),
        lambda: patched((QueueCopier, "fences", False)),
        lambda plan: plan.writers > 0,
        _told,
    ),
    Control(
        "promoted-without-segments",
        "a promoted copy has all that was merged",
        frozenset({"promoted-lost"}),
        _takes_tails_alone,
        lambda plan: plan.archived,
        _copied,
    ),
)
