"""Memory of one agent and its helpers, with a limit, at load: `python -m tests.bench.memory_load 300 10 60`.

Arguments: limit (MiB, agent.memory_bytes_max: nothing is killed, what is used is measured), MB/s, seconds.
Two producers without compression and two consumers over twelve partitions, a table of the topic, etcd, MinIO.
Printed each five seconds: proportional memory (PSS, MiB) of the agent, of its helpers, the most of all
together so far, MB/s acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.request
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent, clustered

RECORD_BYTES = 1_000
EVERY_S = 5.0
KIB = 1024


def pss_mib(pid: int) -> float:
    """Proportional memory of a process; 0.0 for one that has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / KIB


def children(pid: int) -> list[int]:
    """Of the process, not of its children."""
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]


async def produce(bootstrap: str, bytes_per_s: float, until: float, count: list[int]) -> None:
    """Batches at a rate, each awaited with others under way."""
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None, linger_ms=20, max_batch_size=256 * KIB
    )
    await producer.start()
    body, started, sent = os.urandom(RECORD_BYTES), time.monotonic(), 0
    pending: list[asyncio.Future[object]] = []
    while time.monotonic() < until:
        if sent > (time.monotonic() - started) * bytes_per_s:
            await asyncio.sleep(0.005)
            continue
        for _ in range(100):
            pending.append(await producer.send("load", body))
        sent += 100 * RECORD_BYTES
        if len(pending) > 20_000:
            await asyncio.gather(*pending)
            count[0] += len(pending) * RECORD_BYTES
            pending.clear()
    await asyncio.gather(*pending)
    count[0] += len(pending) * RECORD_BYTES
    await producer.stop()


async def consume(bootstrap: str, until: float) -> None:
    """All partitions, from the beginning."""
    consumer = AIOKafkaConsumer("load", bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    while time.monotonic() < until:
        await consumer.getmany(timeout_ms=500)
    await consumer.stop()


async def load(agent: FloeAgent, rate: float, seconds: float) -> None:
    """Print what the agent uses while it is under load."""
    admin = AIOKafkaAdminClient(bootstrap_servers=agent.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("load", 12, 1)])
    await admin.close()
    started = time.monotonic()
    until, count, most = started + seconds, [0], 0.0
    work = [asyncio.create_task(produce(agent.bootstrap, rate * 5e5, until, count)) for _ in range(2)]
    work += [asyncio.create_task(consume(agent.bootstrap, until)) for _ in range(2)]
    while time.monotonic() < until:
        await asyncio.sleep(EVERY_S)
        own, helpers = pss_mib(agent.pid), [pss_mib(child) for child in children(agent.pid)]
        most = max(most, own + sum(helpers))
        acknowledged = count[0] / 1e6 / (time.monotonic() - started)
        told = " ".join(f"{each:.0f}" for each in helpers)
        print(
            f"agent {own:.0f} MiB, helpers {told or '-'}, most {most:.0f}, {acknowledged:.1f} MB/s",
            flush=True,
        )
    await asyncio.gather(*work)


def main(limit_mib: str, rate: str, seconds: str) -> None:
    """See the module."""
    with Etcd(fsync=False) as etcd, Minio() as minio:
        client = minio.client()
        client.create_bucket(Bucket="memory")
        client.close()
        settings = clustered(etcd=etcd.endpoint, bucket_url="s3://memory/p", store=minio)
        settings["agent"] = {"memory_bytes_max": int(limit_mib) * KIB * KIB}
        with FloeAgent("memory", settings) as agent:
            asyncio.run(load(agent, float(rate), float(seconds)))
            with urllib.request.urlopen(f"{agent.http}/metrics", timeout=10) as answer:
                for line in answer.read().decode().splitlines():
                    if line.startswith(
                        ("floe_memory", "floe_cache_bytes", "process_resident", "floe_table_seconds")
                    ):
                        print(line)


if __name__ == "__main__":
    main(*sys.argv[1:])
