"""Every kind of fault that the simulation can inject, and which two of them can never be on together.

A kind says how one sees that it is on: an agent that is down cannot lose its log as well. What is over at
once (a lease that ends, a reset) counts for WINDOW_S: that long others are busy with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from tests.sim.faults import FAULTS, NAMED
from tests.sim.faults.copies import COPIES
from tests.sim.faults.liars import LIARS
from tests.sim.faults.objects import KINDS as DAMAGES
from tests.sim.faults.sick import SICK
from tests.sim.faults.slowness import FAR_STORE_S
from tests.sim.faults.store import RATES, REFUSED
from tests.sim.node import AgentNode
from tests.sim.pairs import needs
from tests.sim.plan import Plan
from tests.sim.sick.store import Road

if TYPE_CHECKING:
    from tests.sim.world import World

WINDOW_S = 1.0
Felt = Callable[["World", Sequence[AgentNode]], bool]
"""Whether a fault of these targets is on now."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind. `at_once`: it is over when it has begun. `armed`: it begins when its agent comes to a step.

    `knob`: who turns the same one undoes the other, so they need different agents.
    """

    name: str
    felt: Felt
    prepared: Callable[[Plan], Plan] = needs.anything
    """The plan with what it takes for the fault to mean something."""
    at_once: bool = False
    armed: bool = False
    knob: str = ""
    seconds: tuple[float, float] = (2.0, 6.0)
    """How long it lasts, at least and at most."""
    planned: bool = True
    """Whether it is an event of a plan."""


def _any(test: Callable[[AgentNode], object]) -> Felt:
    return lambda world, targets: any(test(agent) for agent in targets)


def _of_log(flag: str) -> Felt:
    return _any(lambda agent: agent.alive and agent.log is not None and getattr(agent.log.faults, flag))


def _always(world: World, targets: Sequence[AgentNode]) -> bool:
    del world, targets
    return True


def _paused(world: World, targets: Sequence[AgentNode]) -> bool:
    return any(agent.identity in world.loop._paused for agent in targets)


def _member_paused(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    members = (client for client in world.clients if client.name.startswith("m"))
    return any(client.identity in world.loop._paused for client in members)


def _lied(name: str) -> Felt:
    return _any(
        lambda agent: (
            agent.alive
            and agent.app is not None
            and agent.app.relayed is not None
            and name in vars(agent.app.relayed.ring)
        )
    )


def _on_the_road(test: Callable[[Road], bool]) -> Felt:
    def felt(world: World, targets: Sequence[AgentNode]) -> bool:
        del world
        stores = (agent.store for agent in targets if agent.alive)
        roads = (store._store for store in stores if store is not None)
        return any(test(road) for road in roads if isinstance(road, Road))

    return felt


def _damaged(fault: str) -> Felt:
    def felt(world: World, targets: Sequence[AgentNode]) -> bool:
        del targets
        done = world.vandalism
        return not done.damaged.isdisjoint(done.by_fault.get(fault, ()))

    return felt


def _requests_held(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return bool(world.network.held_kinds)


def _ends_late(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return world.network.late_ends.on


def _positions_late(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return world.network.late_ends.positions


def _records_damaged(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return bool(world.hurt.damaged)


def _object_held(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return bool(world.held)


def _topic_away(world: World, targets: Sequence[AgentNode]) -> bool:
    del targets
    return world.witness.mortal.away


_alive = _any(lambda agent: agent.alive)
_down = _any(lambda agent: agent.stopping or not agent.alive)
_DOWN, _STORE, _STILL = "process", "rates of the store", "standing still"
KINDS: tuple[Kind, ...] = (
    Kind("kill", _down, knob=_DOWN),
    Kind("power-off", _down, knob=_DOWN),
    Kind("stop", _down, knob=_DOWN),
    Kind("stop-in-commit", _down, armed=True, knob=_DOWN, seconds=(5.0, 7.0)),
    Kind("kill-at-step", _down, armed=True, knob=_DOWN, seconds=(5.0, 7.0)),
    Kind("pause-at-step", _paused, armed=True, knob=_DOWN, seconds=(5.0, 7.0)),
    Kind("pause", _paused, knob=_STILL),
    Kind("cut-log", _of_log("partitioned")),
    Kind("refuse-log", _of_log("refused")),
    Kind("slow-log", _of_log("delivery_delay_s")),
    Kind("lose-answers", _of_log("lose_answers")),
    Kind("deafen-log", _of_log("lose_answers")),
    Kind("fill-log", _of_log("full")),
    Kind("fill-log-too-late", _of_log("full_too_late")),
    Kind("expire-lease", _any(lambda agent: agent.alive and agent.app), at_once=True),
    Kind("compact", _always, at_once=True),
    Kind("cancel-watches", _always, at_once=True),
    Kind("silence-watches", _always, at_once=True),
    Kind("bad-store", _any(lambda one: one.alive and one.store and one.store.rates is RATES), knob=_STORE),
    Kind(
        "refuse-store", _any(lambda one: one.alive and one.store and one.store.rates is REFUSED), knob=_STORE
    ),
    Kind("lose-store", _on_the_road(lambda road: not road._whole.is_set())),
    Kind("fill-store", _on_the_road(lambda road: road.full)),
    Kind("late-puts", _any(lambda agent: agent.alive and agent.hanging.on)),
    Kind("far-away", _any(lambda agent: agent.alive and agent.ways.store_s == FAR_STORE_S)),
    Kind("starve", _any(lambda agent: agent.alive and agent.starved), knob=_STILL),
    Kind("cut-clients", _alive),
    Kind("cut-agents", _alive),
    Kind("lose-segments", _alive),
    Kind("reset", _alive, at_once=True),
    Kind("half-open", _alive, at_once=True),
    Kind("hold-requests", _requests_held),
    Kind("late-ends", _ends_late, needs.transactions_of_v1),
    Kind("late-positions", _positions_late, needs.transactions_of_v1),
    Kind("crash-client", _always, at_once=True),
    Kind("pause-member", _member_paused, needs.members),
    Kind("pause-member-before-end", _member_paused, needs.members_in_transactions, seconds=(7.0, 8.5)),
    Kind(
        "clock-jumps", _any(lambda one: one.alive and one.clock and one.clock._wrong_ms), needs.newest_level
    ),
    Kind(
        "clock-drifts",
        _any(lambda one: one.alive and one.clock and one.clock._rate != 1.0),
        needs.newest_level,
    ),
    Kind("upgrade", _always, needs.level_before),
    *(Kind(lie.name, _lied("wake" if "mute" in lie.name else "add"), needs.one_zone) for lie in LIARS),
    *(
        Kind(name, _damaged(name), needs.scrubbed_archive if "archive" in name else needs.scrubbed)
        for name in DAMAGES
    ),
    Kind("damage-records", _records_damaged, needs.damaged_for_good),
    Kind("hold-object", _object_held),
    Kind("scrub", _alive, needs.scrubbed, at_once=True),
    Kind("topic-away", _topic_away, needs.mortal, seconds=(4.0, 5.5)),
    Kind("restore", _always, needs.restored, planned=False),
)
BY_NAME: Mapping[str, Kind] = {each.name: each for each in KINDS}
NO_KINDS = frozenset(each.name for each in (*SICK, *COPIES))
"""Faults that are no kinds of their own: those of one sick agent, which are others of this table, judged.

