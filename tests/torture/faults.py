"""Faults of a torture run, each aimed at a role, drawn from a seed so that a run can be repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.torture.cluster import Cluster, Member

PAUSE_BEYOND_LEASE_S = 5.0  # the cluster's lease TTL is 3 s


@dataclass(frozen=True, slots=True)
class Fault:
    """`begin` starts it; Cluster.heal() ends it."""

    name: str
    begin: Callable[[Cluster, Member], None]


def _kill_agent(_: Cluster, member: Member) -> None:
    member.agent.kill()


def _pause_agent(_: Cluster, member: Member) -> None:
    member.agent.pause()


def _kill_etcd(cluster: Cluster, _: Member) -> None:
    cluster.etcd.kill()


def _pause_etcd(cluster: Cluster, _: Member) -> None:
    cluster.etcd.pause()


def _compact_etcd(cluster: Cluster, _: Member) -> None:
    cluster.etcd.compact()


def _kill_store(cluster: Cluster, _: Member) -> None:
    cluster.store.kill()


def _slow_store(cluster: Cluster, _: Member) -> None:
    for each in cluster.members:
        each.store.requests.delay_s = 0.3


def _busy_store(cluster: Cluster, _: Member) -> None:
    for each in cluster.members:
        cluster.links.do(each.store.set_busy, True)


def _store_answers_lost(_: Cluster, member: Member) -> None:
    member.store.answers.cut = True


def _store_requests_lost(_: Cluster, member: Member) -> None:
    member.store.requests.cut = True


def _etcd_answers_lost(_: Cluster, member: Member) -> None:
    member.etcd.answers.cut = True


def _etcd_requests_lost(_: Cluster, member: Member) -> None:
    member.etcd.requests.cut = True


def _client_answers_lost(_: Cluster, member: Member) -> None:
    member.clients.answers.cut = True


def _client_requests_lost(_: Cluster, member: Member) -> None:
    member.clients.requests.cut = True


FAULTS = (
    Fault("SIGKILL an agent", _kill_agent),
    Fault("SIGSTOP an agent", _pause_agent),
    Fault("kill etcd", _kill_etcd),
    Fault("pause etcd beyond the lease", _pause_etcd),
    Fault("compact etcd", _compact_etcd),
    Fault("kill the store", _kill_store),
    Fault("slow store", _slow_store),
    Fault("store answers 503", _busy_store),
    Fault("store fails after effect", _store_answers_lost),
    Fault("store not reached", _store_requests_lost),
    Fault("etcd's answers lost", _etcd_answers_lost),
    Fault("etcd not reached", _etcd_requests_lost),
    Fault("agent's answers to clients lost", _client_answers_lost),
    Fault("clients' requests lost", _client_requests_lost),
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
            seconds = draw.uniform(1.0, PAUSE_BEYOND_LEASE_S * 1.2)
            yield Step(fault, draw.randrange(members), seconds, draw.uniform(0.5, seconds / 2 + 0.5))


def act(cluster: Cluster, step: Step) -> None:
    """Do one step, to its quiet end."""
    step.fault.begin(cluster, cluster.members[step.member])
    time.sleep(step.seconds)
    cluster.heal()
    time.sleep(step.quiet)
