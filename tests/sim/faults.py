"""What goes wrong in a simulated world, and how it is put right again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from agent.net.wire.api import BY_NAME
from iceberg.steps import STEPS as TABLE_STEPS
from objectstore.faulty import FaultRates
from objectstore.steps import STEPS
from tests.sim.loop import NODE
from tests.sim.node import AgentNode

if TYPE_CHECKING:
    from tests.sim.world import World

RATES = FaultRates(
    refused=0.05,
    lost_request=0.03,
    lost_answer=0.05,
    truncated=0.02,
    corrupt=0.02,
    slow=0.2,
    slow_s_max=1.5,
    stale=0.1,
)
SLOW = FaultRates(slow=1.0, slow_s_max=1.5, stale_writes=0)
HEALTHY = FaultRates(stale_writes=0)
COMMIT_STEPS = ("plan", "read-records", "store-file", "store-manifest-list")
ALL_STEPS = (*STEPS, *(f"table/{step}" for step in TABLE_STEPS))
HELD_KINDS = (0, 8, 11, 14, 22, 24, 25, 26, 28)
"""Produce, OffsetCommit, JoinGroup, SyncGroup, and those of transactions: InitProducerId, AddPartitionsToTxn,
AddOffsetsToTxn, EndTxn, TxnOffsetCommit."""

NEVER_USED_UP = 1 << 30
LOSSES = (0.02, 0.2, 0.5)
"""Shares of segments that are lost."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault: `begin` on the targets, `end` when it is over."""

    name: str
    begin: Callable[[World, Sequence[AgentNode]], None]
    end: Callable[[World, Sequence[AgentNode]], None]


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


def _heal_log(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.log is not None:
            faults = agent.log.faults
            faults.partitioned = faults.refused = False
            faults.delivery_delay_s = 0.0
            faults.lose_answers = faults.lose_requests = 0


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


def _bad_store(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.store is not None:
            agent.store.rates = RATES


def _good_store(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        if agent.store is not None:
            agent.store.rates = HEALTHY


def _cut_clients(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            if world.loop.random.random() < 0.5:
                world.network.cut(client.name, agent.name)
            if world.loop.random.random() < 0.5:
                world.network.cut(agent.name, client.name)


def _heal_clients(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            world.network.heal(client.name, agent.name)
            world.network.heal(agent.name, client.name)


def _lose_segments(world: World, targets: Sequence[AgentNode]) -> None:
    share = world.loop.random.choice(LOSSES)
    for agent in targets:
        for client in world.clients:
            world.network.lose(client.name, agent.name, share)
            world.network.lose(agent.name, client.name, share)


def _lose_no_segments(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        for client in world.clients:
            world.network.lose(client.name, agent.name, 0.0)
            world.network.lose(agent.name, client.name, 0.0)


def _reset(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.network.reset(agent.name)


def _half_open(world: World, targets: Sequence[AgentNode]) -> None:
    for agent in targets:
        world.network.half_open(agent.name)


def _crash_client(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.crash_client(world.loop.random.choice(world.clients))


def _hold(world: World, targets: Sequence[AgentNode], name: str = "") -> None:
    """Requests of the named kind, or of some."""
    del targets
    kinds = [kind for kind in HELD_KINDS if world.loop.random.random() < 0.6]
    world.network.held_kinds = frozenset([BY_NAME[name].key] if name else kinds)


def _release(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.held_kinds = frozenset()


def _nothing(world: World, targets: Sequence[AgentNode]) -> None:
    del world, targets


FAULTS: tuple[Fault, ...] = (
    Fault("kill", _kill, _start),
    Fault("power-off", _power_off, _start),
    Fault("stop", _stop, _start_anew),
    Fault("stop-in-commit", _stop_in_commit, _start_disarmed),
    Fault("kill-at-step", _kill_at_step, _disarm),
    Fault("pause-at-step", _pause_at_step, _disarm),
    Fault("pause", _pause, _resume),
    Fault("cut-log", _cut_log, _heal_log),
    Fault("refuse-log", _refuse_log, _heal_log),
    Fault("slow-log", _slow_log, _heal_log),
    Fault("lose-answers", _lose_answers, _heal_log),
    Fault("deafen-log", _deafen_log, _heal_log),
    Fault("expire-lease", _expire, _nothing),
    Fault("compact", _compact, _nothing),
    Fault("cancel-watches", _cancel_watches, _nothing),
    Fault("silence-watches", _silence_watches, _nothing),
    Fault("bad-store", _bad_store, _good_store),
    Fault("cut-clients", _cut_clients, _heal_clients),
    Fault("lose-segments", _lose_segments, _lose_no_segments),
    Fault("reset", _reset, _nothing),
    Fault("half-open", _half_open, _nothing),
    Fault("hold-requests", _hold, _release),
    Fault("crash-client", _crash_client, _nothing),
)


def _pause_member(world: World, targets: Sequence[AgentNode]) -> None:
    """A member of the group stands still: the others go on without it, and it knows nothing of that."""
    del targets
    members = [client for client in world.clients if client.name.startswith("m")]
    for client in members[:1]:
        world.trace(f"pause {client.identity}")
        world.loop.pause(client.identity)


def _pause_member_before_end(world: World, targets: Sequence[AgentNode]) -> None:
    """Whoever comes to the end of its transaction next, with its positions sent."""
    del targets
    if world.around is not None:
        world.around.before_end = lambda: world.loop.pause(NODE.get())


def _resume_members(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    if world.around is not None:
        world.around.before_end = None
    for client in world.clients:
        world.loop.resume(client.identity)


def _end_late(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = True


def _end_in_time(world: World, targets: Sequence[AgentNode]) -> None:
    del targets
    world.network.late_ends.on = False


NAMED = (
    Fault("late-ends", _end_late, _end_in_time),
    Fault("pause-member", _pause_member, _resume_members),
    Fault("pause-member-before-end", _pause_member_before_end, _resume_members),
)
"""Those of stories: of kept plans, and of seeds that tell one (plan.py)."""
AIMED: Mapping[str, Callable[[World, Sequence[AgentNode], str], None]] = {
    "kill-at-step": _kill_at_step,
    "pause-at-step": _pause_at_step,
    "hold-requests": _hold,
}
"""Those that a plan may aim: at a step, or at a kind of request."""


def _aimed(
    begin: Callable[[World, Sequence[AgentNode], str], None],
    aim: str,
    world: World,
    targets: Sequence[AgentNode],
) -> None:
    begin(world, targets, aim)


def fault_of(kind: str) -> Fault:
    """The fault that a plan names, aimed by a second word: `kill-at-step flush/submit`. Raises KeyError."""
    name, _, aim = kind.partition(" ")
    fault = next((each for each in (*FAULTS, *NAMED) if each.name == name), None)
    if fault is None:
        raise KeyError(f"no fault is called {name!r}")
    return replace(fault, begin=partial(_aimed, AIMED[name], aim)) if aim else fault
