"""What goes wrong in a simulated world, and how it is put right again: a file per kind, one table here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from tests.sim.faults.clients import CLIENTS, MEMBERS
from tests.sim.faults.clocks import CLOCKS
from tests.sim.faults.copies import COPIES
from tests.sim.faults.fault import Fault
from tests.sim.faults.liars import LIARS
from tests.sim.faults.log import LOG
from tests.sim.faults.network import LATE_ENDS, LATE_POSITIONS, NETWORK
from tests.sim.faults.objects import OBJECTS
from tests.sim.faults.processes import PROCESSES
from tests.sim.faults.sick import SICK
from tests.sim.faults.slowness import SLOWNESS
from tests.sim.faults.store import LATE_PUTS, ROADS, STORE
from tests.sim.faults.upgrade import UPGRADE
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

FAULTS: tuple[Fault, ...] = (
    *PROCESSES,
    *LOG,
    *STORE,
    *SLOWNESS,
    *NETWORK,
    *CLIENTS,
    *CLOCKS,
)
"""Those that any seed may draw. A new one is a file here and a line in this table."""
NAMED: tuple[Fault, ...] = (
    LATE_ENDS,
    LATE_POSITIONS,
    LATE_PUTS,
    *MEMBERS,
    UPGRADE,
    *SICK,
    *LIARS,
    *ROADS,
    *OBJECTS,
    *COPIES,
)
"""Those of stories: of kept plans, of seeds that tell one (plan.py), and of pairs (pairs/)."""


__all__ = ["FAULTS", "NAMED", "Fault", "fault_of"]


def fault_of(kind: str) -> Fault:
    """The fault that a plan names, aimed by a second word: `kill-at-step flush/submit`. Raises KeyError."""
    name, _, aim = kind.partition(" ")
    fault = next((each for each in (*FAULTS, *NAMED) if each.name == name), None)
    if fault is None or (aim and fault.aimed is None):
        raise KeyError(f"no fault is called {kind!r}")
    if fault.aimed is None or not aim:
        return fault
    return replace(fault, begin=partial(_aimed, fault.aimed, aim))


def _aimed(
    begin: Callable[[World, Sequence[AgentNode], str], None],
    aim: str,
    world: World,
    targets: Sequence[AgentNode],
) -> None:
    begin(world, targets, aim)
