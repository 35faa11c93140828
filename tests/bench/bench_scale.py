"""What following the log costs real agents, and clusters of 1 to 12: what `agent/costs/scale` reckons with.

Agents, etcd and MinIO are processes of their own on this machine, raw frames come from this one. CPU time and
counts, not times. Calibration has three agents of which one only follows; `RUNS` are other loads, which the
model is held against: they are left in tests/bench/scale.json (tests/unit/agent/costs/test_scale_runs.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import statistics
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from coordination.clock import SystemClock
from coordination.commands import Entry, Heartbeat, RegisterAgent, SetFeatureLevel, command
from coordination.log import Chain, LogEntry
from coordination.open import open_log
from coordination.state import State
from coordination.state.data import FEATURE_LEVEL_MAX
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services, patient
from tests.bench.bench_fanout import counter
from tests.bench.figure import Figure
from tests.bench.load import Wire, batch_of, check, cpu_seconds, create_topic, produce_frame
from tests.bench.scrape import metric

RUNS = (1, 3, 6, 12)
"""Agents."""
TOPIC, PARTITIONS = "scale", 64
WARM_S, SECONDS, CALIBRATION_S = 2.0, 12.0, 12.0
STOPS, STOPPED_S, CATCH_UP_S = 5, 3.0, 2.0  # of a follower, shorter than its lease
AUTHORS, APPENDS = 64, 100
KEPT = Path(__file__).resolve().with_name("scale.json")
COUNTED = {
    "puts": "floe_put_seconds_count",
    "put_s": "floe_put_seconds_sum",
    "appends": "floe_append_seconds_count",
    "append_s": "floe_append_seconds_sum",
    "log_bytes": "floe_append_bytes_total",
    "bytes": "floe_produce_bytes_total",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A load: `writers` of `agents` get requests of `batches` batches of `records` records of 1 kB over
    `connections` each, one after the other on a connection with a pause between."""

    agents: int
    writers: int
    connections: int = 4
    batches: int = 1
    records: int = 1
    pause_s: float = 0.0
    seconds: float = SECONDS
    relay: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """What was counted meanwhile. CPU seconds of each agent, in the order of their node ids, and of etcd."""

    asked: Asked
    seconds: float
    cpu: list[float]
    etcd_cpu: float
    etcd_sent: float
    requests: int
    counts: list[dict[str, float]]
    """Of each agent: COUNTED."""

    def total(self, name: str) -> float:
        """Of all agents."""
        return sum(each[name] for each in self.counts)

    @property
    def slices(self) -> float:
        """Batches that were written."""
        return self.requests * self.asked.batches


class Cluster:
    """Agents on an etcd and a MinIO of their own."""

    def __init__(self, stack: ExitStack, asked: Asked) -> None:
        self.etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        sections: dict[str, Any] = {"merging": {"enabled": False}}
        if asked.relay:
            sections |= {"relay": {"enabled": True}, "peers": {"secret": "s" * 32}}
        settings = patient(on_services(self.etcd, minio, minio.make_bucket("bench"), **sections))
        self.agents = [
            stack.enter_context(FloeAgent(f"agent-{number:02}", settings)) for number in range(asked.agents)
        ]

    def now(self) -> tuple[list[float], float, float, list[dict[str, float]]]:
        """CPU of agents and of etcd, bytes sent by it, and what the agents count."""
        counts = [{key: metric(one.http, name) for key, name in COUNTED.items()} for one in self.agents]
        sent = counter(self.etcd, "etcd_network_client_grpc_sent_bytes_total")
        return [cpu_seconds(one.pid) for one in self.agents], cpu_seconds(self.etcd.pid), sent, counts


async def _one(bootstrap: str, frame: bytes, pause_s: float, until: float) -> int:
    """Requests of one connection until the loop's time `until`."""
    wire, sent = await Wire.open(bootstrap), 0
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await wire.send(frame)
        check(await wire.receive())
        sent += 1
        await asyncio.sleep(pause_s)
    await wire.close()
    return sent


async def _load(agents: Sequence[FloeAgent], asked: Asked, seconds: float) -> int:
    """All connections; returns the requests that were answered."""
    until = asyncio.get_running_loop().time() + seconds
    batch = batch_of(asked.records)
    work = []
    for number, agent in enumerate(agents[len(agents) - asked.writers :] if asked.writers else ()):
        for connection in range(asked.connections):
            first = (number * asked.connections + connection) * asked.batches
            handles = sorted((first + each) % PARTITIONS for each in range(asked.batches))
            work.append(_one(agent.bootstrap, produce_frame(TOPIC, batch, handles), asked.pause_s, until))
    if not work:
        await asyncio.sleep(seconds)
    return sum(await asyncio.gather(*work))


