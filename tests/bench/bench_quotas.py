"""Quotas: whether a rate is kept over each single minute, by librdkafka and by Java, reading and writing.

The rate is what the agent stored or sent in a minute, after the first burst that Kafka's windows allow. Each
of the two has a cluster of its own (one etcd, one MinIO), as an agent counts all its clients together; both
run at the same time, and a producer beside a consumer.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from deploy.services.kafka import TOOLS, java_command, tool
from tests.bench.agents import on_services
from tests.bench.figure import Figure
from tests.bench.load import create_topic, set_quota
from tests.bench.scrape import metric

QUOTA = 1_000_000  # bytes per second
WARM_S, MINUTE_S, READ_S = 40, 60, 80
STORED, SENT = "floe_produce_bytes_total", "floe_fetch_bytes_total"
TO_READ = 2 * (WARM_S + READ_S) * QUOTA // 1000  # records of 1 kB

PRODUCER = """
import sys
from confluent_kafka import Producer
settings = {"bootstrap.servers": sys.argv[1], "client.id": "greedy", "queue.buffering.max.kbytes": 65536}
producer = Producer(settings)
value = bytes(1000)
while True:
    try:
        producer.produce(sys.argv[2], value)
        producer.poll(0)
    except BufferError:
        producer.poll(0.05)
"""
CONSUMER = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "client.id": "greedy", "group.id": "g"})
while True:
    consumer.assign([TopicPartition(sys.argv[2], 0, 0)])
    for _ in range(500):
        consumer.consume(1000, 1)
"""


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """A client that goes on until it is ended."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def script(text: str, agent: FloeAgent, topic: str) -> list[str]:
    """A Python client."""
    return [sys.executable, "-c", text, agent.bootstrap, topic]


def javas(agent: FloeAgent, topic: str, read: str) -> list[list[str]]:
    """Kafka's own producer and consumer, as fast as they may."""
    load = ("--topic", topic, "--num-records", "100000000", "--record-size", "1000", "--throughput", "-1")
    writing = ("--command-property", f"bootstrap.servers={agent.bootstrap}", "client.id=greedy")
    reading = ("--bootstrap-server", agent.bootstrap, "--topic", read, "--num-records", str(TO_READ))
    named = ("--command-property", "client.id=greedy", "--timeout", "60000")
    return [
        java_command(TOOLS["producer-perf-test"], *load, *writing),
        java_command(TOOLS["consumer-perf-test"], *reading, *named),
    ]


def limit(agent: FloeAgent, quota: str, value: int | None) -> None:
    """Set or remove a quota of the client id `greedy`."""
    asyncio.run(set_quota(agent.bootstrap, "greedy", quota, value))


def off_percent(read: Sequence[tuple[float, float]]) -> float:
    """How far from the quota the worst single minute is, percent. `read`: moments and bytes until then."""
    minutes = [
        (before, next((after for after in read if after[0] - before[0] >= MINUTE_S), None)) for before in read
    ]
    rates = [
        (after[1] - before[1]) / (after[0] - before[0]) for before, after in minutes if after is not None
    ]
    assert len(rates) > 1, "no whole minute was measured"
    return max(abs(rate / QUOTA - 1) for rate in rates) * 100


def prepare(agent: FloeAgent) -> None:
    """Topics, what there is to be read, then the quotas."""
    for topic in ("write", "read"):
        asyncio.run(create_topic(agent.bootstrap, topic, 1))
    load = ("--topic", "read", "--num-records", str(TO_READ), "--record-size", "1000", "--throughput", "-1")
    done = tool(
        "producer-perf-test",
        *load,
        "--command-property",
        f"bootstrap.servers={agent.bootstrap}",
        timeout_s=300,
    )
    assert f"{TO_READ} records sent" in done.stdout, done.stdout + done.stderr
    for quota in ("producer_byte_rate", "consumer_byte_rate"):
        limit(agent, quota, QUOTA)


def figures() -> Iterable[Figure]:
    """Two agents, of a cluster each."""
    read: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        agents = {}
        for who in ("librdkafka", "Java"):
            settings = on_services(etcd, minio, minio.make_bucket(f"bench-{who.lower()}"))
            settings["log"] = {"url": f"etcd://{etcd.endpoint}/{who.lower()}"}
            agents[who] = stack.enter_context(FloeAgent(who.lower(), settings))
            prepare(agents[who])
        one, other = agents.values()
        commands = [
            script(PRODUCER, one, "write"),
            script(CONSUMER, one, "read"),
            *javas(other, "write", "read"),
        ]
        for command in commands:
            stack.enter_context(running(command))
        time.sleep(WARM_S)
        for _ in range(READ_S):
            for who, agent in agents.items():
                for name in (STORED, SENT):
                    read.setdefault((name, who), []).append((time.monotonic(), metric(agent.http, name)))
            time.sleep(1)
    for (name, who), rows in read.items():
        quota = "producer_byte_rate" if name == STORED else "consumer_byte_rate"
        title = f"{quota} 1 MB/s, worst single minute off by, {who}"
        yield Figure(title, off_percent(rows), "%", goal=5, better="less")
