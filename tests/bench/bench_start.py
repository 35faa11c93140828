"""An agent that serves 10,000 and 200,000 partitions: its memory, and from its start until it is ready.

A real process over etcd and MinIO. Its state comes from a snapshot and the log's tail behind it; every
partition has slices. Ready means what Kubernetes sees: /readyz answers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services, patient
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import batch_of, cpu_seconds, create_topic, produce_all, produce_frame

SLICES_AFTER = 1  # the snapshot, of each partition
SNAPSHOT_S_MAX = 120


@dataclass(frozen=True, slots=True)
class Size:
    """Of a cluster, and what is wanted of an agent of it."""

    topics: int
    per_topic: int
    """Partitions of each."""
    slices: int
    """Of each partition, in the snapshot."""
    snapshot_s: float
    ready_s: float
    memory_mib: float

    @property
    def partitions(self) -> int:
        """Of all topics."""
        return self.topics * self.per_topic


SIZES = (Size(100, 100, 9, 1, 3, 300), Size(200, 1_000, 2, 10, 10, 1_024))


async def fill(bootstrap: str, size: Size, slices: int, *, create: bool) -> None:
    """Append to every partition so many times, by entries of one topic each."""
    batch = batch_of(1)
    for number in range(size.topics):
        topic = f"many-{number:03}"
        if create:
            await create_topic(bootstrap, topic, size.per_topic)
        frame = produce_frame(topic, batch, range(size.per_topic))
        await produce_all(bootstrap, frame, slices, 1)


def status(agent: FloeAgent) -> dict[str, Any]:
    """What the agent says of its replica."""
    with urllib.request.urlopen(f"{agent.http}/status", timeout=10) as response:
        found: dict[str, Any] = json.load(response)["replica"]
    return found


def await_snapshot(agent: FloeAgent) -> None:
    """Return once a snapshot holds everything that is in the log now."""
    through = status(agent)["revision"]
    deadline = time.monotonic() + SNAPSHOT_S_MAX
    while not any(revision >= through for revision in status(agent)["snapshots"]):
        assert time.monotonic() < deadline, f"no snapshot at {through} after {SNAPSHOT_S_MAX} s"
        time.sleep(0.2)


def memory_mib(pid: int) -> float:
    """The most that the process ever had in memory (VmHWM)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measured(size: Size) -> Iterable[Figure]:
    """Fill, snapshot, append a tail, then start again and again."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = patient(on_services(etcd, minio, minio.make_bucket("start-bench")))
        with FloeAgent("agent", {**settings, "snapshots": {"interval_s": size.snapshot_s}}) as agent:
            asyncio.run(fill(agent.bootstrap, size, size.slices, create=True))
            await_snapshot(agent)
        agent = FloeAgent("agent", settings)
        stack.callback(agent.stop)
        agent.start()
        asyncio.run(fill(agent.bootstrap, size, SLICES_AFTER, create=False))
        taken, cpu, memory = [], [], []
        for _ in range(ROUNDS):
            agent.kill()
            begun = time.perf_counter()
            agent.start()
            taken.append(time.perf_counter() - begun)
            cpu.append(cpu_seconds(agent.pid))
            assert status(agent)["partitions"] == size.partitions
            memory.append(memory_mib(agent.pid))
    name = f"{size.partitions:,} partitions"
    yield Figure(
        f"{name}, from start to ready", statistics.median(taken), "s", goal=size.ready_s, better="less"
    )
    yield Figure(f"{name}, from start to ready: CPU", min(cpu), "s", better="less")
    median = statistics.median(memory)
    yield Figure(f"{name}, agent memory", median, "MiB", goal=size.memory_mib, better="less")


def figures() -> Iterable[Figure]:
    """Both sizes."""
    for size in SIZES:
        yield from measured(size)


if __name__ == "__main__":
    for figure in measured(SIZES[int(sys.argv[1])]):
        print(figure.line(), flush=True)