def run(asked: Asked) -> Found:
    """A cluster of its own under this load."""
    with ExitStack() as stack:
        cluster = Cluster(stack, asked)
        asyncio.run(create_topic(cluster.agents[0].bootstrap, TOPIC, PARTITIONS))
        asyncio.run(_load(cluster.agents, asked, WARM_S))
        cpu, etcd_cpu, sent, counts = cluster.now()
        begun = time.perf_counter()
        requests = asyncio.run(_load(cluster.agents, asked, asked.seconds))
        seconds = time.perf_counter() - begun
        cpu_after, etcd_after, sent_after, counts_after = cluster.now()
    return Found(
        asked,
        seconds,
        [after - before for after, before in zip(cpu_after, cpu, strict=True)],
        etcd_after - etcd_cpu,
        sent_after - sent,
        requests,
        [
            {key: after[key] - was[key] for key in after}
            for after, was in zip(counts_after, counts, strict=True)
        ],
    )


FOLLOWED = Asked(agents=3, writers=2, seconds=CALIBRATION_S)


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What single things cost. CPU in µs but for `idle`, % of a core, and `live`."""

    idle: float
    """An agent of three without clients, its heartbeats and those of the others included."""
    live: float
    """To apply an entry, for each live agent: whose clocks are compared (nanoseconds)."""
    entry: float
    """To follow and apply an entry of another agent that comes alone."""
    crowd: float
    """One of many that come at once."""
    slice: float
    """A batch more in it."""
    flush: float
    """A request of one batch that is alone in its chunk: from its frame to its answer, PUT and append."""
    relayed: float
    """To hand an entry on to one follower."""
    etcd_append: float
    """An append that is alone, sent to one watch."""
    etcd_crowd: float
    """One of many authors' at once, sent to none."""
    entry_bytes: float
    """Of the log, of an entry but for its batches."""
    watch_bytes: float
    """Sent by etcd for an entry to one watch, beside the entry itself."""
    answer_bytes: float
    """Sent by etcd to the author for an append."""


def calibrated() -> Calibrated:
    """Five clusters."""
    still = run(replace(FOLLOWED, writers=0))
    idle = statistics.mean(still.cpu) / still.seconds
    small, large = run(FOLLOWED), run(replace(FOLLOWED, connections=1, batches=PARTITIONS))
    alone = run(Asked(agents=1, writers=1, connections=1, seconds=CALIBRATION_S))
    relay = run(Asked(agents=6, writers=1, relay=True, seconds=CALIBRATION_S))
    each = [(one.cpu[0] - idle * one.seconds) / one.total("appends") * 1e6 for one in (small, large)]
    width = [one.slices / one.total("appends") for one in (small, large)]
    a_slice = max(0.0, (each[1] - each[0]) / (width[1] - width[0]))
    entry = each[0] - a_slice * width[0]
    sizes = [one.total("log_bytes") / one.total("appends") for one in (small, large)]
    a_slice_bytes = (sizes[1] - sizes[0]) / (width[1] - width[0])
    handed = relay.cpu[0] - statistics.mean(relay.cpu[1:5])
    sent = [one.etcd_sent / one.total("appends") for one in (alone, small)]
    log = [one.total("log_bytes") / one.total("appends") for one in (alone, small)]
    watched = (sent[1] - sent[0]) / 2
    return Calibrated(
        idle=idle * 100,
        live=each_live_ns(),
        entry=entry,
        crowd=crowded(idle),
        slice=a_slice,
        flush=(alone.cpu[0] - idle * alone.seconds) / alone.total("appends") * 1e6,
        relayed=max(0.0, handed) / relay.total("appends") / 5 * 1e6,
        etcd_append=alone.etcd_cpu / alone.total("appends") * 1e6,
        etcd_crowd=asyncio.run(appended()),
        entry_bytes=sizes[0] - a_slice_bytes * width[0],
        watch_bytes=watched - log[1],
        answer_bytes=sent[0] - log[0] - (watched - log[1]),
    )


def crowded(idle: float) -> float:
    """µs: a follower is stopped while the others write, then goes on and takes what has come meanwhile."""
    with ExitStack() as stack:
        cluster = Cluster(stack, FOLLOWED)
        asyncio.run(create_topic(cluster.agents[0].bootstrap, TOPIC, PARTITIONS))
        asyncio.run(_load(cluster.agents, FOLLOWED, WARM_S))
        follower, spent, entries = cluster.agents[0].pid, 0.0, 0.0
        for _ in range(STOPS):
            before, cpu = cluster.now()[3], cpu_seconds(follower)
            os.kill(follower, signal.SIGSTOP)
            try:
                asyncio.run(_load(cluster.agents, FOLLOWED, STOPPED_S))
            finally:
                os.kill(follower, signal.SIGCONT)
            time.sleep(CATCH_UP_S)
            spent += cpu_seconds(follower) - cpu - idle * CATCH_UP_S
            after = cluster.now()[3]
            entries += sum(now["appends"] - was["appends"] for now, was in zip(after, before, strict=True))
    return spent / entries * 1e6


