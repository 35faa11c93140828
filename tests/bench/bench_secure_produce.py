"""What TLS and a login take of full load: SASL_SSL beside PLAINTEXT, Floe beside Apache Kafka.

Kafka's own ProducerPerformance with the same settings, certificates and ciphers, the four in turns, all on
the same cores. The figure is the share of plaintext's throughput that is kept; and what TLS adds to the
server's CPU, which a busy machine disturbs least.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import TOOLS, Kafka, java_command
from deploy.services.ports import free_port
from tests.bench.agents import on_services
from tests.bench.bench_cluster_produce import LARGE
from tests.bench.doors import PASSWORD, PLAIN_USER, Doors
from tests.bench.figure import ROUNDS, Figure, interleaved
from tests.bench.load import cpu_seconds, create_topic

RECORDS, SIZE, PARTITIONS = 200_000, 1_000, 16
BYTES = RECORDS * SIZE
PEER = "Apache Kafka 4.3.1"
PLAIN_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
HEAP = "512m"  # of the client: with all compilers, whose AES is the processor's
_topics = itertools.count(1)


class SecureKafka(Kafka):
    """Apache Kafka with a SASL_SSL listener of the same certificate and user beside its own."""

    def __init__(self, doors: Doors) -> None:
        super().__init__()
        self.secure_port = free_port()
        pem = self.directory / "server.pem"
        pem.write_text(doors.pair.key.read_text() + doors.pair.cert.read_text())
        self._settings = [
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={pem}",
            "sasl.enabled.mechanisms=PLAIN",
            f'listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN_LOGIN} user_{PLAIN_USER}="{PASSWORD}";',
        ]

    def _base(self) -> list[str]:
        lines = dict(line.split("=", 1) for line in super()._base())
        for name in ("listeners", "advertised.listeners"):
            lines[name] += f",SASL_SSL://127.0.0.1:{self.secure_port}"
        lines["listener.security.protocol.map"] += ",SASL_SSL:SASL_SSL"
        return [f"{name}={value}" for name, value in lines.items()]


class Side(NamedTuple):
    """One of the two servers."""

    name: str
    pid: int
    plain: str
    secure: str


class Run(NamedTuple):
    """MB/s (10^6 bytes), and CPU seconds of the server per 10^9 bytes of records."""

    speed: float
    cpu: float


def secure(doors: Doors) -> tuple[str, ...]:
    """The client's options for SASL_SSL, with a file of its settings."""
    settings = (
        "security.protocol=SASL_SSL",
        "sasl.mechanism=PLAIN",
        f'sasl.jaas.config={PLAIN_LOGIN} username="{PLAIN_USER}" password="{PASSWORD}";',
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={doors.authority.cert}",
    )
    file = doors.authority.folder / "client.properties"
    file.write_text("\n".join(settings))
    return ("--command-config", str(file))


def produce(side: Side, properties: Sequence[str], login: Sequence[str]) -> Run:
    """One run on a fresh topic; over SASL_SSL with `login`."""
    topic = f"bench-{next(_topics)}"
    asyncio.run(create_topic(side.plain, topic, PARTITIONS))
    before = cpu_seconds(side.pid)
    done = subprocess.run(
        java_command(
            TOOLS["producer-perf-test"],
            *("--bootstrap-server", side.secure if login else side.plain, "--topic", topic),
            *("--num-records", str(RECORDS), "--record-size", str(SIZE), "--throughput", "-1"),
            *("--command-property", "acks=all", *properties),
            *login,
            heap=HEAP,
            options=(),
        ),
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    found = re.findall(r"([\d.]+) records/sec", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RECORDS} records sent" in done.stdout, done.stdout + done.stderr
    return Run(float(found[-1]) * SIZE / 1e6, (cpu_seconds(side.pid) - before) / BYTES * 1e9)


def compare(name: str, sides: Sequence[Side], properties: Sequence[str], doors: Doors) -> Iterable[Figure]:
    """Throughput kept and CPU added, of both, by one kind of settings."""
    runs: dict[tuple[str, bool], list[Run]] = {}

    def one(side: Side, login: Sequence[str]) -> float:
        run = produce(side, properties, login)
        runs.setdefault((side.name, bool(login)), []).append(run)
        return run.speed

    turns = [partial(one, side, login) for side in sides for login in ((), secure(doors))]
    plain, tls, their_plain, their_tls = interleaved(turns, ROUNDS)
    title = f"produce, 1 kB, acks=all, 16 partitions, {name}: SASL_SSL"
    yield Figure(title, tls, "MB/s", PEER, their_tls)
    yield Figure(
        f"{title} keeps of plaintext", tls / plain * 100, "%", PEER, their_tls / their_plain * 100, 1.0
    )
    added = [
        statistics.median(run.cpu for run in runs[side.name, True])
        - statistics.median(run.cpu for run in runs[side.name, False])
        for side in sides
    ]
    yield Figure(f"{title} adds to the server's CPU", added[0], "CPU-s/GB", PEER, added[1], better="less")


def figures() -> Iterable[Figure]:
    """Large batches, then Java's defaults."""
    with ExitStack() as stack:
        doors = Doors(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("bench")) | doors.settings
        agent = stack.enter_context(FloeAgent("agent", settings))
        kafka = stack.enter_context(SecureKafka(doors))
        local = "127.0.0.1:{}".format
        sides = (
            Side("Floe", agent.pid, local(doors.ports["PLAINTEXT"]), local(doors.ports["SASL_SSL"])),
            Side("Kafka", kafka.pid, kafka.bootstrap, local(kafka.secure_port)),
        )
        for side in sides:  # both warm
            produce(side, LARGE, secure(doors))
        yield from compare("full load (large batches)", sides, LARGE, doors)
        yield from compare("client's defaults", sides, (), doors)
