"""Rules of groups broken: a coordinator that lost a group of KIP-848 goes on keeping its members' time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.kafka.groups.consumer.driver import ConsumerGroups
from agent.kafka.groups.consumer.runner import Runner
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.sim.plan import Plan


def old_coordinator_keeps_time() -> tuple[tuple[Any, str, Any], ...]:
    """Nobody is heard by it any more, so it calls all of them late."""

    def propose_due(self: Any, runner: Runner, now: float) -> None:
        for key in runner.sessions.take_due(now):
            self._propose(runner, key)

    return (
        (ConsumerGroups, "_let_go", lambda self, runner: None),
        (ConsumerGroups, "_propose_due", propose_due),
    )


def groups_move_and_come_back(plan: Plan) -> Plan:
    """An agent dies and returns: what it coordinates goes to the other and comes back. All else is well."""
    gone = (10.0, plan.seconds - 10.5, "kill", (0,))
    return replace(plan, modern=2, operator=False, level=FEATURE_LEVEL_MAX, faults=(gone,))
