"""`make late-ends MINUTES=n BROKER=floe|embedded|kafka`: KAFKA-17754 with real clients.

Clients of v1 write and read inside of transactions; the proxy of each holds, drops and repeats requests, so
that an EndTxn arrives when its client has ended that transaction by another try and writes the next. The
history is judged by the checker, and kept as Parquet for Spark. Apache Kafka 4.3.1 in the same script is the
control: an experiment that finds nothing there proves nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from agent.net.wire.generated.find_coordinator import FindCoordinatorRequest
from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.kafka import VERSION, Kafka
from deploy.services.ports import free_port
from tests.checker.findings import Finding
from tests.checker.judge import judge
from tests.checker.tables import Logged
from tests.equipment.proxy import Proxy, kafka_frames
from tests.equipment.transactional_client import Connection
from tests.torture.broker_log import read_log
from tests.torture.inside import chunks_differ
from tests.torture.late_clients import CLIENTS, hush
from tests.torture.late_work import PARTITIONS, Places, Recorder, Worker
from tests.torture.links import LinkLoop
from tests.torture.mischief import MIXES, Mischief, Odds
from tests.torture.run import create_topic
from tests.torture.spark import Kept

TOPIC = "late"
AGENTS = 2
ENDED_S_MAX = 90.0  # within which the transactions of dead clients have timed out
FINAL_S_MAX = 300.0
LOOK_S, TELL_S = 0.2, 30.0
MIX_S = 20.0  # each of several mixes at a time
GROUPS_MAX = 100  # names of groups to look for a coordinator with
FIND_GROUP, FIND_TRANSACTION, FIND_VERSION = 0, 1, 3
CHUNK = 2_000  # records of a poll of the final read
FOLDER = Path("build/late-ends")


class Agent(FloeAgent):
    """An agent of this tree's code, wherever its interpreter was set up."""

    def environment(self) -> dict[str, str]:
        """The packages are found from the project's root."""
        return {**super().environment(), "PYTHONPATH": str(Path(__file__).parents[2])}


@dataclass
class Brokers:
    """Whom the clients talk to. `direct`: without a proxy; the others by client."""

    direct: str
    bootstraps: list[str] = field(default_factory=list)
    links: list[list[Proxy]] = field(default_factory=list)
    opened: tuple[str, str, dict[str, Any]] | None = None
    """Log, store and the store's options, where audits may look inside."""


def _behind(loop: LinkLoop, clients: int, ports: Sequence[Sequence[int]]) -> Brokers:
    """A proxy for each client and broker. `ports`: by broker its direct port and one for each client."""
    made = Brokers(",".join(f"127.0.0.1:{each[0]}" for each in ports))
    for client in range(clients):
        made.links.append([loop.link(each[1 + client], framing=kafka_frames) for each in ports])
        made.bootstraps.append(",".join(link.address for link in made.links[-1]))
    return made


@contextlib.contextmanager
def kafka(clients: int) -> Iterator[Brokers]:
    """One node of Apache Kafka: a listener for each client, which advertises the client's proxy."""
    with LinkLoop() as loop:
        ports = [free_port() for _ in range(clients)]
        behind = _behind(loop, clients, [[0, *ports]])
        settings: list[str] = []
        broker = Kafka(settings=settings)
        names = [f"CLIENT{client}" for client in range(clients)]
        own = f"PLAINTEXT://{broker.bootstrap}"
        bound = [f"{name}://127.0.0.1:{port}" for name, port in zip(names, ports, strict=True)]
        told = [f"{name}://{links[0].address}" for name, links in zip(names, behind.links, strict=True)]
        protocols = [f"{name}:PLAINTEXT" for name in ("CONTROLLER", "PLAINTEXT", *names)]
        controller = f"CONTROLLER://127.0.0.1:{broker.controller_port}"
        settings += [  # of what is said twice the last counts
            f"listeners={','.join([own, controller, *bound])}",
            f"advertised.listeners={','.join([own, *told])}",
            f"listener.security.protocol.map={','.join(protocols)}",
        ]
        with broker:
            behind.direct = broker.bootstrap
            yield behind


def _listeners(brokers: Brokers, ports: Sequence[int], number: int) -> list[dict[str, Any]]:
    """An agent's: one that is direct, and one for each client, which advertises the client's proxy."""
    made: list[dict[str, Any]] = [{"name": "DIRECT", "host": "127.0.0.1", "port": ports[0]}]
    for client, port in enumerate(ports[1:]):
        place = {"advertised_host": "127.0.0.1", "advertised_port": brokers.links[client][number].port}
        made.append({"name": f"CLIENT-{client}", "host": "127.0.0.1", "port": port, **place})
    return made


