"""What 50,000 registered schemas cost an agent: memory, a replica's start, and the path of records.

Each step in a process of its own, the log in memory. Every version is a schema of its own, of some 20 fields.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from coordination.clock import SystemClock
from coordination.commands import CommitChunk, RegisterAgent, RegisterSchema
from coordination.log import LogEntry
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica
from coordination.snapshot import encode
from coordination.state import State
from coordination.state.data import FEATURE_LEVEL_MAX
from objectstore.adapters.memory import MemoryStore
from objectstore.naming import snapshot_key
from tests.bench.bench_apply import INCARNATION, entry, prepared
from tests.bench.figure import ROUNDS, Figure

VERSIONS, PER_SUBJECT, FIELDS = 50_000, 5, 20
CHUNKS, SLICES = 200, 500  # of a round of the records' path
MEMORY_GOAL_MIB = 200.0
SNAPSHOT = "build/bench/registry.snap"
STEPS = ("write", "empty", "start", "records")
NAME = "50,000 schema versions"


def schema(number: int) -> RegisterSchema:
    """One version, with the text and the canonical form that such a schema has."""
    file = FileDescriptorProto(package="shop.orders", syntax="proto3")
    message = file.message_type.add(name=f"Order{number}")
    lines = []
    for tag in range(1, FIELDS + 1):
        message.field.add(name=f"field_{tag}", number=tag, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
        lines.append(f"  string field_{tag} = {tag};\n")
    text = f'syntax = "proto3";\npackage shop.orders;\nmessage Order{number} {{\n{"".join(lines)}}}\n'
    subject = f"shop.orders-{number // PER_SUBJECT}-value"
    canonical = file.SerializeToString()
    return RegisterSchema(
        subject=subject, schema_type="PROTOBUF", text=text, canonical=canonical, judged_revision=1 << 40
    )


def build(versions: int) -> State:
    """A state with one agent, a topic of many partitions, and these schemas."""
    state = prepared()
    for number in range(versions):
        state.apply(entry(state.revision + 1, [schema(number)]))
    assert len(state.subjects.schemas) == versions
    return state


def tell(name: str, value: float, unit: str, goal: float | None = None) -> None:
    """Tell the parent process one figure."""
    print(Figure(f"{NAME}, {name}", value, unit, goal=goal, better="less").line(), flush=True)


def resident_mib() -> float:
    """The most that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write(versions: int) -> None:
    """Leave a snapshot."""
    content = encode(build(versions))
    if versions:
        tell("snapshot", len(content) / 2**20, "MiB")
    Path(SNAPSHOT).parent.mkdir(parents=True, exist_ok=True)
    Path(f"{SNAPSHOT}.{versions}").write_bytes(content)


def left(versions: int) -> bytes:
    """The snapshot that `write` left."""
    return Path(f"{SNAPSHOT}.{versions}").read_bytes()


async def start(versions: int, content: bytes) -> tuple[float, float]:
    """Seconds of a replica's start from the snapshot, and MiB of the process afterwards."""
    server, store, clock = MemoryServer(), MemoryStore(), SystemClock()
    revision = 2 + versions  # the entries of build()
    server._state.revision, server._state.trimmed = 1 << 40, revision  # a log that has gone on
    await store.put(snapshot_key(revision, INCARNATION), [content])
    del content
    begun = time.perf_counter()
    replica = Replica(MemoryLog(server, clock), store, clock)
    await replica.start(RegisterAgent(name="new", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX))
    seconds = time.perf_counter() - begun
    assert len(replica.state.subjects.schemas) == versions
    await replica.stop()
    return seconds, resident_mib()


def records(state: State, first: int) -> float:
    """CPU seconds of applying entries of records."""
    entries: list[LogEntry] = []
    for number in range(first, first + CHUNKS):
        chunk = CommitChunk(
            number=number, size=1 << 24, first_position=64, partition=range(SLICES), length=[1000] * SLICES,
            offsets=[10] * SLICES, max_timestamp_ms=[1_700_000_000_000] * SLICES,
            producer_id=[-1] * SLICES, producer_epoch=[-1] * SLICES, base_sequence=[-1] * SLICES,
        )  # fmt: skip
        entries.append(entry(state.revision + 1 + len(entries), [chunk]))
    begun = time.process_time()
    for each in entries:
        state.apply(each)
    return time.process_time() - begun


def path_of_records() -> None:
    """Slices applied per second, with the schemas and without, in turns."""
    states = {0: build(0), VERSIONS: build(VERSIONS)}
    rates: dict[int, list[float]] = {versions: [] for versions in states}
    for turn in range(ROUNDS):
        for versions, state in states.items():
            rates[versions].append(CHUNKS * SLICES / records(state, 1 + turn * CHUNKS))
    without, beside = (statistics.median(rates[each]) for each in (0, VERSIONS))
    name = f"{NAME}, slices of records applied"
    print(Figure(name, beside, "slices/s", "without schemas", without, goal=0.9).line(), flush=True)


def figures() -> Iterable[Figure]:
    """Each step in a process of its own."""
    for step in STEPS:
        command = [sys.executable, "-m", "tests.bench.bench_registry_state", step]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        yield from map(Figure.read, done.stdout.splitlines())


def step_of(step: str) -> None:
    """One step."""
    if step == "write":
        write(0)
        write(VERSIONS)
    elif step == "empty":  # what the process has without any
        Path(f"{SNAPSHOT}.empty").write_text(str(asyncio.run(start(0, left(0)))[1]))
    elif step == "start":
        seconds, mib = asyncio.run(start(VERSIONS, left(VERSIONS)))
        tell("replica's start", seconds, "s")
        tell("state", mib - float(Path(f"{SNAPSHOT}.empty").read_text()), "MiB", MEMORY_GOAL_MIB)
    else:
        path_of_records()


if __name__ == "__main__":
    step_of(sys.argv[1])
