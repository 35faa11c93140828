"""One machine's agents: what two and four processes write beside one, and what of the processor it takes.

librdkafka producers with large batches, 1 kB records, 16 partitions; each machine over an etcd and a store (a
folder) of its own. As they are, two processes beside one say something about throughput only where there are
cores for all of these beside the agents: four and more. CPU per gigabyte says it anywhere: two processes that
take 1.1 times as much of it write 2 / 1.1 = 1.8 times as much where cores allow. And with a small part of a
core for each process, by cgroups, the cores do allow it: then what the processes write together is told by
what they may take, and their number is what counts. That needs root.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from confluent_kafka import Producer

from deploy.services import Etcd
from deploy.services.floe import FloeAgent
from tests.bench.figure import Figure, interleaved
from tests.bench.load import cpu_seconds
from tests.equipment.machine import Machine
from tests.equipment.shares import shared
from tests.torture.run import create_topic

RECORD = bytes(1_000)
RECORDS, PRODUCERS, PARTITIONS = 100_000, 2, 16
LARGE = {"batch.size": 1_000_000, "linger.ms": 20, "queue.buffering.max.kbytes": 262_144, "log_level": 0}
FULL = {**LARGE, "batch.size": 100_000, "linger.ms": 1_000}
"""Batches that are full however fast they are taken: those of LARGE get smaller as agents get faster."""
END_SECONDS_MAX = 120
SHARE = 0.15
"""Of a core for each process: four take less than one of the two that benches have, and one writes 14 to
27 MB/s, of which what an agent does without a load is little."""
COUNTS = (1, 2, 4)
_topics = itertools.count(1)


def write(bootstrap: str, topic: str, records: int, batches: Mapping[str, Any]) -> None:
    """One producer's records, spread over all partitions, all acknowledged."""
    producer = Producer({"bootstrap.servers": bootstrap, **batches})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, RECORD, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    assert producer.flush(END_SECONDS_MAX) == 0


def load(
    bootstrap: str, pids: Sequence[int], records: int, batches: Mapping[str, Any]
) -> tuple[float, float]:
    """MB/s of one load on a fresh topic, and the agents' CPU seconds per gigabyte of it."""
    topic = f"bench-{next(_topics)}"
    create_topic(bootstrap, topic, PARTITIONS)
    own = (bootstrap, topic, records, batches)
    writers = [threading.Thread(target=write, args=own) for _ in range(PRODUCERS)]
    cpu, begun = sum(map(cpu_seconds, pids)), time.monotonic()
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    seconds, written = time.monotonic() - begun, records * PRODUCERS * len(RECORD)
    return written / seconds / 1e6, (sum(map(cpu_seconds, pids)) - cpu) / written * 1e9


class Machines:
    """Machines of one, two, … agents. `costs`: by how many, the CPU-s/GB of each run."""

    def __init__(self, stack: ExitStack, counts: Sequence[int]) -> None:
        self._stack = stack
        self._folder = Path(stack.enter_context(TemporaryDirectory()))
        self.costs: dict[int, list[float]] = {count: [] for count in counts}
        self._where = {count: self._started(count) for count in counts}

    def _started(self, count: int) -> tuple[str, list[int]]:
        etcd, name = self._stack.enter_context(Etcd()), f"machine-{count}"
        settings: dict[str, Any] = {
            "log": {"url": f"etcd://{etcd.endpoint}/{name}"},
            "store": {"url": f"file://{self._folder}/{name}"},
            "tables": {"enabled": False},
            "logging": {"level": "warning"},
        }
        if count == 1:
            one = self._stack.enter_context(FloeAgent(name, settings))
            return one.bootstrap, [one.pid]
        several = self._stack.enter_context(Machine(name, settings, processes=count))
        return several.everywhere, [each["pid"] for each in several.processes()]

    def speed(self, count: int, records: int = RECORDS, batches: Mapping[str, Any] = LARGE) -> float:
        """MB/s of one run."""
        speed, cost = load(*self._where[count], records, batches)
        self.costs[count].append(cost)
        return speed

    def scaled(self, batches: Mapping[str, Any], count: int) -> float:
        """The same of so many records that it takes as long with any number of agents."""
        return self.speed(count, RECORDS * count // 2, batches)

    def share(self, part: float) -> None:
        """From now on each agent has so much of a core. Raises OSError where that cannot be."""
        for _, pids in self._where.values():
            for pid in pids:
                self._stack.enter_context(shared(pid, part))

    def medians(self, measure: Callable[[int], float], counts: Sequence[int]) -> dict[int, float]:
        """Of each, in turns, once all are warm; costs are those of these runs."""
        for count in counts:
            measure(count)
            self.costs[count].clear()
        return dict(zip(counts, interleaved([partial(measure, count) for count in counts]), strict=True))


def figures() -> Iterable[Figure]:
    """Two beside one as they are; then one, two and four with a part of a core for each."""
    with ExitStack() as stack:
        machines = Machines(stack, COUNTS)
        speed = machines.medians(machines.speed, (1, 2))
        title = "produce, 1 kB, large batches, two processes (agent.processes)"
        yield Figure(title, speed[2], "MB/s", "one process", speed[1])
        cost = {count: statistics.median(machines.costs[count]) for count in (1, 2)}
        name = "agents' CPU of that, two processes"
        yield Figure(name, cost[2], "CPU-s/GB", "one process", cost[1], 1.1, better="less")
        machines.share(SHARE)
        for kind, batches in (("large batches", LARGE), ("full batches of 100 kB", FULL)):
            part = machines.medians(partial(machines.scaled, batches), COUNTS)
            for count, goal in ((2, 1.8), (4, None)):
                title = f"produce, 1 kB, {kind}, {SHARE} of a core for each process: {count} processes"
                yield Figure(title, part[count], "MB/s", "one process", part[1], goal)
