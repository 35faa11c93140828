"""Experiments that others have published, over a cluster that runs: a writer, and what befalls its agent.

Kafka 0.8 lost 520 of 987 acknowledged writes in Jepsen's experiment of 2013; in J. Vanlightly's, Apache
Kafka lost 6,764 (acks=0), 5 to 11 (acks=1, broker killed) and 31,784 to 43,509 (acks=1, leader isolated).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka.admin import AdminClient

from tests.checker.operations import History
from tests.torture.cluster import Cluster, Member
from tests.torture.history import history_of
from tests.torture.run import create_topic, unexplained
from tests.torture.verdict import Place, Sent, Verdict, judge
from tests.torture.workload import BASE, Writer, read_all

MESSAGES, RATE, FAULT_AT = 100_000, 10_000, 30_000
KAFKA_2013, CUT_AT, LOST_AT = 1_000, 300, 600

# What a writer may see that asked for no acknowledgement, or for one without idempotence.
TWICE = frozenset({"duplicate", "nonmonotonic-send"})
ALLOWED = {"0": TWICE | {"unseen", "lost-write", "not-in-log"}, "1": TWICE, "all": frozenset[str]()}

Happened = list[tuple[str, int]]
"""What was done to the cluster, and when (the monotonic clock's ns)."""


@dataclass(frozen=True, slots=True)
class Written:
    """What a run left: its writer's sends, the final read, the verdict of the two."""

    topic: str
    sent: list[Sent]
    final: dict[Place, list[tuple[int, bytes]]]
    verdict: Verdict
    happened: Happened

    @property
    def history(self) -> History:
        """For the checker."""
        return history_of(self.sent, [], self.final)


def leader(cluster: Cluster, topic: str) -> Member:
    """The agent that clients are told to use for partition 0."""
    metadata = AdminClient({**BASE, "bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=30)
    broker = metadata.brokers[metadata.topics[topic].partitions[0].leader]
    return next(m for m in cluster.members if m.clients.port == broker.port)


def kill(member: Member) -> None:
    """SIGKILL."""
    member.agent.kill()


def isolate(member: Member) -> None:
    """Cut off from etcd, the store and the other clients; what the client already sent may arrive."""
    for link in (member.etcd, member.store):
        link.requests.cut = link.answers.cut = True


def isolate_from_coordination(member: Member) -> None:
    """Cut off from etcd only."""
    member.etcd.requests.cut = member.etcd.answers.cut = True


def kafka_2013(cluster: Cluster, topic: str = "jepsen") -> Written:
    """1,000 synchronous writes; the writer's agent is cut off at 300 and lost for good at 600 [rule 1]."""
    create_topic(cluster.bootstrap, topic, 1)
    victim, happened = leader(cluster, topic), Happened()
    writer = Writer("w", cluster.bootstrap, topic, [0], rate=100, limit=KAFKA_2013, **{"linger.ms": 0})
    writer.start()
    _when(writer, CUT_AT, lambda: isolate(victim), "the writer's agent is cut off", happened)
    _when(writer, LOST_AT, victim.agent.kill, "the writer's agent is lost", happened)
    writer.join(240)
    final = read_all(cluster.bootstrap, topic, [0])
    verdict = judge(writer.sent, final, [])
    verdict.findings += unexplained([writer])
    cluster.heal()
    return Written(topic, writer.sent, final, verdict, happened)


def vanlightly(
    cluster: Cluster, fault: Callable[[Member], None], acks: str, messages: int = MESSAGES
) -> Written:
    """10,000 messages a second; when 3 of 10 are written something befalls the leader.

    acks=0 promises nothing: it is counted. acks=1 without idempotence may repeat, never lose.
    """
    topic = f"vanlightly-{fault.__name__}-{acks}"
    create_topic(cluster.bootstrap, topic, 1)
    victim, happened = leader(cluster, topic), Happened()
    settings: dict[str, Any] = {"acks": acks, "linger.ms": 5}
    if acks != "all":
        settings["enable.idempotence"] = False
    writer = Writer("w", cluster.bootstrap, topic, [0], rate=RATE, limit=messages, **settings)
    writer.start()
    what = f"{fault.__name__.replace('_', ' ')} the leader"
    _when(writer, messages * FAULT_AT // MESSAGES, lambda: fault(victim), what, happened)
    writer.join(300)
    cluster.heal()
    final = read_all(cluster.bootstrap, topic, [0])
    verdict = judge(writer.sent, final, [])
    if acks != "0":  # nobody is told an offset then
        verdict.findings += unexplained([writer])
    return Written(topic, writer.sent, final, verdict, happened)


def _when(writer: Writer, count: int, act: Callable[[], None], what: str, happened: Happened) -> None:
    """Act once the writer has handed over `count` records."""
    while writer.attempted < count and writer.is_alive():
        time.sleep(0.01)
    happened.append((what, time.monotonic_ns()))
    act()
