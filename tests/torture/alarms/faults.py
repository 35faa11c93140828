"""What goes wrong, and which of the chart's alerts have to say so."""

from __future__ import annotations

import base64
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.equipment.proxy import Action
from tests.torture.alarms.rigs import PARTITIONS, TOPIC, Embedded, Quorum, Rig, Three
from tests.torture.cluster import Member
from tests.torture.jumping_agent import JumpingAgent
from tests.torture.pauses import until_back
from tests.torture.workload import BASE

R = TypeVar("R", bound=Rig)
Undo = Callable[[], None]
SLOW_S = 0.8
"""Of each piece of data to and from the store: below what a request may take."""
STOPPED_S, RUNNING_S = 1.5, 0.3
"""Of an agent that is short of CPU."""
FENCED, FENCED_EVERY_S = 4, 4.0
ENDS_SOON_DAYS = 3
FULL_KIB = 1
FILLING_BYTES = 1 << 20
FILLINGS_MAX = 200
SOUND_SECONDS_MAX = 90


@dataclass(frozen=True)
class Fault(Generic[R]):
    """`begin` makes it and returns what ends it. Any of `alerts` will do."""

    name: str
    alerts: tuple[str, ...]
    begin: Callable[[R], Undo]


def _first(rig: Three) -> Member:
    return rig.cluster.members[0]


def _healed(rig: Three) -> Undo:
    """Everything runs, every link is whole, and all agents name all agents."""

    def undo() -> None:
        rig.cluster.heal()
        until_back(rig.cluster)

    return undo


def _kill_agent(rig: Three) -> Undo:
    _first(rig).agent.kill()
    return _healed(rig)


def _stop_agent(rig: Three) -> Undo:
    _first(rig).agent.pause()
    return _healed(rig)


def _kill_etcd(rig: Three) -> Undo:
    rig.cluster.etcd.kill()
    return _healed(rig)


def _hang_etcd(rig: Three) -> Undo:
    rig.cluster.etcd.pause()
    return _healed(rig)


def _kill_store(rig: Three) -> Undo:
    rig.cluster.store.kill()
    return _healed(rig)


def _busy_store(rig: Three) -> Undo:
    for member in rig.cluster.members:
        rig.cluster.links.do(member.store.set_busy, True)
    return _healed(rig)


def _slow_store(rig: Three) -> Undo:
    for member in rig.cluster.members:
        rig.cluster.links.do(setattr, member.store.requests, "delay_s", SLOW_S)
        rig.cluster.links.do(setattr, member.store.answers, "delay_s", SLOW_S)
    return _healed(rig)


def _other_credentials(rig: Three) -> Undo:
    """The store has another password than the agents."""
    store = rig.cluster.store
    right = store.secret_key
    store.kill()
    store.secret_key = f"{right}-changed"
    store.start()

    def undo() -> None:
        store.kill()
        store.secret_key = right
        store.start()
        _healed(rig)()

    return undo


def _cut_off(rig: Three) -> Undo:
    """One agent reaches no etcd."""
    for lane in (_first(rig).etcd.requests, _first(rig).etcd.answers):
        rig.cluster.links.do(setattr, lane, "cut", True)
    return _healed(rig)


def _jump(rig: Three) -> Undo:
    agent = _first(rig).agent
    assert isinstance(agent, JumpingAgent)
    agent.jump()

    def undo() -> None:
        agent.land()
        _healed(rig)()

    return undo


def _fence(rig: Three) -> Undo:
    """Its lease is taken again and again."""

    def flap() -> None:
        for _ in range(FENCED):
            incarnation = str(_first(rig).status()["incarnation"])
            rig.cluster.etcd.revoke_lease_of(f"/floe/floe/agents/{incarnation}")
            time.sleep(FENCED_EVERY_S)

    return _meanwhile(flap, _healed(rig))


def _starve(rig: Three) -> Undo:
    """Its process runs a sixth of the time, as under a limit of CPU that is too low."""
    over, agent = threading.Event(), _first(rig).agent

    def stutter() -> None:
        while not over.is_set():
            agent.pause()
            time.sleep(STOPPED_S)
            agent.resume()
            over.wait(RUNNING_S)

    return _meanwhile(stutter, _healed(rig), over)


def _meanwhile(work: Callable[[], None], undo: Undo, over: threading.Event | None = None) -> Undo:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def ended() -> None:
        if over is not None:
            over.set()
        thread.join(SOUND_SECONDS_MAX)
        undo()

    return ended


def _unwritable(folder: str) -> Callable[[Three], Undo]:
    """PUTs below a folder of the bucket end without an answer; all else goes on."""

    def rule(frame: bytes) -> Action:
        line = frame.split(b"\r\n", 1)[0]
        written = line.startswith((b"PUT ", b"POST ")) and f"/{folder}/".encode() in line
        return Action.RESET if written else Action.PASS

    def begin(rig: Three) -> Undo:
        for member in rig.cluster.members:
            rig.cluster.links.do(setattr, member.store.requests, "rule", rule)
        return _healed(rig)

    return begin


