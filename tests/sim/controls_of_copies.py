"""What keeps agents right that follow a member of the log whose disk differs, taken away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from coordination.replica.comparing import Comparison
from coordination.replica.doubt import Doubt
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan

OTHER_STATE = frozenset({"state-differs", "lost-write", "unseen", "stuck", "poisoned"})


def _not_compared() -> Any:
    return patched(
        (Comparison, "heard", lambda self, applied, state: None),
        (Comparison, "others", lambda self, state: []),
    )


async def _sustained(*_: Any) -> bool:
    return True


def _differing() -> Callable[[Plan], Plan]:
    def told(plan: Plan) -> Plan:
        return replace(
            plan,
            faults=((6.0, 1.0, "member-differs", (0,)), (12.0, 1.0, "member-differs", (1,))),
            snapshot_entries=100_000,
            restored=False,
            near=False,
            skews_ms=(0,) * plan.agents,
        )

    return told


def _begun_behind() -> Callable[[Plan], Plan]:
    """All stop while the archive lags; the first to come back begins at the member that differs."""

    def told(plan: Plan) -> Plan:
        return replace(
            plan,
            faults=(
                (4.0, 6.0, "refuse-store", (0, 1, 2)),
                (10.9, 5.6, "stop", (0, 1, 2)),
                (12.4, 1.2, "member-differs", (1,)),
            ),
            snapshot_entries=60,
            restored=False,
            near=False,
        )

    return told


COPIES: tuple[Control, ...] = (
    Control(
        "states-not-compared",
        "6: agents compare their states",
        OTHER_STATE,
        _not_compared,
        lambda plan: plan.agents > 2 and plan.writers > 0,
        _differing(),
    ),
    Control(
        "read-before-not-asked",
        "6: what was read from before the state is archived as most copies have it",
        frozenset({"archive-differs"}),
        lambda: patched((Doubt, "sustained", _sustained)),
        lambda plan: plan.agents > 2 and plan.archived,
        _begun_behind(),
    ),
)
