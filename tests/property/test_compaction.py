"""Compaction against a dictionary: whatever is written and compacted, the newest of each key is read.

Through a real agent's log, state and store; read back by its Fetch. Times are a clock's that the test moves.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent.background.rewriting.compaction.choice import Rules
from agent.background.rewriting.compaction.partition import Compacted, PartitionCompaction
from coordination.commands import MoveLogStart, UndeleteRecords
from coordination.memory_server import MemoryServer
from coordination.state.types import Done, Partition
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, Record, build
from objectstore.compression import Compression
from tests.unit.agent.background.compaction_rig import NOW, At, compaction, partition_of, read
from tests.unit.agent.kafka.admin_calls import create, topic
from tests.unit.agent.kafka.test_handlers_retention import send
from tests.unit.agent.rig import Agent, start_agent

KEYS = [b"a", b"b", b"c", b"", b"a key that is hashed" * 2, b"another key that is hashed" * 2]
DAY_MS = 24 * 3_600_000
SEGMENT_BYTES = 700  # several segments in a test

RECORD = st.tuples(st.sampled_from(KEYS), st.booleans())  # a key, and whether it is a tombstone
STEP = st.one_of(
    st.tuples(st.just("write"), st.lists(RECORD, min_size=1, max_size=6), st.sampled_from(list(Compression))),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("compact"), st.integers(1, 8)),
    st.tuples(st.just("move start"), st.integers(0, 100)),
    st.tuples(st.just("bring back"), st.integers(0, 100)),
)


@dataclass
class Model:
    """What was written, by offset; which tombstones a compaction has seen, and when."""

    records: list[tuple[bytes, bytes | None, int]] = field(default_factory=list)
    seen: dict[int, int] = field(default_factory=dict)
    start: int = 0
    hidden: int = 0  # below it a tombstone may have gone unseen, while it was held

    def newest(self) -> dict[bytes, int]:
        """Key → newest offset, at or above the log start."""
        return {self.records[at][0]: at for at in range(self.start, len(self.records))}

    def judge(
        self, found: list[Record], before: list[Record], now_ms: int, retention_ms: int, compacted_to: int
    ) -> None:
        """Compare what is read with what was written and with what was read before."""
        newest = self.newest()
        offsets = [row.offset for row in found]
        assert offsets == sorted(set(offsets))
        for row in found:
            key, value, stamp = self.records[row.offset]
            assert (row.key, row.value, row.timestamp) == (key, value, stamp)
            assert row.headers == [("at", b"%d" % row.offset)]
        kept = set(offsets)
        for key, at in newest.items():
            value = self.records[at][1]
            if value is not None:
                assert at in kept, f"the newest record of {key!r}, offset {at}, is gone"
            elif at not in kept and (at >= self.hidden or at in self.seen):
                assert now_ms >= self.seen[at] + retention_ms, f"the tombstone at {at} went too early"
        for row in before:
            if row.offset >= compacted_to:
                assert row.offset in kept, f"offset {row.offset} lies behind what was compacted"
        for at in range(self.start, compacted_to):
            last = at == compacted_to - 1
            assert last or at not in kept or newest_below(self.records, at, compacted_to), (
                "superseded, yet there"
            )


def newest_below(records: list[tuple[bytes, bytes | None, int]], at: int, end: int) -> bool:
    """Whether no record behind `at` and below `end` has its key."""
    return all(records[later][0] != records[at][0] for later in range(at + 1, end))


async def brought_back(agent: Agent, model: Model, share: int) -> None:
    """Move the log start back, by this share (percent) of what is held."""
    partition = partition_of(agent, "c")
    model.start -= (model.start - partition.held_start) * share // 100
    message = UndeleteRecords(partition=[partition.handle], offset=[model.start])
    assert await agent.services.replica.propose(message) == Done((model.start,))


async def story(steps: list[tuple[Any, ...]], lag_ms: int, retention_ms: int, *, grace: bool) -> None:
    """Play the steps on one agent."""
    store = MemoryStore()
    agent = await start_agent(MemoryServer(), store)
    try:
        await create(agent, topic("c", cleanup_policy="compact", floe_records_grace_ms=str(grace * DAY_MS)))
        clock, model = At(NOW), Model()
        for name, *given_ in steps:
            if name == "write":
                await write(agent, model, given_[0], given_[1], clock.at_ms)
            elif name == "wait":
                clock.at_ms += given_[0]
            elif name == "move start":
                model.start = max(model.start, min(len(model.records), given_[0]))
                handle = partition_of(agent, "c").handle
                await agent.services.replica.propose(MoveLogStart(partition=[handle], offset=[model.start]))
                model.hidden = max(model.hidden, model.start)
            elif name == "bring back":
                await brought_back(agent, model, given_[0])
            else:
                await compacted(
                    agent, store, clock, model, Rules(0, 1, lag_ms, 1 << 60, retention_ms), given_[0]
                )
        assert partition_of(agent, "c").high_watermark == len(model.records)
    finally:
        await agent.stop()


async def write(
    agent: Agent, model: Model, pairs: list[tuple[bytes, bool]], codec: Compression, now_ms: int
) -> None:
    """One batch."""
    base = len(model.records)
    rows = [
        NewRecord(now_ms, key, None if tombstone else b"value %d" % (base + n), [("at", b"%d" % (base + n))])
        for n, (key, tombstone) in enumerate(pairs)
    ]
    answer = await send(agent, "c", build(rows, compression=codec))
    assert (answer.error_code, answer.base_offset) == (0, base)
    model.records += [(row.key or b"", row.value, now_ms) for row in rows]


async def compacted(
    agent: Agent, store: MemoryStore, clock: At, model: Model, rules: Rules, keys_max: int
) -> None:
    """One compaction, judged."""
    before = await read(agent, "c", model.start)
    partition = partition_of(agent, "c")
    done = await run(agent, store, clock, partition, rules, keys_max)
    found = await read(agent, "c", model.start)
    if done is None:
        assert found == before
        return
    assert done.swapped
    if rules.lag_ms_min:
        assert all(
            stamp <= clock.at_ms - rules.lag_ms_min for _, _, stamp in model.records[: done.cleaned_to]
        )
    model.judge(found, before, clock.at_ms, rules.delete_retention_ms, done.cleaned_to)
    for row in found:
        if row.value is None and row.offset < done.cleaned_to:
            model.seen.setdefault(row.offset, clock.at_ms)
    merged = partition.merged
    assert merged is not None
    assert merged.first_dirty_offset == done.cleaned_to
    assert merged.start_offset <= max(model.start, 0)


async def run(
    agent: Agent, store: MemoryStore, clock: At, partition: Partition, rules: Rules, keys_max: int
) -> Compacted | None:
    """One compaction of the partition."""
    parts = compaction(agent, store, clock, segment_bytes=SEGMENT_BYTES)._parts
    incarnation = agent.services.replica.incarnation
    return await PartitionCompaction(parts, partition, rules, incarnation, keys_max).run()


ALL_GONE = [  # nothing stays of the only segment
    ("write", [(b"a", False)], Compression.NONE),
    ("write", [(b"a", False)], Compression.NONE),
    ("compact", 1),
]


WRITES_B = ("write", [(b"b", False)], Compression.NONE)
FORGOTTEN = [  # the tombstone of a record that is held goes: it must have taken that with it
    ("write", [(b"a", False)], Compression.NONE),
    ("compact", 8),
    ("write", [(b"a", True)], Compression.NONE),
    WRITES_B,
    ("move start", 1),
    *[each for _ in range(3) for each in (WRITES_B, ("compact", 8), ("wait", 30))],
    ("bring back", 100),
    WRITES_B,
]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(STEP, max_size=25), st.sampled_from([0, 30]), st.sampled_from([0, 20, 1000]), st.booleans())
@example(ALL_GONE, 0, 0, False)
@example(FORGOTTEN, 0, 20, True)
def test_the_newest_record_of_every_key_is_read(
    steps: list[tuple[Any, ...]], lag_ms: int, retention_ms: int, grace: bool
) -> None:
    asyncio.run(story([*steps, ("compact", 8)], lag_ms, retention_ms, grace=grace))
