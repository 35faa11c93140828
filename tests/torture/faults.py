"""Faults of a torture run, each aimed at a role, drawn from a seed so that a run can be repeated.

A fault that does nothing proves nothing: each says by itself whether it has bitten, and act() refuses to go
on when it has not.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.equipment.proxy import Lane
from tests.torture.cluster import LEASE_S, Cluster, Member
from tests.torture.links import StoreProxy
from tests.torture.strangers import AT_ONCE

BITE_SECONDS_MAX = 20.0
REGISTERED_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05
SHORT = (1.0, 2.0)  # seconds, below the lease
USUAL = (1.0, 6.0)
BEYOND_LEASE = (LEASE_S + 2.0, LEASE_S + 4.0)
STORE_DELAY_S = 0.3

Bitten = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin` starts it and returns what tells whether it has had an effect; Cluster.heal() ends it.

    `seconds` are the bounds of how long it lasts.
    """

    name: str
    begin: Callable[[Cluster, Member], Bitten]
    seconds: tuple[float, float] = USUAL


def _kill_agent(_: Cluster, member: Member) -> Bitten:
    member.agent.kill()
    return lambda: not member.agent.alive()


def _kill_two_agents(cluster: Cluster, member: Member) -> Bitten:
    at = cluster.members.index(member)
    victims = [cluster.members[(at + each) % len(cluster.members)].agent for each in range(2)]
    for victim in victims:
        victim.kill()
    return lambda: not any(victim.alive() for victim in victims)


def _pause_agent(_: Cluster, member: Member) -> Bitten:
    member.agent.pause()
    return lambda: not member.agent.alive()


def _kill_etcd(cluster: Cluster, _: Member) -> Bitten:
    cluster.etcd.kill()
    return lambda: not cluster.etcd.ready()


def _pause_etcd(cluster: Cluster, _: Member) -> Bitten:
    cluster.etcd.pause()
    return lambda: not cluster.etcd.ready()


def _compact_below_an_agent(cluster: Cluster, member: Member) -> Bitten:
    """While an agent is stopped the others write on, then all that it has not heard of is compacted."""
    behind = member.revision()
    member.agent.pause()
    time.sleep(1.0)
    compacted = cluster.etcd.compact()
    member.agent.resume()
    return lambda: compacted > behind


def _revoke_lease(cluster: Cluster, member: Member) -> Bitten:
    deadline = time.monotonic() + REGISTERED_SECONDS_MAX  # it may be about to register after the last fault
    before = str(member.status()["incarnation"])
    while not cluster.etcd.revoke_lease_of(f"/floe/floe/agents/{before}"):
        assert time.monotonic() < deadline, f"{before} has no key in etcd for {REGISTERED_SECONDS_MAX} s"
        time.sleep(0.2)
        before = str(member.status()["incarnation"])
    return lambda: member.status()["incarnation"] not in (before, "0" * 16)


def _kill_store(cluster: Cluster, _: Member) -> Bitten:
    cluster.store.kill()
    return lambda: not cluster.store.ready()


def _slow_store(cluster: Cluster, _: Member) -> Bitten:
    before = sum(each.store.requests.passed_bytes for each in cluster.members)
    for each in cluster.members:
        each.store.requests.delay_s = STORE_DELAY_S
    return lambda: sum(each.store.requests.passed_bytes for each in cluster.members) > before


def _busy_store(cluster: Cluster, _: Member) -> Bitten:
    stores = [each.store for each in cluster.members]
    before = _refused(stores)
    for store in stores:
        cluster.links.do(store.set_busy, True)
    return lambda: _refused(stores) > before


def _refused(stores: Sequence[StoreProxy]) -> int:
    return sum(store.refused for store in stores)


def _flood(cluster: Cluster, member: Member) -> Bitten:
    """Strangers by the hundred; it bites once the agent has turned many away."""
    before = member.strangers.ended_by_agent
    cluster.links.do(member.strangers.begin)
    return lambda: member.strangers.ended_by_agent > before + AT_ONCE


def _cut(lane: Lane) -> Bitten:
    before = lane.dropped_bytes
    lane.cut = True
    return lambda: lane.dropped_bytes > before


FAULTS = (
    Fault("SIGKILL an agent", _kill_agent),
    Fault("SIGKILL two agents at once", _kill_two_agents),
    Fault("SIGSTOP an agent", _pause_agent, SHORT),
    Fault("SIGSTOP an agent beyond its lease", _pause_agent, BEYOND_LEASE),
    Fault("revoke an agent's lease", _revoke_lease),
    Fault("kill etcd", _kill_etcd),
    Fault("pause etcd beyond the lease", _pause_etcd, BEYOND_LEASE),
    Fault("compact etcd below an agent", _compact_below_an_agent, SHORT),
    Fault("kill the store", _kill_store),
    Fault("slow store", _slow_store),
    Fault("store answers 503", _busy_store),
    Fault("store fails after effect", lambda _, member: _cut(member.store.answers)),
    Fault("store not reached", lambda _, member: _cut(member.store.requests)),
    Fault("etcd's answers lost", lambda _, member: _cut(member.etcd.answers)),
    Fault("etcd not reached", lambda _, member: _cut(member.etcd.requests)),
    Fault("agent's answers to clients lost", lambda _, member: _cut(member.clients.answers)),
    Fault("clients' requests lost", lambda _, member: _cut(member.clients.requests)),
    Fault("a flood of strangers", _flood),
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a schedule: a fault on a member for a time, then quiet for a time (seconds)."""

    fault: Fault
    member: int
    seconds: float
    quiet: float

    def __str__(self) -> str:
        return f"{self.fault.name} (agent {self.member}) for {self.seconds:.1f} s, quiet {self.quiet:.1f} s"


def schedule(seed: int, members: int) -> Iterator[Step]:
    """Steps without end: each fault once before any comes twice; about a quarter of the time is quiet."""
    draw = random.Random(seed)
    while True:
        faults = list(FAULTS)
        draw.shuffle(faults)
        for fault in faults:
            seconds = draw.uniform(*fault.seconds)
            yield Step(fault, draw.randrange(members), seconds, draw.uniform(0.5, seconds / 2 + 0.5))


def act(cluster: Cluster, step: Step) -> None:
    """Do one step, to its quiet end. It lasts longer when it has not bitten yet, and must in the end."""
    bitten = step.fault.begin(cluster, cluster.members[step.member])
    time.sleep(step.seconds)
    deadline = time.monotonic() + BITE_SECONDS_MAX
    while not bitten():
        assert time.monotonic() < deadline, f"{step}: the fault has had no effect"
        time.sleep(POLL_SECONDS)
    cluster.heal()
    time.sleep(step.quiet)
