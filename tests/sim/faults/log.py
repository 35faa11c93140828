"""The log is away, slow, or deaf; leases and watches end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.sim.faults.fault import Fault, nothing
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

NEVER_USED_UP = 1 << 30


def _cut_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.partitioned = True


def _refuse_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.refused = True


def _slow_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.delivery_delay_s = 0.3 + world.loop.random.random()


def _lose_answers(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.lose_answers = 1 + world.loop.random.randrange(6)


def _deafen_log(world: World, targets: Sequence[AgentNode]) -> None:
    """Cut one way: whatever is asked has its effect, the lease is kept, and no answer comes."""
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.lose_answers = NEVER_USED_UP


def _fill_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.full = True


def _fill_log_too_late(world: World, targets: Sequence[AgentNode]) -> None:
    """No room, says the log of what it applied (etcd looks at its quota again while it applies)."""
    for agent in targets:
        if agent.log is not None:
            agent.log.faults.full_too_late = 1 + world.loop.random.randrange(6)


def _heal_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            faults = agent.log.faults
            faults.partitioned = faults.refused = faults.full = False
            faults.delivery_delay_s = 0.0
            faults.lose_answers = faults.lose_requests = faults.full_too_late = 0


def _expire(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.app is not None:
            world.server.expire(agent.app.replica.incarnation)


def _compact(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.server.compact(world.server.revision)


def _cancel_watches(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.server.cancel_watches()


def _silence_watches(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.server.silence_watches()


LOG = (
    Fault("cut-log", _cut_log, _heal_log),
    Fault("refuse-log", _refuse_log, _heal_log),
    Fault("slow-log", _slow_log, _heal_log),
    Fault("lose-answers", _lose_answers, _heal_log),
    Fault("deafen-log", _deafen_log, _heal_log),
    Fault("fill-log", _fill_log, _heal_log),
    Fault("fill-log-too-late", _fill_log_too_late, _heal_log),
    Fault("expire-lease", _expire, nothing),
    Fault("compact", _compact, nothing),
    Fault("cancel-watches", _cancel_watches, nothing),
    Fault("silence-watches", _silence_watches, nothing),
)
