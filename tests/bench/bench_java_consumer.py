"""A topic read to its end by Kafka's own ConsumerPerformance: Floe on etcd and MinIO, Apache Kafka, in turns.

*Tail*: what was just written, from the agent's memory, and from the page cache that Kafka's broker reads.
*Cold*: an agent that was just started and has nothing in memory, and with both the machine's page cache is
dropped before each run, so that MinIO and the broker read their disk; without root that is left out.
What is compared is the time in which records are fetched; joining the group, some seconds of both, is apart.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import Kafka, tool
from tests.bench.agents import on_services
from tests.bench.figure import Figure, interleaved
from tests.bench.load import cpu_seconds

RECORDS, SIZE, PARTITIONS = 240_000, 1_000, 16
"""240 MB: what an agent keeps of the tail by default (`fetch.cache_bytes_max`) holds it."""
ROUNDS = 5
GOALS = {"tail": 1.0, "cold": 0.9}
PEER = "Apache Kafka 4.3.1"
TOPIC = "consumed"
DROP_CACHES = Path("/proc/sys/vm/drop_caches")
LARGE = ("batch.size=262144", "linger.ms=50", "buffer.memory=134217728", "max.request.size=4194304")
COLUMNS = 10
FETCHED_MB_S, CONSUMED = 8, 4
"""Columns of what the tool prints: MB (2^20 bytes) a second of fetching, and how many records."""


def fill(bootstrap: str) -> None:
    """The topic with all its records, in large batches."""
    made = tool(
        *("topics", "--bootstrap-server", bootstrap, "--create", "--topic", TOPIC),
        *("--partitions", str(PARTITIONS)),
    )
    assert made.returncode == 0, made.stdout + made.stderr
    done = tool(
        *("producer-perf-test", "--bootstrap-server", bootstrap, "--topic", TOPIC),
        *("--num-records", str(RECORDS), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--command-property", "acks=all", *LARGE),
        timeout_s=300,
    )
    assert f"{RECORDS} records sent" in done.stdout, done.stdout + done.stderr


def consume(bootstrap: str) -> float:
    """MB/s (10^6 bytes) while fetching, of a new group that reads everything."""
    done = tool(
        *("consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", TOPIC),
        *("--num-records", str(RECORDS), "--timeout", "60000", "--hide-header"),
        timeout_s=300,
    )
    rows = [line.split(", ") for line in done.stdout.splitlines()]
    rows = [row for row in rows if len(row) == COLUMNS]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(rows) == 1, done.stdout + done.stderr
    assert int(rows[0][CONSUMED]) >= RECORDS, done.stdout
    return float(rows[0][FETCHED_MB_S]) * 2**20 / 1e6


def compared(name: str, ours: Callable[[], float], theirs: Callable[[], float]) -> Figure:
    """One row, the two in turns."""
    floe, kafka = interleaved([ours, theirs], ROUNDS)
    title = f"consume, 1 kB, 16 partitions, ConsumerPerformance, {name}"
    return Figure(title, floe, "MB/s", PEER, kafka, GOALS[name])


def drop_caches() -> None:
    """The page cache of the machine is empty afterwards. Raises PermissionError."""
    os.sync()
    DROP_CACHES.write_text("3\n")


def cold(settings: dict[str, object], kafka: Kafka) -> Figure:
    """From the disk."""

    def ours() -> float:
        with FloeAgent("cold", settings) as agent:
            drop_caches()
            return consume(agent.bootstrap)

    def theirs() -> float:
        drop_caches()
        return consume(kafka.bootstrap)

    return compared("cold", ours, theirs)


def figures() -> Iterable[Figure]:
    """The tail and what the agent spends for it, then cold."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("consume"))
        kafka = stack.enter_context(Kafka())
        with FloeAgent("tail", settings) as agent:
            for bootstrap in (agent.bootstrap, kafka.bootstrap):
                fill(bootstrap)
                consume(bootstrap)  # warm
            spent: list[float] = []

            def ours() -> float:
                before = cpu_seconds(agent.pid)
                speed = consume(agent.bootstrap)
                spent.append(cpu_seconds(agent.pid) - before)
                return speed

            yield compared("tail", ours, lambda: consume(kafka.bootstrap))
            cpu = statistics.median(spent) / (RECORDS * SIZE) * 1e9
            yield Figure("agent CPU of that, tail", cpu, "CPU-s/GB", better="less")
        if os.access(DROP_CACHES, os.W_OK):
            yield cold(settings, kafka)
        else:
            print(f"no cold row: {DROP_CACHES} can be written by root alone", file=sys.stderr)
