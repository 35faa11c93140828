"""What many partitions cost an agent: memory of the state, time to freeze, to write and to load a snapshot.

One fresh process per size and step. Every partition has 20 slices and one producer; topics have 10
partitions. The log is in memory: tests/bench/bench_start.py has the whole agent over etcd and MinIO.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from coordination.clock import SystemClock
from coordination.commands import CommitChunk, CreateTopic, RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica
from coordination.snapshot import decode_steps, encode, encode_steps
from coordination.snapshot_keeper import MIDDLE_GENERATION
from coordination.state import State
from coordination.state.freeze import freeze, freeze_now
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import snapshot_key
from tests.bench.bench_apply import INCARNATION, entry
from tests.bench.figure import Figure

SIZES = (10_000, 100_000, 200_000)
GOALS = {
    ("memory of a replica alone", 10_000): 300.0,
    ("replica's start", 10_000): 3.0,
    ("memory of a replica alone", 100_000): 1024.0,
    ("memory of a replica alone", 200_000): 1024.0,
    ("replica's start", 200_000): 10.0,
    ("freezing, the loop waits", 200_000): 10.0,
}
SLICES, PER_TOPIC, PER_CHUNK = 20, 10, 1000


def build(partitions: int) -> State:
    """A state of this many partitions, with slices and producers."""
    state = State()
    sequence = 1
    state.apply(entry(sequence, [RegisterAgent(name="bench", node_id=-1, feature_min=1, feature_max=1)]))
    for number in range(partitions // PER_TOPIC):
        sequence += 1
        create = CreateTopic(name=f"topic-{number:06}", topic_id=b"%016d" % number, partitions=PER_TOPIC)
        state.apply(entry(sequence, [create]))
    number = 0
    for turn in range(SLICES):
        for first in range(0, partitions, PER_CHUNK):
            number, sequence = number + 1, sequence + 1
            handles = range(first, min(first + PER_CHUNK, partitions))
            size = len(handles)
            chunk = CommitChunk(
                number=number, size=1 << 24, first_position=64, partition=handles, length=[1000] * size,
                offsets=[10] * size, max_timestamp_ms=[1_700_000_000_000] * size,
                producer_id=[h % 100 for h in handles], producer_epoch=[0] * size,
                base_sequence=[10 * turn] * size,
            )  # fmt: skip
            state.apply(entry(sequence, [chunk]))
    return state


def figure(name: str, size: int, value: float, unit: str) -> None:
    """Tell the parent process one figure."""
    goal = GOALS.get((name, size))
    print(Figure(f"{size:,} partitions, {name}", value, unit, goal=goal, better="less").line(), flush=True)


def longest(steps: Iterable[object]) -> tuple[float, float]:
    """CPU seconds in all, and of the longest step, of an iterator."""
    begun = last = time.thread_time()
    worst = 0.0
    for _ in steps:
        now = time.thread_time()
        worst, last = max(worst, now - last), now
    return time.thread_time() - begun, worst


def _looked_at(steps: Iterable[object]) -> Iterator[object]:
    """As an agent notes: the collector looks at each slice before the next (coordination/snapshot_keeper)."""
    for each in steps:
        gc.collect(MIDDLE_GENERATION)
        yield each


def write(size: int, path: str) -> None:
    """Build, measure freezing and encoding, leave the snapshot in `path`."""
    state = build(size)
    gc.freeze()  # as an agent does once it has loaded
    total, worst = longest(_looked_at(freeze(state)))
    figure("freezing, apply waits", size, total, "s")
    figure("freezing, the loop waits", size, worst * 1e3, "ms")
    total, worst = longest(encode_steps(freeze_now(state)))
    figure("encoding beside apply", size, total, "s")
    figure("encoding, the loop waits", size, worst * 1e3, "ms")
    content = encode(state)
    figure("snapshot", size, len(content) / 2**20, "MiB")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_bytes(content)


def load(size: int, path: str) -> None:
    """Start an agent from the snapshot in a fresh process."""
    content = Path(path).read_bytes()
    gc.disable()  # as an agent does while it loads
    _, worst = longest(decode_steps(content))
    figure("decoding, the loop waits", size, worst * 1e3, "ms")


async def start(size: int, content: bytes) -> None:
    """Start a replica from the snapshot: from nothing to registered and ready."""
    server, store, clock = MemoryServer(), MemoryStore(), SystemClock()
    revision = 1 + size // PER_TOPIC + SLICES * -(-size // PER_CHUNK)  # the entries of build()
    server._state.revision, server._state.trimmed = 1 << 40, revision  # a log that has gone on
    await store.put(snapshot_key(revision, INCARNATION), [content])
    del content
    begun, cpu = time.perf_counter(), time.process_time()
    replica = Replica(MemoryLog(server, clock), store, clock)
    await replica.start(RegisterAgent(name="new", node_id=-1, feature_min=1, feature_max=1))
    figure("replica's start", size, time.perf_counter() - begun, "s")
    figure("replica's start: CPU", size, time.process_time() - cpu, "s")
    figure(
        "memory of a replica alone", size, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MiB"
    )
    await replica.stop()


def figures() -> Iterable[Figure]:
    """Each size in processes of its own."""
    for size in SIZES:
        path = f"build/bench/state-{size}.snap"
        for step in ("write", "load", "start"):
            command = [sys.executable, "-m", "tests.bench.bench_state", step, str(size), path]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            yield from map(Figure.read, done.stdout.splitlines())


def step_of(step: str, size: int, path: str) -> None:
    """One step, in a process of its own."""
    if step == "write":
        write(size, path)
    elif step == "load":
        load(size, path)
    else:
        asyncio.run(start(size, Path(path).read_bytes()))


if __name__ == "__main__":
    step_of(sys.argv[1], int(sys.argv[2]), sys.argv[3])
