"""A partition compacted through the log and read back as consumers do."""

from __future__ import annotations

from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build
from tests.unit.agent.admin_calls import create, topic
from tests.unit.agent.compaction_rig import NOW, compact, partition_of, read
from tests.unit.agent.rig import Agent
from tests.unit.agent.test_handlers_retention import send

DAY = 86_400_000


async def put(agent: Agent, name: str, *pairs: tuple[bytes, bytes | None]) -> None:
    """One batch of these records."""
    raw = build(
        [NewRecord(NOW - 1000 + n, key, value, [("h", b"x")]) for n, (key, value) in enumerate(pairs)]
    )
    assert (await send(agent, name, raw)).error_code == 0


async def test_a_tail_becomes_a_compacted_segment(agent: Agent, memory_store: MemoryStore) -> None:
    await create(agent, topic("c", cleanup_policy="compact"))
    await put(agent, "c", (b"a", b"1"), (b"b", b"1"))
    await put(agent, "c", (b"a", b"2"), (b"c", b"1"))
    done = await compact(agent, memory_store, "c")
    assert done is not None
    assert (done.swapped, done.cleaned_to, done.full) == (True, 4, False)
    partition = partition_of(agent, "c")
    assert partition.merged is not None
    assert (partition.merged.records, partition.merged.segments, partition.high_watermark) == (3, 1, 4)
    assert len(partition.slices) == 0
    found = await read(agent, "c")
    assert [(row.offset, row.key, row.value) for row in found] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (3, b"c", b"1"),
    ]
    assert [row.timestamp for row in found] == [NOW - 999, NOW - 1000, NOW - 999]
    assert {tuple(row.headers) for row in found} == {(("h", b"x"),)}
    assert await compact(agent, memory_store, "c") is None, "nothing is dirty any more"