@contextlib.contextmanager
def floe(clients: int) -> Iterator[Brokers]:
    """Two agents over etcd and an S3 server."""
    with LinkLoop() as loop, Etcd() as etcd, Minio() as store, contextlib.ExitStack() as stack:
        ports = [[free_port() for _ in range(clients + 1)] for _ in range(AGENTS)]
        brokers = _behind(loop, clients, ports)
        bucket = store.make_bucket(f"late-{os.getpid()}")
        for number in range(AGENTS):
            settings = clustered(
                etcd=etcd.endpoint,
                bucket_url=f"s3://{bucket}/floe",
                store=store,
            )
            settings["listeners"] = _listeners(brokers, ports[number], number)
            settings["tables"] = {"enabled": False}
            stack.enter_context(Agent(f"agent-{number}", settings))
        account = {"access_key": store.access_key, "secret_key": store.secret_key}
        options = {"endpoint": store.endpoint, "allow_http": True, **account}
        brokers.opened = (f"etcd://{etcd.endpoint}/floe", f"s3://{bucket}/floe", options)
        yield brokers


@contextlib.contextmanager
def embedded(clients: int, agent: type[Agent] | None = None) -> Iterator[Brokers]:
    """One agent on the embedded default."""
    with LinkLoop() as loop, tempfile.TemporaryDirectory(prefix="floe-late-") as folder:
        ports = [[free_port() for _ in range(clients + 1)]]
        brokers = _behind(loop, clients, ports)
        settings: dict[str, Any] = {
            "listeners": _listeners(brokers, ports[0], 0),
            "log": {"url": f"sqlite://{folder}/log.db"},
            "store": {"url": f"file://{folder}/bucket"},
            "tables": {"enabled": False},
        }
        with (agent or Agent)("late", settings, Path(folder) / "agent"):
            yield brokers


BROKERS = {"floe": floe, "embedded": embedded, "kafka": kafka}


@dataclass
class Outcome:
    """One run: what its clients did, what was done to them, and what was found."""

    recorder: Recorder
    findings: list[tuple[str, Finding]] = field(default_factory=list)
    """By the kind of client whose transaction it is."""
    log: list[Logged] = field(default_factory=list)
    """What the log holds in the end, where it can be read."""
    workers: list[Worker] = field(default_factory=list)
    mischief: list[Mischief] = field(default_factory=list)
    operations: int = 0
    read: int = 0

    @property
    def anomalies(self) -> Counter[str]:
        """Findings by name."""
        return Counter(finding.anomaly for _, finding in self.findings)

    def done(self, kind: str = "") -> Counter[str]:
        """What was done to requests, of one kind of client or of all."""
        total: Counter[str] = Counter()
        for worker, each in zip(self.workers, self.mischief, strict=True):
            total += each.done if kind in ("", worker.kind) else Counter()
        return total

    def transactions(self, kind: str = "") -> Counter[str]:
        """Transactions by how they ended: ok, aborted, info, fail."""
        total: Counter[str] = Counter()
        for worker in self.workers:
            total += worker.outcomes if kind in ("", worker.kind) else Counter()
        return total

    def errors(self, kind: str) -> Counter[str]:
        """What ended clients of a kind."""
        return sum((each.errors for each in self.workers if each.kind == kind), Counter())

    def figures(self, kind: str = "") -> dict[str, Any]:
        """Counts of one kind of client, or of all."""
        done = self.done(kind)
        found = Counter(f.anomaly for of, f in self.findings if kind in ("", of))
        return {
            "transactions": dict(sorted(self.transactions(kind).items())),
            "ends held": done["EndTxn hold"],
            "ends late": done["EndTxn late"],
            "positions held": done["TxnOffsetCommit hold"],
            "positions late": done["TxnOffsetCommit late"],
            "requests": dict(sorted(done.items())),
            "anomalies": dict(sorted(found.items())),
        }

    def report(self) -> str:
        """A line for each kind of client."""
        lines = []
        for kind in sorted({worker.kind for worker in self.workers}):
            told = self.figures(kind)
            lines.append(
                f"{kind}: transactions {told['transactions']}, EndTxn held {told['ends held']}, "
                f"late {told['ends late']}, TxnOffsetCommit held {told['positions held']}, "
                f"late {told['positions late']}, clients ended by {dict(self.errors(kind))}: "
                f"{told['anomalies'] or 'nothing found'}"
            )
        return "\n".join([*lines, *(f"  {kind}: {finding}" for kind, finding in self.findings[:10])])


