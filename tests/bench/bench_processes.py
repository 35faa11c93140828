"""One machine's agents: what two processes write beside one, and what of the processor a gigabyte takes.

librdkafka producers with large batches, 1 kB records, 16 partitions, an etcd, a folder as store. Throughput
says something only where there are cores for all of these beside the agents: four and more. CPU per gigabyte
says it anywhere: two processes that take 1.1 times as much of it write 2 / 1.1 = 1.8 times as much where
cores allow.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from tests.bench.figure import Figure, interleaved
from tests.bench.load import cpu_seconds
from tests.equipment.machine import Machine
from tests.torture.run import create_topic

RECORD = bytes(1_000)
RECORDS, PRODUCERS, PARTITIONS = 100_000, 2, 16
BYTES = RECORDS * PRODUCERS * len(RECORD)
LARGE = {"batch.size": 1_000_000, "linger.ms": 20, "queue.buffering.max.kbytes": 262_144, "log_level": 0}
END_SECONDS_MAX = 120
_topics = itertools.count(1)


def write(bootstrap: str, topic: str) -> None:
    """One producer's records, spread over all partitions, all acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, **LARGE})
    for number in range(RECORDS):
        while True:
            try:
                producer.produce(topic, RECORD, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(END_SECONDS_MAX) == 0


def load(bootstrap: str, pids: Sequence[int]) -> tuple[float, float]:
    """MB/s of one load on a fresh topic, and the agents' CPU seconds per gigabyte of it."""
    topic = f"bench-{next(_topics)}"
    create_topic(bootstrap, topic, PARTITIONS)
    writers = [threading.Thread(target=write, args=(bootstrap, topic)) for _ in range(PRODUCERS)]
    cpu, begun = sum(map(cpu_seconds, pids)), time.monotonic()
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    seconds = time.monotonic() - begun
    return BYTES / seconds / 1e6, (sum(map(cpu_seconds, pids)) - cpu) / BYTES * 1e9


def figures() -> Iterable[Figure]:
    """Two beside one, in turns, each over an etcd and a store of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))

        def settings(name: str) -> dict[str, Any]:
            etcd = stack.enter_context(Etcd())
            return {
                "log": {"url": f"etcd://{etcd.endpoint}/{name}"},
                "store": {"url": f"file://{folder}/{name}"},
                "tables": {"enabled": False},
                "logging": {"level": "warning"},
            }

        one = stack.enter_context(FloeAgent("one", settings("one")))
        two = stack.enter_context(Machine("two", settings("two")))
        costs: dict[str, list[float]] = {"one": [], "two": []}

        def run(name: str, bootstrap: str, pids: Sequence[int]) -> Callable[[], float]:
            def measured() -> float:
                speed, cost = load(bootstrap, pids)
                costs[name].append(cost)
                return speed

            return measured

        alone = run("one", one.bootstrap, [one.pid])
        both = run("two", two.both, [each["pid"] for each in two.processes()])
        for measured in (alone, both):
            measured()  # both warm
        for each in costs.values():
            each.clear()
        speed_of_two, speed_of_one = interleaved([both, alone])
        cpu_of_two, cpu_of_one = statistics.median(costs["two"]), statistics.median(costs["one"])
    title = "produce, 1 kB, large batches, two processes (agent.processes)"
    yield Figure(title, speed_of_two, "MB/s", "one process", speed_of_one)
    name = "agents' CPU of that, two processes"
    yield Figure(name, cpu_of_two, "CPU-s/GB", "one process", cpu_of_one, 1.1, better="less")
