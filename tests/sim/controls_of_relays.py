"""What keeps an agent right that follows another one, taken away: a lying relay is noticed then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agent.cluster.relay import log as relay_log
from agent.cluster.relay.stream import Left
from agent.cluster.relay.wire import Item
from coordination.log import Statement
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan

POISONED = frozenset({"state-differs", "poisoned", "log-lost", "stuck"})
STALE = frozenset({"lost-write", "unseen", "stuck", "state-differs", "position-back", "poisoned", "log-lost"})


def _lying(kind: str) -> Callable[[Plan], Plan]:
    """All of one zone, whose agents lie again and again; nothing else is wrong."""

    def told(plan: Plan) -> Plan:
        faults = tuple((2.0 + 4 * number, 3.0, kind, tuple(range(plan.agents))) for number in range(4))
        return replace(plan, near=True, faults=faults, restored=False, skews_ms=(0,) * plan.agents)

    return told


def _verify_without_hash() -> Any:
    """An entry is as its seal says, and comes later than the one before."""

    def verify(self: Any, item: Item, place: Any, state: Any) -> None:
        del state
        if not item.whole or item.entry.revision <= place.through:
            raise Left("damaged", "its seal")
        self.by_relay += 1

    return patched((relay_log.RelayedLog, "_verify", verify))


def _no_seal() -> Any:
    return patched((Item, "whole", property(lambda self: True)))


def _progress_is_believed() -> Any:
    """The relay says through which revision there is nothing else; nobody asks etcd for its newest entry."""

    async def testify(self: Any, entry: Any = None) -> Statement:
        found = await self._log.testify(entry)
        self._note(found.revision, 0)
        return Statement(found.revision, 0, True)

    return patched((relay_log.RelayedLog, "_testify", testify))


RELAYS: tuple[Control, ...] = (
    Control(
        "relay-without-seal",
        "6: what a relay gives is verified",
        POISONED,
        _no_seal,
        lambda plan: plan.agents > 2,
        _lying("relay-damages"),
    ),
    Control(
        "relay-without-hash",
        "6: what a relay gives is verified",
        POISONED,
        _verify_without_hash,
        lambda plan: plan.agents > 2,
        _lying("relay-hides"),
    ),
    Control(
        "relay-says-how-far",
        "5: the target of a barrier is etcd's",
        STALE,
        _progress_is_believed,
        lambda plan: plan.agents > 2,
        _lying("relay-hides-all"),
    ),
)