def run(
    brokers: Brokers,
    kinds: Sequence[str],
    seconds: float,
    seed: int,
    *,
    mix: str = "all",
    enough: Callable[[Outcome], bool] = lambda outcome: False,
) -> Outcome:
    """Clients of these kinds for so long or until it is enough; then all is whole again, read, and judged.

    Where there are two agents, one of each two clients has its two coordinators on one of them, the other on
    both. `mix`: one of MIXES.
    """
    hush()
    create_topic(brokers.direct, TOPIC, PARTITIONS)
    outcome = Outcome(Recorder(TOPIC))
    recorder = outcome.recorder
    for number, kind in enumerate(kinds):
        mischief = Mischief(random.Random(f"{seed} links {number}"), MIXES[mix][0])
        mischief.behind_positions = mix == "hold-positions"
        for link in brokers.links[number]:
            mischief.take(link)
        name = f"{kind}-{number}"
        group = asyncio.run(_group(brokers, name, apart=number % 2 == 1))
        places = Places(brokers.bootstraps[number], brokers.direct, name, group, TOPIC)
        worker = Worker(kind, places, recorder, seed * 1000 + number)
        outcome.mischief.append(mischief)
        outcome.workers.append(worker)
        worker.start()
    try:
        _live(outcome, seconds, enough, MIXES[mix])
    finally:  # whatever ends it: other runs of the process would have their load
        for mischief in outcome.mischief:
            mischief.over = True
        for worker in outcome.workers:
            worker.stop()
    for worker in outcome.workers:
        worker.joined()
    _judge(brokers, outcome)
    return outcome


async def _group(brokers: Brokers, name: str, *, apart: bool) -> str:
    """A group whose coordinator is that of the transactional id `name`, or is not."""
    connection = await Connection.open(brokers.direct)
    try:
        for number in range(GROUPS_MAX):
            group = f"{name}-{number}"
            asked = ((FIND_TRANSACTION, name), (FIND_GROUP, group))
            found = [
                await connection.call("FindCoordinator", FindCoordinatorRequest(key, kind), FIND_VERSION)
                for kind, key in asked
            ]
            if not brokers.opened or (found[0].node_id != found[1].node_id) == apart:
                return group
    finally:
        await connection.close()
    raise AssertionError(f"none of {GROUPS_MAX} groups has the coordinator that {name} needs")


def _live(
    outcome: Outcome,
    seconds: float,
    enough: Callable[[Outcome], bool],
    mixes: Sequence[Mapping[int, Odds]],
) -> None:
    """Let the clients be, and say now and then how far they are."""
    begun = told_at = time.monotonic()
    while (now := time.monotonic()) - begun < seconds and not enough(outcome):
        for mischief in outcome.mischief:
            mischief.odds = mixes[int((now - begun) / MIX_S) % len(mixes)]
        time.sleep(LOOK_S)
        if now - told_at < TELL_S:
            continue
        told_at = now
        done, told = outcome.done(), outcome.transactions()
        print(
            f"  {time.strftime('%H:%M:%S')} transactions {told.total()}, EndTxn held {done['EndTxn hold']}, "
            f"late {done['EndTxn late']}, TxnOffsetCommit held {done['TxnOffsetCommit hold']}, "
            f"late {done['TxnOffsetCommit late']}",
            flush=True,
        )


def _judge(brokers: Brokers, outcome: Outcome) -> None:
    """Everything that is wrong, by the kind of client whose transaction it is."""
    recorder = outcome.recorder
    kinds = {process: each.kind for each in outcome.workers for process in each.processes}
    wrong = [("", each) for each in ended(brokers.direct)]
    read_all(brokers.direct, recorder)
    for worker in outcome.workers:
        wrong += [(worker.kind, each) for each in _positions(brokers.direct, worker)]
    if brokers.opened is not None:
        outcome.log = read_log(*brokers.opened, TOPIC)
        inside = asyncio.run(chunks_differ(*brokers.opened, TOPIC))
        wrong += [("", Finding(each.anomaly, each.place, each.detail, ())) for each in inside]
    judgement = judge(recorder.history)
    operations = recorder.history.operations
    for finding in judgement.findings:
        if finding.weight == "fail":
            of = [kinds.get(operations[each].process, "") for each in finding.operations]
            wrong.append((next(filter(None, of), ""), finding))
    outcome.findings += wrong
    outcome.operations, outcome.read = len(operations), judgement.read


def _ends(bootstrap: str, isolation: IsolationLevel, topic: str = TOPIC) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    asked = {TopicPartition(topic, each): OffsetSpec.latest() for each in range(PARTITIONS)}
    told = admin.list_offsets(asked, isolation_level=isolation, request_timeout=30)
    return {place.partition: future.result(60).offset for place, future in told.items()}


