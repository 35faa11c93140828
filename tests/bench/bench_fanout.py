"""What etcd sends, and what it costs, when 12, 25 and 50 agents follow the log; with a relay of their zone.

Every agent is a replica with its own connection to a real etcd, all in this process; relays speak over real
sockets. One of them writes 100 entries of 2 kB a second. "Sent" is what etcd's own counter of client bytes
says, over the bytes of the entries: 1.0 is the log once. CPU is the processes', for a thousand entries.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from agent.cluster.peers.client import PeerClient
from agent.cluster.peers.server import PeerServer
from agent.cluster.relay.service import Relaying, relayed
from agent.config import Config
from agent.dependencies import log_of
from coordination.clock import SystemClock
from coordination.commands import Claim, RegisterAgent, command
from coordination.replica import Replica, ReplicaOptions
from coordination.state import Applied
from coordination.state.data import FEATURE_LEVEL_MAX
from deploy.services import Etcd
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import SliceRef
from objectstore.store import Buffer
from tests.bench.figure import Figure

AGENTS = (12, 25, 50)
RATE = 100  # entries a second
SECONDS = 8.0
ENTRY_BYTES = 2_000
SECRET = b"s" * 32
_clusters = iter(range(1, 1_000))


@dataclass(frozen=True, slots=True)
class Found:
    """Of one run: the log's bytes that etcd sent, over the log's bytes; CPU s of etcd and of all agents for a
    thousand entries; ms from the proposal to its result at another agent, p50 and p99; watches at etcd."""

    sent: float
    etcd_cpu_s: float
    agents_cpu_s: float
    p50_ms: float
    p99_ms: float
    watches: float


class Member:
    """One agent as far as the log goes."""

    def __init__(self, etcd: Etcd, cluster: str, zone: str, store: MemoryStore, relay: bool) -> None:
        self.config = Config.model_validate(
            {
                "log": {"url": f"etcd://{etcd.endpoint}/{cluster}"},
                "store": {"url": "file:///nowhere"},
                "agent": {"zone": zone},
                "tables": {"enabled": False},
                "peers": {"secret": SECRET.decode()},
                "relay": {"enabled": relay},
            }
        )
        clock = SystemClock()
        plain = log_of(self.config, clock)
        self.relayed = relayed(self.config, plain)
        self.log = self.relayed or plain
        self.replica = Replica(self.log, store, clock, ReplicaOptions(ttl_s=60.0))
        self.client = PeerClient(SECRET, clock)
        self.server = PeerServer(_nothing, SECRET, clock, 1 << 20)

    async def start(self, name: str) -> None:
        """Register."""
        await self.log.identity()
        if self.relayed is not None:
            Relaying(self.config, self.relayed, self.replica, self.server, self.client)
        port = await self.server.start("127.0.0.1", 0)
        await self.replica.start(
            RegisterAgent(
                name=name,
                node_id=-1,
                feature_max=FEATURE_LEVEL_MAX,
                zone=self.config.agent.zone,
                peer_address=f"127.0.0.1:{port}",
            )
        )

    async def stop(self) -> None:
        """Leave."""
        await self.server.stop()
        await self.replica.stop()
        await self.log.close()


async def _nothing(slices: Sequence[SliceRef], recent: bool) -> list[Buffer]:
    raise AssertionError(f"nobody asks for {slices}, {recent}")


def counter(etcd: Etcd, name: str) -> float:
    """A figure of etcd's own metrics."""
    with urllib.request.urlopen(f"http://{etcd.endpoint}/metrics", timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
    raise AssertionError(f"etcd has no metric {name}")


async def settled(members: list[Member], zones: int) -> None:
    """All follow a relay that can."""
    wanted = len(members) - zones if members[0].relayed is not None else 0
    for _ in range(600):
        if sum(each.relayed is not None and each.relayed.stream is not None for each in members) == wanted:
            return
        await members[0].replica.propose(Claim(name="warm"))
        await asyncio.sleep(0.1)
    raise AssertionError("not everybody follows a relay")


async def load(members: list[Member]) -> list[float]:
    """RATE entries a second for SECONDS; how long each took to every other agent, ms."""
    loop = asyncio.get_running_loop()
    begun: dict[tuple[int, int], float] = {}
    taken: list[float] = []
    author = members[-1].replica

    def applied(entry: Applied) -> None:
        since = begun.get((entry.incarnation, entry.sequence))
        if since is not None:
            taken.append((loop.time() - since) * 1000)

    gone = [each.replica.add_listener(applied) for each in members[:-1]]
    first = loop.time()
    for number in range(int(RATE * SECONDS)):
        await asyncio.sleep(max(0.0, first + number / RATE - loop.time()))
        at = loop.time()
        sequence = author.state.incarnations[author.incarnation].sequence + 1
        begun[author.incarnation, sequence] = at
        await author.submit([command(Claim(name="x" * ENTRY_BYTES))])
    await asyncio.sleep(0.5)
    for each in gone:
        each()
    return taken


async def run(etcd: Etcd, agents: int, relay: bool, zones: int = 1) -> Found:
    """One cluster of its own."""
    cluster, store = f"fanout-{next(_clusters)}", MemoryStore()
    members = [Member(etcd, cluster, f"z{number % zones}", store, relay) for number in range(agents)]
    for number, member in enumerate(members):
        await member.start(f"agent-{number}")
    await settled(members, zones)
    entries = members[0].replica.state.revision
    sent = counter(etcd, "etcd_network_client_grpc_sent_bytes_total")
    cpu, own = counter(etcd, "process_cpu_seconds_total"), time.process_time()
    taken = await load(members)
    entries = members[0].replica.state.revision - entries
    found = Found(
        (counter(etcd, "etcd_network_client_grpc_sent_bytes_total") - sent) / (entries * ENTRY_BYTES),
        (counter(etcd, "process_cpu_seconds_total") - cpu) / entries * 1000,
        (time.process_time() - own) / entries * 1000,
        statistics.median(taken),
        statistics.quantiles(taken, n=100)[98],
        counter(etcd, "etcd_debugging_mvcc_watcher_total"),
    )
    for member in members:
        await member.stop()
    return found


def figures() -> Iterable[Figure]:
    """With relays, beside each agent on its own; the goal is the design's."""
    with Etcd() as etcd:
        for agents in AGENTS:
            alone = asyncio.run(run(etcd, agents, False))
            near = asyncio.run(run(etcd, agents, True))
            yield from told(f"log to {agents} agents", near, alone, 1)
        three = partial(run, etcd, 12, zones=3)
        yield from told("log to 12 agents of 3 zones", asyncio.run(three(True)), asyncio.run(three(False)), 3)


def told(name: str, near: Found, alone: Found, zones: int) -> Iterable[Figure]:
    """The figures of a pair."""
    without = "without relays"
    yield Figure(f"{name}: watches at etcd", near.watches, "", without, None, zones, better="less")
    yield Figure(f"{name}: sent by etcd", near.sent, "of the log", without, alone.sent, better="less")
    yield Figure(
        f"{name}: etcd's CPU", near.etcd_cpu_s, "s/1000 entries", without, alone.etcd_cpu_s, better="less"
    )
    yield Figure(
        f"{name}: agents' CPU",
        near.agents_cpu_s,
        "s/1000 entries",
        without,
        alone.agents_cpu_s,
        better="less",
    )
    yield Figure(f"{name}: applied elsewhere p50", near.p50_ms, "ms", without, alone.p50_ms, better="less")
    yield Figure(f"{name}: applied elsewhere p99", near.p99_ms, "ms", without, alone.p99_ms, better="less")
