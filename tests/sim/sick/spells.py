"""What an agent can suffer from, and what must follow from it; plans in which one does. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from coordination.state.data import FEATURE_LEVEL_MAX

if TYPE_CHECKING:
    from tests.sim.plan import Plan

BEGINS_S = 4.0
FASTEST_S, LONGEST_S = 6.0, 10.0
"""How long a spell is: longer than others may take to notice."""
AFTER_S = 8.0
"""What follows a spell: time to come back."""
LONG_S = 40.0
"""What comes and goes does so for that long: dampening needs a minute to show."""

OUT_S_MAX = 5.0
"""The goal: within that time nobody is sent to an agent that is sick. It is 2 s of patience and the time to
notice; or 3.5 s of silence, and 0.3 s for each agent that might say it first (docs/operations.md)."""


@dataclass(frozen=True, slots=True)
class Sickness:
    """One kind.

    `leaves`: within OUT_S_MAX nobody is sent to it (who is slow and has little to do need not notice).
    `everybody`: all agents have it, and all stay named.
    `back_s`: how long after its end it may look sick yet, besides the wait that the product damps with.
    `returns`: it goes and comes again all the time, so that only damping says how often the agent is named.
    """

    name: str
    leaves: bool = True
    everybody: bool = False
    returns: bool = False
    back_s: float = 4.0


SLOW_BACK_S = 8.0
"""More than half of the newest eight PUTs and appends must be quick again."""
SICKNESSES = (
    Sickness("sick-lose-store"),
    Sickness("sick-refuse-store"),
    Sickness("sick-full-store"),
    Sickness("sick-cut-log"),
    Sickness("sick-refuse-log"),
    Sickness("sick-deaf-log"),
    Sickness("sick-slow", leaves=False, back_s=SLOW_BACK_S),
    Sickness("sick-far", leaves=False, back_s=SLOW_BACK_S),
    Sickness("sick-still"),
    Sickness("sick-starved", leaves=False, back_s=8.0),
    Sickness("sick-come-and-go", leaves=False, returns=True, back_s=70.0),
    Sickness("sick-all-full", leaves=False, everybody=True, back_s=8.0),
    Sickness("sick-all-cut", leaves=False, everybody=True, back_s=8.0),
)
BY_NAME = {each.name: each for each in SICKNESSES}


def with_sick(plan: Plan, name: str = "") -> Plan:
    """The seed's plan with one sickness and nothing else that goes wrong, and few clients."""
    random = Random(plan.seed ^ 0x51C4)
    kind = BY_NAME[name] if name else random.choice(SICKNESSES)
    agents = random.choice((2, 3, 3))
    for_s = LONG_S if kind.returns else random.uniform(FASTEST_S, LONGEST_S)
    targets = tuple(range(agents)) if kind.everybody else (random.randrange(agents),)
    after_s = SLOW_BACK_S if kind.back_s == SLOW_BACK_S else AFTER_S
    return replace(
        plan,
        sick=True,
        seconds=BEGINS_S + for_s + after_s,
        agents=agents,
        skews_ms=(0,) * agents,
        faults=((BEGINS_S, for_s, kind.name, targets),),
        level=FEATURE_LEVEL_MAX,
        writers=random.choice((0, 1)),
        readers=1,
        transactors=random.choice(((), ("v1",), ("v2",))),
        members=random.choice((0, 2)),
        modern=random.choice((0, 0, 2)),
        live_keys=0,
        key_writes=0,
        pipeliners=0,
        keepers=False,
        changes=False,
        solo=False,
        operator=False,
        mortal=False,
        binder=False,
        relay="",
    )
