"""What a fault of the simulation is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind: `begin` on the targets, `end` when it is over, and on all agents at the end of the run."""

    name: str
    begin: Callable[[World, Sequence[AgentNode]], None]
    end: Callable[[World, Sequence[AgentNode]], None]
    aimed: Callable[[World, Sequence[AgentNode], str], None] | None = None
    """`begin` at a step or at a kind of request that a plan names by a second word."""


def nothing(world: World, targets: Sequence[AgentNode]) -> None:
    """What is over by itself, or leaves nothing to put right."""
    del world, targets
