"""Agents die, leave, stand still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from coordination.steps import STEPS
from iceberg.steps import STEPS as TABLE_STEPS
from iceberg.upsert.steps import STEPS as LATEST_STEPS
from objectstore.faulty import FaultRates
from tests.sim.faults.fault import Fault
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

SLOW = FaultRates(slow=1.0, slow_s_max=1.5, stale_writes=0)
COMMIT_STEPS = ("plan", "read-records", "store-file", "store-manifest-list")
_OF_TABLES = (("table", TABLE_STEPS), ("latest", LATEST_STEPS))
ALL_STEPS = (*STEPS, *(f"{path}/{step}" for path, names in _OF_TABLES for step in names))


def _kill(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        agent.crash()


def _start(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if not agent.alive:
            agent.start()


def _stop(world: World, targets: Sequence[AgentNode]) -> None:
    """In good order; its supervisor has no patience beyond the fault's end."""
    for agent in targets:
        agent.stop()


def _start_anew(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.stopping:
            agent.crash()
    _start(world, targets)


def _stop_in_commit(world: World, targets: Sequence[AgentNode]) -> None:
    """Leave in the middle of a table's commit that takes long: others go on with the table meanwhile."""
    for agent in targets:
        if agent.alive:
            step = world.loop.random.choice(COMMIT_STEPS)
            world.seen.armed[agent.name] = (f"table/{step}", partial(_leave_slowly, agent))


def _leave_slowly(agent: AgentNode) -> None:
    agent.stop()
    if agent.store is not None:
        agent.store.rates = SLOW


def _start_disarmed(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.seen.armed.pop(agent.name, None)
    _start_anew(world, targets)


def _power_off(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        agent.crash(told=False)


def _kill_at_step(world: World, targets: Sequence[AgentNode], step: str = "") -> None:
    """Die at the next step of a kind."""
    for agent in targets:
        _arm(world, agent, agent.crash, step)


def _pause_at_step(world: World, targets: Sequence[AgentNode], step: str = "") -> None:
    """Stand still at the next step of a kind: leases end, others take over, and then it goes on."""
    for agent in targets:
        _arm(world, agent, partial(_pause, world, [agent]), step)


def _arm(world: World, agent: AgentNode, happens: Callable[[], None], step: str) -> None:
    """At the given step, or else at any of those that this run has come to before."""
    known = [step] if step else [step for step in ALL_STEPS if world.seen.counts[f"step {step}"]]
    if agent.alive and known:
        world.seen.armed[agent.name] = (world.loop.random.choice(known), happens)


def _disarm(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.seen.armed.pop(agent.name, None)
    _resume(world, targets)
    _start(world, targets)


def _pause(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.alive:
            world.trace(f"pause {agent.identity}")
            world.loop.pause(agent.identity)


def _resume(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.trace(f"resume {agent.identity}")
        world.loop.resume(agent.identity)


PROCESSES = (
    Fault("kill", _kill, _start),
    Fault("power-off", _power_off, _start),
    Fault("stop", _stop, _start_anew),
    Fault("stop-in-commit", _stop_in_commit, _start_disarmed),
    Fault("kill-at-step", _kill_at_step, _disarm, _kill_at_step),
    Fault("pause-at-step", _pause_at_step, _disarm, _pause_at_step),
    Fault("pause", _pause, _resume),
)