And a member of the log that differs: what an agent applies of it before it is found out, no watcher may see.
"""
RESTORED_BESIDE = ("kill", "pause")
"""What restored.py does to agents while the log goes back."""

_CLOCKS = ("clock-jumps", "clock-drifts")
_LIES = tuple(each.name for each in LIARS if "mute" not in each.name)
_GROUPS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (_CLOCKS, _CLOCKS, "one clock is off at a time: what most agents say is right (rule 15)"),
    (
        ("upgrade",),
        _CLOCKS,
        "at the level before no time is agreed on: whose clock is off may delete too early there",
    ),
    (
        ("upgrade",),
        ("damage-records", "topic-away"),
        "records are passed over, and topics come back, from the newest level on",
    ),
    (_LIES, _LIES, "a zone follows one agent, and that tells one lie at a time"),
    (
        ("damage-records",),
        (*DAMAGES, "scrub"),
        "one judge wants damage that is for good, the other that each is mended or told",
    ),
    (
        ("restore",),
        tuple(each.name for each in KINDS if each.name not in RESTORED_BESIDE),
        "the log goes back when all else is over and judged, while agents are dead or stand still",
    ),
)


def pair_of(one: str, other: str) -> str:
    """The name of a pair: the kinds in the order of their names."""
    return "+".join(sorted((one, other)))


def kinds_of(pair: str) -> tuple[Kind, Kind]:
    """The two. Raises KeyError with what is wrong, also where they cannot be on together."""
    names = pair.split("+")
    unknown = [name for name in names if name not in BY_NAME]
    if len(set(names)) != 2 or len(names) != 2 or unknown:
        known = ", ".join(BY_NAME)
        raise KeyError(f"pair {pair!r}: name two kinds as one+other, of these: {known}")
    if (reason := EXCLUDED.get(pair_of(*names))) is not None:
        raise KeyError(f"pair {pair!r} cannot be: {reason}")
    return BY_NAME[names[0]], BY_NAME[names[1]]


def _excluded() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for some, others, reason in _GROUPS:
        found |= {pair_of(one, other): reason for one in some for other in others if one != other}
    return found


EXCLUDED: Mapping[str, str] = _excluded()
"""By pair why it cannot overlap."""
POSSIBLE: tuple[str, ...] = tuple(
    pair for one, other in combinations(sorted(BY_NAME), 2) if (pair := pair_of(one, other)) not in EXCLUDED
)
EVERY_FAULT: tuple[str, ...] = tuple(each.name for each in (*FAULTS, *NAMED))
