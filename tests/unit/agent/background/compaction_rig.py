"""Compactions of partitions of an agent without sockets, and what a consumer reads afterwards."""

from __future__ import annotations

from agent.background.rewriting.compaction.job import Compaction
from agent.background.rewriting.compaction.partition import Compacted, Parts
from agent.background.rewriting.compaction.sources import Sources
from agent.background.rewriting.compaction.worker import HelperWorker, Session
from agent.background.rewriting.decisions import Decisions
from agent.net.wire.generated import fetch as f
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock, ManualClock, SystemClock
from coordination.state.types import Partition
from objectstore.batch import Record, records
from objectstore.grace import Grace
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore
from tests.unit.agent.background.merging_rig import Inline
from tests.unit.agent.rig import Agent

NOW = 1_700_000_000_000
BYTES_MAX = 1 << 20


class InlineWorker(HelperWorker):
    """The helper's work without its process."""

    def __init__(self) -> None:
        super().__init__(Inline(Session()))


class At(ManualClock):
    """A clock that stands at `at_ms`, Unix ms, with real random bits."""

    def __init__(self, at_ms: int) -> None:
        super().__init__()
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms

    def random_bits(self, bits: int) -> int:
        return SystemClock().random_bits(bits)


def compaction(
    agent: Agent,
    store: ObjectStore,
    clock: Clock,
    *,
    segment_bytes: int = 1 << 20,
    worker: HelperWorker | None = None,
    dirty_bytes_min: int = 1,
) -> Compaction:
    """The job of one agent, due at any dirty byte."""
    services = agent.services
    reader = ChunkReader(store, 0, cold_bytes_max=0)
    parts = Parts(
        services.replica,
        store,
        services.merged,
        Sources(reader),
        worker or InlineWorker(),
        clock,
        bytes(16),
        Decisions(Grace(0, clock.now_ms, clock.monotonic)),
        segment_bytes,
        tables=False,
    )
    return Compaction(parts, Metrics(), dirty_bytes_min=dirty_bytes_min)


async def compact(
    agent: Agent, store: ObjectStore, topic: str, at_ms: int = NOW, **more: int
) -> Compacted | None:
    """One compaction of partition 0."""
    return await compaction(agent, store, At(at_ms), **more).compact(partition_of(agent, topic).handle)  # type: ignore[arg-type]  # sizes only


def partition_of(agent: Agent, topic: str, index: int = 0) -> Partition:
    """A partition in the agent's state."""
    return agent.services.replica.state.topics[topic].partitions[index]


async def read(
    agent: Agent, topic: str, start: int = 0, partition: int = 0, bytes_max: int = BYTES_MAX
) -> list[Record]:
    """What a consumer that fetches from `start` on gets, to the end: as clients do, batch by batch.

    A batch that ends below the offset asked for, or offsets that do not rise, are errors.
    """
    found: list[Record] = []
    offset = start
    while True:
        part = f.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        request = f.FetchRequest(
            max_wait_ms=0, max_bytes=bytes_max, topics=[f.FetchTopic(topic, partitions=[part])]
        )
        answer = (await agent.call("Fetch", request, 12)).responses[0].partitions[0]
        assert answer.error_code == 0, (answer.error_code, offset)
        raw = bytes(answer.records or b"")
        got = [row for row in records(raw) if row.offset >= offset] if raw else []
        if not got:
            assert offset >= answer.high_watermark, f"stuck at {offset} below {answer.high_watermark}"
            return found
        assert [row.offset for row in got] == sorted({row.offset for row in got})
        found += [row._replace(headers=list(row.headers)) for row in got]
        offset = got[-1].offset + 1