async def appended() -> float:
    """µs of etcd: AUTHORS chains, each of which appends one entry after the other."""
    with Etcd() as etcd:
        log = open_log(f"etcd://{etcd.endpoint}/bench", SystemClock())
        chains = [await log.register(number, bytes(100), 60.0) for number in range(1, AUTHORS + 1)]
        before = cpu_seconds(etcd.pid)
        await asyncio.gather(*(_appending(chain) for chain in chains))
        spent = cpu_seconds(etcd.pid) - before
        await log.close()
    return spent / (AUTHORS * APPENDS) * 1e6


async def _appending(chain: Chain) -> None:
    for _ in range(APPENDS):
        await chain.append(bytes(200))


def each_live_ns() -> float:
    """What `agreed_time` looks at: CPU of heartbeats applied with many live agents and with few, in turns."""
    few, many = (min(_applied(agents) for _ in range(3)) for agents in (12, 300))
    return (many - few) / (300 - 12) * 1e9


def _applied(agents: int, entries: int = 10_000) -> float:
    """CPU seconds to apply an entry of a heartbeat, all agents by turns."""
    state, made = State(), list[LogEntry]()
    first = [
        RegisterAgent(name="0", node_id=-1, feature_max=FEATURE_LEVEL_MAX),
        SetFeatureLevel(level=FEATURE_LEVEL_MAX),
    ]
    state.apply(_entry(0, 1, 1, *first))
    for number in range(1, agents):
        state.apply(
            _entry(
                number,
                1,
                number + 1,
                RegisterAgent(name=f"{number}", node_id=-1, feature_max=FEATURE_LEVEL_MAX),
            )
        )
    for number in range(entries):
        made.append(_entry(number % agents, 2 + number // agents, agents + 1 + number, Heartbeat()))
    begun = time.thread_time()
    for one in made:
        state.apply(one)
    return (time.thread_time() - begun) / entries


def _entry(agent: int, sequence: int, revision: int, *commands: Message) -> LogEntry:
    message = Entry(
        format=1,
        incarnation=agent + 1,
        sequence=sequence,
        proposed_ms=1_700_000_000_000 + revision,
        applied_revision=revision - 1,
        commands=[command(each) for each in commands],
    )
    return LogEntry(revision, agent + 1, sequence, message.SerializeToString())


def clusters() -> list[Found]:
    """RUNS: each agent gets 4 connections with a request of two batches of 4 kB each tenth of a second."""
    return [run(Asked(agents=agents, writers=agents, batches=2, records=4, pause_s=0.1)) for agents in RUNS]


TITLE = "scale, real agents"
UNITS = {"idle": "% of a core", "live": "ns", "entry_bytes": "B", "watch_bytes": "B", "answer_bytes": "B"}
NAMES = {
    "idle": "an idle agent of three",
    "entry": "to follow and apply an entry",
    "crowd": "to follow and apply one of many entries that come at once",
    "live": "to apply an entry, for each live agent",
    "slice": "to follow and apply a batch in it",
    "flush": "a request of one batch, alone in its chunk",
    "relayed": "to hand an entry on to one follower",
    "etcd_append": "etcd's CPU of an append",
    "etcd_crowd": "etcd's CPU of an append, one of many at once",
    "entry_bytes": "bytes of the log of an entry, batches left out",
    "watch_bytes": "sent by etcd with an entry to one watch, the entry left out",
    "answer_bytes": "sent by etcd to the author of an entry",
}


def figures() -> Iterable[Figure]:
    """Calibration, then what an agent of each of the clusters took."""
    found = asdict(calibrated())
    for key, value in found.items():
        yield Figure(f"{TITLE}: {NAMES[key]}", value, UNITS.get(key, "µs"), better="less")
    runs = clusters()
    KEPT.write_text(json.dumps([asdict(each) for each in runs]))
    for one in runs:
        entries = one.total("appends")
        name = f"{TITLE}: cluster of {one.asked.agents}"
        yield Figure(f"{name}: entries", entries / one.seconds, "entries/s")
        cpu = statistics.mean(one.cpu) / one.seconds * 100
        yield Figure(f"{name}: CPU of an agent", cpu, "% of a core", better="less")
        yield Figure(f"{name}: sent by etcd for an entry", one.etcd_sent / entries, "B", better="less")


if __name__ == "__main__":
    for figure in figures():
        print(figure.line(), flush=True)