def _lose_quorum(rig: Quorum) -> Undo:
    gone = rig.etcd.members[:2]
    for member in gone:
        member.kill()

    def undo() -> None:
        for member in gone:
            member.start()

    return undo


def _fill_etcd(rig: Quorum) -> Undo:
    """Somebody else's keys use up etcd's quota."""
    leader = rig.etcd.leader()
    value = base64.b64encode(bytes(FILLING_BYTES)).decode()
    for number in range(FILLINGS_MAX):
        key = base64.b64encode(f"/others/{number}".encode()).decode()
        asked = urllib.request.Request(
            f"http://{leader.endpoint}/v3/kv/put", json.dumps({"key": key, "value": value}).encode()
        )
        try:
            urllib.request.urlopen(asked, timeout=10).close()
        except urllib.error.HTTPError as error:
            if b"database space exceeded" not in error.read():
                raise
            break
    else:
        raise AssertionError(f"etcd took {FILLINGS_MAX} MiB of {rig.etcd.members[0].quota_bytes} bytes")
    return lambda: None


def _fill_disk(rig: Embedded) -> Undo:
    rig.agent.fill()
    return rig.agent.free_space


def _certificate_ends(rig: Embedded) -> Undo:
    kept = [(path, path.read_bytes()) for path in (rig.pair.key, rig.pair.cert)]
    rig.show(rig.authority.pair("soon", days=ENDS_SOON_DAYS))

    def undo() -> None:
        for path, data in kept:
            path.write_bytes(data)

    return undo


def _half_a_pair(rig: Embedded) -> Undo:
    """A certificate was renewed and its key was not."""
    kept = rig.pair.cert.read_bytes()
    rig.pair.cert.write_bytes(rig.authority.pair("other").cert.read_bytes())
    return lambda: (rig.pair.cert.write_bytes(kept), None)[1]


def _stand_still(rig: Three) -> Undo:
    """A group has taken up a position, and nobody reads for it any more."""
    group = f"idle-{time.monotonic_ns()}"
    bootstrap = rig.cluster.bootstrap
    consumer = Consumer({**BASE, "bootstrap.servers": bootstrap, "group.id": group})
    ends = [
        TopicPartition(TOPIC, each, consumer.get_watermark_offsets(TopicPartition(TOPIC, each))[1])
        for each in PARTITIONS
    ]
    consumer.commit(offsets=ends, asynchronous=False)
    consumer.close()

    def undo() -> None:
        admin = AdminClient({**BASE, "bootstrap.servers": bootstrap})
        admin.delete_consumer_groups([group])[group].result()

    return undo


UNWELL = ("FloeAgentNotReady", "FloeCheckFails", "FloeDependencyDown")
THREE: tuple[Fault[Three], ...] = (
    Fault("an agent fenced again and again", ("FloeFencedAgain",), _fence),
    Fault("snapshots cannot be written", ("FloeJobFails",), _unwritable("snapshots")),
    Fault("tables cannot be written", ("FloeTableFails",), _unwritable("tables")),
    Fault("a group that nobody reads for", ("FloeGroupBehind",), _stand_still),
    Fault("an agent dead", ("FloeAgentDown",), _kill_agent),
    Fault("an agent stands still", ("FloeAgentDown",), _stop_agent),
    Fault("an agent short of CPU", ("FloeEventLoopLate", "FloeBehindTheLog"), _starve),
    Fault("an agent cut off from etcd", ("FloeDependencyDown",), _cut_off),
    Fault("an agent's clock an hour ahead", ("FloeClockSkew",), _jump),
    Fault("etcd away", ("FloeDependencyDown",), _kill_etcd),
    Fault("etcd does not answer", ("FloeDependencyDown",), _hang_etcd),
    Fault("the store away", ("FloeDependencyDown",), _kill_store),
    Fault("the store full or busy", ("FloeDependencyDown",), _busy_store),
    Fault("the store slow", ("FloeStoreSlow",), _slow_store),
    Fault("the store has other credentials", ("FloeDependencyDown",), _other_credentials),
)
QUORUM: tuple[Fault[Quorum], ...] = (
    Fault("etcd's quorum lost", ("FloeDependencyDown",), _lose_quorum),
    Fault("etcd out of its quota (NOSPACE)", UNWELL, _fill_etcd),
)
EMBEDDED: tuple[Fault[Embedded], ...] = (
    Fault("a certificate that ends in three days", ("FloeCertificateEnds",), _certificate_ends),
    Fault("a certificate without its key", ("FloeCertificatesOrUsersStale",), _half_a_pair),
    Fault("the disk full", UNWELL, _fill_disk),
)
