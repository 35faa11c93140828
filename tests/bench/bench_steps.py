"""How long the event loop and apply stand still with a state that is large in one respect.

Each figure is CPU time of this thread, of the longest step between two moments at which others may run. The
states are smaller than the largest that are allowed; the last column of steps must not grow with them.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from google.protobuf.message import Message

from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import RequestHeader
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import describe_configs as dc
from agent.net.wire.generated import describe_log_dirs as dl
from agent.net.wire.generated import list_offsets as lo
from agent.net.wire.generated import offset_fetch as of
from coordination.commands import (
    AllocateProducerIds,
    BindSchema,
    CommitChunk,
    CreateTopic,
    DeleteTopic,
    RegisterAgent,
    SetFeatureLevel,
)
from coordination.memory_server import MemoryServer
from coordination.snapshot import decode_steps, encode, encode_steps
from coordination.state import State
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.freeze import freeze, freeze_now
from iceberg import ledger, metadata
from iceberg.committer import CommitterOptions
from iceberg.plan import plan
from objectstore.adapters.memory import MemoryStore
from objectstore.turns import Turns
from tests.bench.bench_apply import entry
from tests.bench.bench_state import longest
from tests.bench.figure import Figure
from tests.unit.agent.rig import start_agent

STEP_MS_GOAL = 5.0
PRODUCERS = 500_000
SCHEMAS = 50_000
PER_PARTITION = 60_000
PER_CHUNK = 10_000
TAIL = 16
SNAPSHOTS = 50


class Log:
    """Entries of one agent, applied as they are made."""

    def __init__(self) -> None:
        self.state, self._sequence, self._chunks = State(), 0, 0
        agent = RegisterAgent(name="bench", node_id=-1, feature_min=1, feature_max=FEATURE_LEVEL_MAX)
        self.apply(agent, SetFeatureLevel(level=FEATURE_LEVEL_MAX))

    def apply(self, *messages: Message) -> float:
        """CPU seconds that applying one entry took."""
        self._sequence += 1
        made = entry(self._sequence, list(messages))
        begun = time.thread_time()
        self.state.apply(made)
        return time.thread_time() - begun

    def producers(self, count: int, handle: int) -> None:
        """So many producers write one batch each to a partition."""
        for first in range(0, count, PER_CHUNK):
            self._chunks += 1
            ids = range(first, min(first + PER_CHUNK, count))
            size = len(ids)
            chunk = CommitChunk(
                number=self._chunks, size=1 << 30, first_position=64, partition=[handle] * size,
                length=[100] * size, offsets=[1] * size, max_timestamp_ms=[1_700_000_000_000] * size,
                producer_id=ids, producer_epoch=[0] * size, base_sequence=[0] * size,
            )  # fmt: skip
            self.apply(chunk)


def _step(name: str, seconds: float) -> Figure:
    return Figure(name, seconds * 1e3, "ms", goal=STEP_MS_GOAL, better="less")


def _best(work: Callable[[], Turns[Any]]) -> float:
    """CPU seconds of the longest step, the last included, in the best of three runs."""
    made: list[Any] = []  # kept: freeing it is another matter

    def whole() -> Iterator[None]:
        made.append((yield from work()))
        yield

    gc.disable()
    found = min(longest(whole())[1] for _ in range(3))
    gc.enable()
    return found


def producers(count: int = PRODUCERS) -> Iterator[Figure]:
    """Very many idempotent producers, on few partitions."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    log = Log()
    log.apply(CreateTopic(name="t", topic_id=bytes(16), partitions=-(-count // PER_PARTITION)))
    for handle, first in enumerate(range(0, count, PER_PARTITION)):
        log.producers(min(PER_PARTITION, count - first), handle)
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield Figure(f"{count:,} producers, memory of each", more * 1024 / count, "B")
    gc.disable()  # its stalls are another matter, and as large as what it looks at
    total, worst = longest(freeze(log.state))
    yield Figure(f"{count:,} producers, freezing, apply waits", total * 1e3, "ms")
    yield _step(f"{count:,} producers, freezing, the loop waits", worst)
    total, worst = longest(encode_steps(freeze_now(log.state)))
    yield Figure(f"{count:,} producers, encoding beside apply", total * 1e3, "ms")
    yield _step(f"{count:,} producers, encoding, the loop waits", worst)
    content = encode(log.state)
    yield Figure(f"{count:,} producers, snapshot of each", len(content) / count, "B")
    total, worst = longest(decode_steps(content))
    gc.enable()
    yield Figure(f"{count:,} producers, loading", total * 1e3, "ms")
    yield _step(f"{count:,} producers, loading, the loop waits", worst)


def schemas(count: int = SCHEMAS) -> Iterator[Figure]:
    """Deleting a topic with one schema, and binding another, among many schemas of others."""
    log = Log()
    log.apply(*[CreateTopic(name=n, topic_id=n.encode().ljust(16), partitions=1) for n in ("t", "o")])
    bind = BindSchema(topic="t", message="m", descriptor_set=b"d")
    log.apply(bind)
    for first in range(0, count, 1000):
        each = range(first, min(first + 1000, count))
        log.apply(*[BindSchema(topic="o", message="m", descriptor_set=b"%d" % n) for n in each])
    bind.descriptor_set = b"e"
    yield _step(f"BindSchema among {count:,} schemas", log.apply(bind))
    yield _step(f"DeleteTopic among {count:,} schemas", log.apply(DeleteTopic(name="t")))


def bindings(count: int = 10_000) -> Iterator[Figure]:
    """Binding a topic of many partitions anew, each with records of two bindings."""
    log = Log()
    log.apply(CreateTopic(name="t", topic_id=bytes(16), partitions=count))
    bind, took = BindSchema(topic="t", message="m"), []
    for number in range(4):
        bind.descriptor_set = b"%d" % number
        took.append(log.apply(bind))
        chunk = CommitChunk(
            number=number, size=1 << 30, first_position=64, partition=range(count), length=[100] * count,
            offsets=[1] * count, max_timestamp_ms=[1_700_000_000_000] * count,
            judged_revision=log.state.revision,
        )  # fmt: skip
        log.apply(chunk)
    yield _step(f"BindSchema of a topic of {count:,} partitions", min(took[2:]))


def topics() -> Iterator[Figure]:
    """Deleting a topic whose partitions have 16 slices each; later entries let go of most of them."""
    for count in (1_000, 10_000):
        log = Log()
        log.apply(CreateTopic(name="t", topic_id=bytes(16), partitions=count))
        for number in range(TAIL):
            size = 100
            for first in range(0, count, size):
                log.apply(CommitChunk(
                    number=number * count + first + 1, size=1 << 30, first_position=64,
                    partition=range(first, first + size), length=[100] * size, offsets=[1] * size,
                    max_timestamp_ms=[1_700_000_000_000] * size,
                ))  # fmt: skip
        gc.disable()
        yield _step(f"DeleteTopic of {count:,} partitions", log.apply(DeleteTopic(name="t")))
        after = []
        while log.state.leaving:
            after.append(log.apply(AllocateProducerIds(count=1)))
        yield _step(f"DeleteTopic of {count:,} partitions, each of {len(after)} entries after it", max(after))
        gc.enable()


def tables() -> Iterator[Figure]:
    """A commit of the table of a topic with very many partitions: its plan, and its metadata's JSON."""
    bounds = CommitterOptions().bounds
    for count, tail in ((1_000, 60), (10_000, 5)):
        log = Log()
        log.apply(CreateTopic(name="t", topic_id=bytes(16), partitions=count))
        for number in range(1, tail + 1):
            log.apply(CommitChunk(
                number=number, size=1 << 30, first_position=64, partition=range(count), length=[100] * count,
                offsets=[1] * count, max_timestamp_ms=[1_700_000_000_000] * count,
            ))  # fmt: skip
        topic = log.state.topics["t"]
        steps = partial(plan, topic.partitions, [], {}, bounds)
        yield _step(f"plan of {count:,} partitions with {tail} slices each", _best(steps))
    for count in (1_000, 10_000):
        added = [ledger.Range(number, 10**9, 10**9 + 1_000) for number in range(count)]
        summary = ledger.summary(bytes(16), [each.end for each in added], added, "bench")
        wide = {"format-version": 2, "snapshots": [{"summary": summary} for _ in range(SNAPSHOTS)]}
        content = metadata.encode(wide)
        made, read = partial(metadata.encode_steps, wide), partial(metadata.decode_steps, content)
        yield _step(f"metadata of {count:,} partitions, made", _best(made))
        yield _step(f"metadata of {count:,} partitions, read", _best(read))


class Steps:
    """The longest step of the event loop, CPU seconds, while it is watched."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Meanwhile every callback is measured."""
        name = "_run"  # where every callback comes by
        run = getattr(asyncio.Handle, name)

        def measured(handle: asyncio.Handle) -> None:
            begun = time.thread_time()
            run(handle)
            self.longest = max(self.longest, time.thread_time() - begun)

        self.longest = 0.0
        setattr(asyncio.Handle, name, measured)
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            setattr(asyncio.Handle, name, run)


async def answers() -> list[Figure]:
    """Large answers: the longest step from a request's decoding to its answer's bytes."""
    agent, found = await start_agent(MemoryServer(), MemoryStore()), []
    names, parts = [f"topic-{number:05}" for number in range(1_000)], list(range(10_000))
    await agent.call("CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic(n, 1, 1) for n in names]), 7)
    for number in range(5):
        await agent.call(
            "CreateTopics", ct.CreateTopicsRequest([ct.CreatableTopic(f"t{number}", 10_000, 1)]), 7
        )
    resources = [dc.DescribeConfigsResource(2, name, None) for name in names]
    ends = [
        lo.ListOffsetsTopic(f"t{number}", [lo.ListOffsetsPartition(index, -1, -1) for index in parts])
        for number in range(5)
    ]
    places = [of.OffsetFetchRequestTopics(f"t{number}", b"", parts) for number in range(5)]
    questions: list[tuple[str, str, Any, int]] = [
        (
            "DescribeConfigs of 1,000 topics",
            "DescribeConfigs",
            dc.DescribeConfigsRequest(resources, True, True),
            4,
        ),
        ("DescribeLogDirs of 50,000 partitions", "DescribeLogDirs", dl.DescribeLogDirsRequest(None), 4),
        ("ListOffsets of 50,000 partitions", "ListOffsets", lo.ListOffsetsRequest(-1, 0, ends), 7),
        (
            "OffsetFetch of 50,000 partitions",
            "OffsetFetch",
            of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("g", topics=places)]),
            8,
        ),
    ]
    for what, name, request, version in questions:
        api, steps = BY_NAME[name], Steps()
        body = memoryview(b"".join(api.codec().encode_request(request, version)))
        await asyncio.sleep(0.05)
        with steps.watched():
            header = RequestHeader(api.key, version, 1, "bench", 0)
            await asyncio.ensure_future(agent.dispatcher.answer(agent.client, header, body))
        found.append(_step(f"{what}, the loop waits", steps.longest))
    await agent.stop()
    return found


def figures() -> Iterable[Figure]:
    """All of them; the producers first, in a process that has used little memory."""
    yield from producers()
    yield from schemas()
    yield from bindings()
    yield from topics()
    yield from tables()
    yield from asyncio.run(answers())


if __name__ == "__main__":
    for one in producers(int(sys.argv[1])):
        print(one.line(), flush=True)
