"""An agent that serves 10,000 partitions: its memory, and the time from its start until it is ready.

A real process over etcd and MinIO. Its state comes from a snapshot and the log's tail behind it; every
partition has slices. Ready means what Kubernetes sees: /readyz answers.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
import urllib.request
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from deploy.services import Etcd, Minio
from deploy.services.floe import FloeAgent
from tests.bench.agents import on_services
from tests.bench.figure import ROUNDS, Figure
from tests.bench.load import batch_of, create_topic, produce_all, produce_frame

TOPICS, PER_TOPIC = 100, 100
SLICES_BEFORE, SLICES_AFTER = 9, 1  # the snapshot, of each partition
SNAPSHOT_S_MAX = 120


async def fill(bootstrap: str, slices: int, *, create: bool) -> None:
    """Append to every partition so many times, by entries of one topic each."""
    batch = batch_of(1)
    for number in range(TOPICS):
        topic = f"many-{number:03}"
        if create:
            await create_topic(bootstrap, topic, PER_TOPIC)
        frame = produce_frame(topic, batch, range(PER_TOPIC))
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


def figures() -> Iterable[Figure]:
    """Fill, snapshot, append a tail, then start again and again."""
    with ExitStack() as stack:
        etcd, minio = stack.enter_context(Etcd()), stack.enter_context(Minio())
        settings = on_services(etcd, minio, minio.make_bucket("start-bench"))
        with FloeAgent("agent", {**settings, "snapshots": {"interval_s": 1}}) as agent:
            asyncio.run(fill(agent.bootstrap, SLICES_BEFORE, create=True))
            await_snapshot(agent)
        agent = FloeAgent("agent", settings)
        stack.callback(agent.stop)
        agent.start()
        asyncio.run(fill(agent.bootstrap, SLICES_AFTER, create=False))
        taken, memory = [], []
        for _ in range(ROUNDS):
            agent.kill()
            begun = time.perf_counter()
            agent.start()
            taken.append(time.perf_counter() - begun)
            assert status(agent)["partitions"] == TOPICS * PER_TOPIC
            memory.append(memory_mib(agent.pid))
    yield Figure(
        "10,000 partitions, from start to ready", statistics.median(taken), "s", goal=3, better="less"
    )
    yield Figure("10,000 partitions, agent memory", statistics.median(memory), "MiB", goal=300, better="less")
