"""Rules of health broken: what a sick agent must do, what the others must, and what the last one must not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from agent import app
from agent.cluster import hints
from agent.cluster.peers import owners
from agent.health.others import Others
from agent.health.standing import Standing
from agent.kafka import context
from agent.kafka.groups.coordinator import GroupCoordinator
from coordination.state.state import HANDLERS
from coordination.state.types import Broker
from tests.sim.control_of_groups import groups_move_and_come_back, old_coordinator_keeps_time
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import Plan
from tests.sim.sick import bed
from tests.sim.sick.spells import with_sick

AT_ONCE_S = 0.2


def _does_not_step_aside() -> Any:
    """It knows that it is sick, and goes on."""
    return patched((Standing, "_judge", lambda self: None))


def _nobody_judges() -> Any:
    """Who cannot say it itself stays named until its lease ends."""
    return patched((Others, "silent", lambda self: []))


def _comes_back_at_once() -> Any:
    """However often it has come back before."""
    return patched((Standing, "return_s", property(lambda self: 0.0)))


def _never_comes_back() -> Any:
    """However long it has been well."""
    return patched((Standing, "return_s", property(lambda self: inf)))


def _judges_at_once() -> Any:
    """Who says nothing for a fifth of a second is called silent, well before its next heartbeat."""
    real = Others.silent

    def silent(self: Any) -> Any:
        self._silence_s = AT_ONCE_S
        return real(self)

    return patched((Others, "silent", silent))


def _named_for_ever() -> Any:
    """Metadata and FindCoordinator name who has stepped aside as well."""
    return patched((hints, "serving_of", list))


def _nobody_is_named() -> Any:
    """Metadata names who has entered it, and nobody while nobody has."""

    def serving_of(brokers: Iterable[Broker]) -> list[Broker]:
        serving = [broker for broker in brokers if broker.serving]
        return [broker for broker in serving if not broker.unwell] or serving

    places: tuple[Any, ...] = (hints, owners, context, app)
    return patched(*((each, "serving_of", serving_of) for each in places))


def _groups_are_kept() -> Any:
    """Who is not named runs the groups on that it has."""
    return patched((GroupCoordinator, "_lost", lambda self, group_id: False))


def _last_well_one_leaves() -> Any:
    """Nobody is named while nobody is well."""

    def serving_of(brokers: Iterable[Broker]) -> list[Broker]:
        return [broker for broker in brokers if broker.serving and not broker.unwell]

    return patched(*((each, "serving_of", serving_of) for each in (hints, owners, context, bed)))


@contextmanager
def _claims_are_kept() -> Iterator[None]:
    """Who is unwell keeps its jobs."""
    real = HANDLERS["judge_agent"]

    def judge_agent(state: Any, message: Any, at: Any) -> Any:
        claims = dict(state.claims)
        result = real(state, message, at)
        state.claims.update(claims)
        return result

    HANDLERS["judge_agent"] = judge_agent
    try:
        yield
    finally:
        HANDLERS["judge_agent"] = real


def _suffers(name: str) -> Callable[[Plan], Plan]:
    """The seed's plan with that sickness."""
    return partial(with_sick, name=name)


def _with_groups(name: str) -> Callable[[Plan], Plan]:
    """The same, with a group that has members."""
    return lambda plan: replace(with_sick(plan, name), members=2)


STAYED = frozenset({"sick-agent-named", "stood-still"})
HEALTH: tuple[Control, ...] = (
    Control(
        "sick-one-stays",
        "16: who cannot store leaves by itself",
        STAYED,
        _does_not_step_aside,
        told=_suffers("sick-full-store"),
    ),
    Control(
        "nobody-judges",
        "16: the others take out who cannot say it",
        STAYED,
        _nobody_judges,
        told=_suffers("sick-still"),
    ),
    Control(
        "no-damping",
        "16: who comes back again and again waits longer",
        frozenset({"flapping"}),
        _comes_back_at_once,
        told=_suffers("sick-come-and-go"),
    ),
    Control(
        "last-well-one-leaves",
        "16: while no agent is well, all of them serve",
        frozenset({"nobody-named"}),
        _last_well_one_leaves,
        told=_suffers("sick-all-full"),
    ),
    Control(
        "claims-are-kept",
        "16: who is unwell gives up its jobs",
        frozenset({"claims-kept"}),
        _claims_are_kept,
        told=_suffers("sick-refuse-store"),
    ),
    Control(
        "groups-are-kept",
        "16: who is unwell runs no groups",
        frozenset({"groups-kept"}),
        _groups_are_kept,
        told=_with_groups("sick-refuse-store"),
    ),
    Control(
        "old-coordinator-keeps-time",
        "sessions are kept by who coordinates",
        frozenset({"thrown-out"}),
        lambda: patched(*old_coordinator_keeps_time()),
        told=groups_move_and_come_back,
    ),
    Control(
        "named-for-ever",
        "16: clients are sent to who is well",
        frozenset({"stood-still"}),
        _named_for_ever,
        told=_suffers("sick-full-store"),
    ),
    Control(
        "nobody-is-named",
        "16: clients are always told of somebody",
        frozenset({"nobody-named"}),
        _nobody_is_named,
    ),
    Control(
        "never-comes-back",
        "16: who is well again is named again",
        frozenset({"still-away"}),
        _never_comes_back,
        told=_suffers("sick-full-store"),
    ),
    Control(
        "judges-at-once",
        "16: silence is more than a heartbeat that is due",
        frozenset({"well-agent-aside"}),
        _judges_at_once,
        told=_suffers("sick-slow"),
    ),
)
"""Beside CONTROLS of controls.py. All of them tell the sickness that comes to the rule."""
