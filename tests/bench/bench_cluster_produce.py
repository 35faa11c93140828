"""Full load through Kafka's own ProducerPerformance: Floe on etcd and MinIO against Apache Kafka, in turns.

Both have the same two cores for client, broker and storage. Also what the agent itself spends for it: CPU per
gigabyte and PUTs per mebibyte.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered
from deploy.services.kafka import Kafka, tool
from tests.bench.figure import Figure, interleaved
from tests.bench.scrape import metric

RECORDS, SIZE, PARTITIONS = 600_000, 1_000, 16
_topics = itertools.count(1)


def produce(bootstrap: str) -> float:
    """MB/s (10^6 bytes) of one run on a fresh topic."""
    topic = f"bench-{next(_topics)}"
    made = tool(
        *("topics", "--bootstrap-server", bootstrap, "--create", "--topic", topic),
        *("--partitions", str(PARTITIONS)),
    )
    assert made.returncode == 0, made.stderr
    done = tool(
        *(
            "producer-perf-test",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--num-records",
            str(RECORDS),
        ),
        *("--record-size", str(SIZE), "--throughput", "-1", "--command-property", "acks=all"),
        timeout_s=300,
    )
    found = re.findall(r"([\d.]+) records/sec", done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{RECORDS} records sent" in done.stdout, done.stdout
    return float(found[-1]) * SIZE / 1e6


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def figures() -> Iterable[Figure]:
    """Throughput against Kafka, then the agent's cost."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = clustered(
            etcd=etcd.endpoint,
            bucket_url=f"s3://{minio.make_bucket('bench')}/floe",
            s3_endpoint=minio.endpoint,
            access_key=minio.access_key,
            secret_key=minio.secret_key,
        )
        settings["tables"] = {"enabled": False}
        agent = stack.enter_context(FloeAgent("agent", settings))
        kafka = stack.enter_context(Kafka())
        produce(agent.bootstrap)  # both warm
        produce(kafka.bootstrap)
        spent, puts, sent = [], [], []

        def floe() -> float:
            cpu, put = cpu_seconds(agent.pid), metric(agent.http, "floe_put_seconds_count")
            speed = produce(agent.bootstrap)
            spent.append(cpu_seconds(agent.pid) - cpu)
            puts.append(metric(agent.http, "floe_put_seconds_count") - put)
            sent.append(RECORDS * SIZE)
            return speed

        ours, theirs = interleaved([floe, lambda: produce(kafka.bootstrap)])
    yield Figure("produce, 1 kB, acks=all, 16 partitions", ours, "MB/s", "Apache Kafka 4.3.1", theirs, 0.7)
    yield Figure("agent CPU of that", sum(spent) / sum(sent) * 1e9, "CPU-s/GB", goal=3, better="less")
    yield Figure("PUTs at full load", sum(puts) / (sum(sent) / 2**20), "PUTs/MiB", goal=0.3, better="less")