def ended(bootstrap: str, topic: str = TOPIC) -> list[Finding]:
    """Wait until no transaction is open; those that stay open hang."""
    deadline = time.monotonic() + ENDED_S_MAX
    while True:
        stable, ends = (
            _ends(bootstrap, IsolationLevel.READ_COMMITTED, topic),
            _ends(bootstrap, IsolationLevel.READ_UNCOMMITTED, topic),
        )
        if stable == ends:
            return []
        if time.monotonic() > deadline:
            return [
                Finding(
                    "hanging-transaction", f"{topic}-{each}", f"open from {stable[each]} to {ends[each]}", ()
                )
                for each in ends
                if stable[each] != ends[each]
            ]
        time.sleep(0.5)


def read_all(bootstrap: str, recorder: Recorder, topic: str = TOPIC) -> None:
    """Everything that is committed from the start, by a fresh client; goes into the history."""
    ends = _ends(bootstrap, IsolationLevel.READ_COMMITTED, topic)
    settings = {"group.id": "final", "isolation.level": "read_committed", "enable.partition.eof": True}
    reader = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    reader.assign([TopicPartition(topic, each, 0) for each in ends])
    process, left = recorder.process(), {each for each, end in ends.items() if end}
    recorder.note(process, "assign", "ok", time.monotonic_ns(), partitions=tuple(sorted(ends)))
    deadline = time.monotonic() + FINAL_S_MAX
    while left:
        assert time.monotonic() < deadline, f"the final read does not come to the ends of {sorted(left)}"
        invoked, found = time.monotonic_ns(), dict[int, list[tuple[int, str]]]()
        for message in reader.consume(CHUNK, 0.5):
            if message.error() is None:
                row = (message.offset(), message.value().decode())
                found.setdefault(message.partition(), []).append(row)
            elif message.offset() >= ends[message.partition()]:
                left.discard(message.partition())
        recorder.note(process, "poll", "ok", invoked, (recorder.poll(found),))
    reader.close()


def _positions(bootstrap: str, worker: Worker) -> list[Finding]:
    """Where the group stands, against what its transactions committed."""
    found = Places("", bootstrap, worker.name, worker.group, TOPIC).committed(list(worker.positions))
    return worker.stale + [
        Finding(
            "position-differs", f"{TOPIC}-{each}", f"{worker.name} at {found[each]}, not {sorted(may)}", ()
        )
        for each, may in worker.positions.items()
        if found[each] not in may
    ]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--broker", choices=sorted(BROKERS), default="floe")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--per-kind", type=int, default=2, help="clients of each make")
    parser.add_argument("--mix", choices=sorted(MIXES), default="all", help="what happens to which requests")
    return parser.parse_args()


def main() -> int:
    """Run and report; 0 when Floe shows nothing, or Apache Kafka something."""
    arguments = _arguments()
    seed = arguments.seed if arguments.seed is not None else secrets.randbelow(1_000_000)
    kinds = [kind for kind in CLIENTS for _ in range(arguments.per_kind)]
    print(
        f"late ends: {arguments.broker}, seed {seed}, {arguments.minutes:g} min, {len(kinds)} clients",
        flush=True,
    )
    with BROKERS[arguments.broker](len(kinds)) as brokers:
        outcome = run(brokers, kinds, arguments.minutes * 60, seed, mix=arguments.mix)
    print(outcome.report())
    kept = Kept()
    kept.add("late-ends", outcome.recorder.history, outcome.log)
    by_spark = kept.judged(FOLDER / f"{arguments.broker}-{seed}")["late-ends"]
    print(f"by Spark: {dict(by_spark) or 'clean'}")
    told = {
        "broker": f"Apache Kafka {VERSION}" if arguments.broker == "kafka" else "Floe",
        "minutes": arguments.minutes,
        "seed": seed,
        "mix": arguments.mix,
        "all": outcome.figures(),
        "clients": {kind: outcome.figures(kind) for kind in CLIENTS},
        "by Spark": dict(sorted(by_spark.items())),
        "first findings": [f"{kind}: {finding}" for kind, finding in outcome.findings[:20]],
    }
    path = FOLDER / f"{arguments.broker}-{seed}.json"
    path.write_text(json.dumps(told, indent=2) + "\n")
    count = len(outcome.findings) + by_spark.total()
    print(f"late ends: {arguments.broker}, seed {seed}: {f'FOUND {count}' if count else 'nothing'}; {path}")
    return int(bool(count) != (arguments.broker == "kafka"))


if __name__ == "__main__":
    sys.exit(main())
