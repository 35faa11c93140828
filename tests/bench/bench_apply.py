"""What applying one record batch costs: the budget of every agent for the whole cluster's traffic.

`python -m tests.bench.bench_apply` prints where the time goes: parsing alone, and cProfile's view.
"""

from __future__ import annotations

import cProfile
import gc
import statistics
import time
from collections.abc import Iterable, Sequence

from google.protobuf.message import Message

from coordination.commands import CommitChunk, CreateTopic, Entry, RegisterAgent, SetFeatureLevel, command
from coordination.log import LogEntry
from coordination.state import ChunkCommitted, State, chunks
from coordination.state.data import FEATURE_LEVEL_MAX
from tests.bench.figure import Figure
from tests.equipment.appending import appending

INCARNATION = 0x1234_5678_9ABC
PARTITIONS = 1000
PRODUCERS = 100
ROUNDS = 5
GOAL = 400_000  # slices per second on one core, …
GOAL_IDEMPOTENT = 1_000_000  # … and of idempotent producers, in chunks of 30, by the native walk


def entry(sequence: int, commands: Sequence[Message]) -> LogEntry:
    """An entry of the one author, its revision equal to its sequence."""
    message = Entry(
        format=1,
        incarnation=INCARNATION,
        sequence=sequence,
        proposed_ms=1_700_000_000_000 + sequence,
        applied_revision=sequence - 1,
        commands=[command(c) for c in commands],
    )
    return LogEntry(sequence, INCARNATION, sequence, message.SerializeToString())


def prepared() -> State:
    """A state with one live agent and the partitions."""
    state = State()
    agent = RegisterAgent(name="bench", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX)
    state.apply(entry(1, [agent, SetFeatureLevel(level=FEATURE_LEVEL_MAX)]))
    state.apply(entry(2, [CreateTopic(name="t", topic_id=bytes(16), partitions=PARTITIONS)]))
    return state


def load(entries: int, batches: int, idempotent: bool) -> list[LogEntry]:
    """Entries of `batches` batches, each on another partition, 10 records of 100 bytes a batch."""
    made = []
    sequences: dict[tuple[int, int], int] = {}
    for number in range(entries):
        chunk = CommitChunk(number=number, size=1 << 24, first_position=64)
        for handle in sorted((number * batches + i) * 7 % PARTITIONS for i in range(batches)):
            chunk.partition.append(handle)
            chunk.length.append(1000 + handle)
            chunk.offsets.append(10)
            chunk.max_timestamp_ms.append(1_700_000_000_000 + number)
            if idempotent:
                producer = handle % PRODUCERS
                sequence = sequences.get((producer, handle), 0)
                sequences[producer, handle] = sequence + 10
                chunk.producer_id.append(producer)
                chunk.producer_epoch.append(0)
                chunk.base_sequence.append(sequence)
        made.append(entry(3 + number, [chunk]))
    return made


def measure(batches: int, idempotent: bool) -> float:
    """Slices applied per CPU second of one core, median of the rounds, parsing included."""
    entries = load(120_000 // batches, batches, idempotent)
    rates = []
    for _ in range(ROUNDS):
        state = prepared()
        gc.collect()
        started = time.process_time()
        for one in entries:
            applied = state.apply(one)
        rates.append(len(entries) * batches / (time.process_time() - started))
        result = applied.results[0]
        if not isinstance(result, ChunkCommitted) or any(result.errors):
            raise SystemExit(f"the load was not accepted: {result}")
    return statistics.median(rates)


def profile() -> None:
    """Where the time goes."""
    entries = load(4000, 30, True)
    started = time.process_time()
    for one in entries:
        Entry.FromString(one.payload)
    parse = (time.process_time() - started) / (4000 * 30)
    print(f"parsing alone: {parse * 1e6:.3f} µs a slice")
    state = prepared()
    profiler = cProfile.Profile()
    profiler.enable()
    for one in entries:
        state.apply(one)
    profiler.disable()
    profiler.print_stats("tottime")


def figures() -> Iterable[Figure]:
    """Chunks of a few and of many batches, with and without idempotent producers."""
    for batches in (30, 200):
        for idempotent in (True, False):
            kind = "idempotent" if idempotent else "plain"
            rate = measure(batches, idempotent)
            goal = GOAL_IDEMPOTENT if idempotent and chunks.NATIVE else GOAL
            yield Figure(f"apply, chunks of {batches} batches, {kind}", rate, "slices/s/core", goal=goal)
    with appending(None):
        rate = measure(30, True)
    title = "apply, chunks of 30 batches, idempotent, without native code"
    yield Figure(title, rate, "slices/s/core", goal=GOAL)


if __name__ == "__main__":
    profile()
