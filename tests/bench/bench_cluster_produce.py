"""Full load through Kafka's own ProducerPerformance: Floe on etcd and MinIO against Apache Kafka, in turns.

Both have the same two cores for client, broker and storage, and clients with the same settings. Also what the
agent itself spends for it: CPU per gigabyte and PUTs per mebibyte.

Two settings. Java's defaults keep at most 5 requests of 16 batches of 16 kB on their way, 1.3 MB: a server
that writes one PUT per round trip then needs 0.8 PUTs/MiB at the very least. So the figures of full load are
those with large batches, as guides to throughput advise for any Kafka.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka, tool
from tests.bench.agents import on_services
from tests.bench.figure import Figure, interleaved
from tests.bench.load import cpu_seconds
from tests.bench.scrape import metric

RECORDS, SIZE, PARTITIONS = 400_000, 1_000, 16
ROUNDS = 5
BYTES = RECORDS * SIZE
LARGE = ("batch.size=262144", "linger.ms=50", "buffer.memory=134217728", "max.request.size=4194304")
_topics = itertools.count(1)


class Spent(NamedTuple):
    """What a load cost the agent."""

    cpu_s: float
    puts: float


def produce(bootstrap: str, properties: Sequence[str]) -> float:
    """MB/s (10^6 bytes) of one run on a fresh topic."""
    topic = f"bench-{next(_topics)}"
    made = tool(
        *("topics", "--bootstrap-server", bootstrap, "--create", "--topic", topic),
        *("--partitions", str(PARTITIONS)),
    )
    assert made.returncode == 0, made.stdout + made.stderr
    done = tool(
        *("producer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic),
        *("--num-records", str(RECORDS), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--command-property", "acks=all", *properties),  # one option: a second one would replace it
        timeout_s=300,
    )
    found = re.findall(r"([\d.]+) records/sec", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RECORDS} records sent" in done.stdout, done.stdout
    return float(found[-1]) * SIZE / 1e6


def spent(agent: FloeAgent) -> Spent:
    """What the agent spent since its start."""
    return Spent(cpu_seconds(agent.pid), metric(agent.http, "floe_put_seconds_count"))


def compare(
    agent: FloeAgent, kafka: Kafka, name: str, properties: Sequence[str], full: bool
) -> Iterable[Figure]:
    """Throughput against Kafka, then the agent's cost."""
    costs: list[Spent] = []

    def floe() -> float:
        before = spent(agent)
        speed = produce(agent.bootstrap, properties)
        after = spent(agent)
        costs.append(Spent(after.cpu_s - before.cpu_s, after.puts - before.puts))
        return speed

    ours, theirs = interleaved([floe, lambda: produce(kafka.bootstrap, properties)], ROUNDS)
    cpu = statistics.median(cost.cpu_s for cost in costs) / BYTES * 1e9
    puts = statistics.median(cost.puts for cost in costs) / BYTES * 2**20
    title = f"produce, 1 kB, acks=all, 16 partitions, {name}"
    yield Figure(title, ours, "MB/s", "Apache Kafka 4.3.1", theirs, 1.0 if full else 0.85)
    yield Figure(f"agent CPU of that, {name}", cpu, "CPU-s/GB", goal=1.5 if full else 2.7, better="less")
    yield Figure(f"PUTs of that, {name}", puts, "PUTs/MiB", goal=0.3 if full else None, better="less")


def figures() -> Iterable[Figure]:
    """Large batches, then Java's defaults."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("bench"))
        agent = stack.enter_context(FloeAgent("agent", settings))
        kafka = stack.enter_context(Kafka())
        produce(agent.bootstrap, LARGE)  # both warm
        produce(kafka.bootstrap, LARGE)
        yield from compare(agent, kafka, "full load (large batches)", LARGE, full=True)
        yield from compare(agent, kafka, "client's defaults", (), full=False)
