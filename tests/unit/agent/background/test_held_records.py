"""Records that are held, over a real agent and store: merged with the rest, read again, let go of in time."""

from __future__ import annotations

import asyncio

from agent.background.expiry.records import RecordsPurge
from coordination.commands import Claim, MoveLogStart, PurgeRecords, UndeleteRecords
from coordination.kafka_codes import Code
from coordination.state import held
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from tests.unit.agent.background.merging_rig import merge_rows, partition_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import (
    NOW,
    create,
    fetch,
    offsets,
    produce,
    values,
)
from tests.unit.agent.rig import Agent, batch

TRIES_MAX = 600


async def made(agent: Agent, count: int = 8, grace_ms: int = 3_600_000) -> None:
    """Topic `t` with so many records, in rows of their own. The first has the highest timestamp."""
    await create(agent, partitions=1, floe_records_grace_ms=str(grace_ms))
    await written(agent, range(count))


async def written(agent: Agent, numbers: range) -> None:
    for number in numbers:
        at = NOW + (number or 100)
        assert (await produce(agent, batch(b"%d" % number, timestamp=at))).error_code == 0


async def move(agent: Agent, offset: int) -> None:
    await agent.services.replica.propose(MoveLogStart(partition=[0], offset=[offset]))


async def bring_back(agent: Agent, offset: int = held.ALL) -> None:
    message = UndeleteRecords(partition=[0], offset=[offset])
    assert isinstance(await agent.services.replica.propose(message), Done)


async def read(agent: Agent, offset: int = 0) -> list[bytes | None]:
    """All that is there from the offset on."""
    found: list[bytes | None] = []
    while offset < partition_of(agent).high_watermark:
        answer = await fetch(agent, offset)
        assert answer.error_code == Code.NONE
        found += values(answer)
        offset += len(values(answer))
    return found


async def test_merging_goes_over_what_is_held_as_over_the_rest(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await made(agent)
    assert (await merge_rows(agent, memory_store, 2)).swapped
    await move(agent, 5)
    for rows in (2, 2, 1):
        assert (await merge_rows(agent, memory_store, rows)).swapped, "nothing stands in its way"
    merged = partition_of(agent).merged
    assert merged is not None
    assert (merged.start_offset, merged.end_offset, merged.records) == (0, 7, 7)
    await bring_back(agent, 1)
    assert await read(agent, 1) == [b"%d" % number for number in range(1, 8)]
    await bring_back(agent)
    assert await read(agent) == [b"%d" % number for number in range(8)]


async def test_what_is_purged_leaves_the_manifest_with_the_next_merge(
    agent: Agent, memory_store: MemoryStore
) -> None:
    await made(agent)
    for _ in range(3):
        await merge_rows(agent, memory_store, 2)
    await move(agent, 5)
    await agent.services.replica.propose(PurgeRecords(partition=[0], offset=[4]))
    assert (await merge_rows(agent, memory_store, 2)).swapped
    merged = partition_of(agent).merged
    assert merged is not None
    assert (merged.start_offset, merged.records) == (4, 4)
    await bring_back(agent)
    assert await read(agent, 4) == [b"4", b"5", b"6", b"7"]


async def test_times_are_of_what_can_be_read(agent: Agent, memory_store: MemoryStore) -> None:
    await made(agent)
    for merged_rows in (0, 4, 4):
        if merged_rows:
            await merge_rows(agent, memory_store, merged_rows)
        assert await offsets(agent, NOW + 100, -3) == [(0, 0, NOW + 100), (0, 0, NOW + 100)]
        await move(agent, 6)
        assert await offsets(agent, NOW, NOW + 7, NOW + 100, -3, -2) == [
            (0, 6, NOW + 6),
            (0, 7, NOW + 7),
            (0, -1, -1),
            (0, 7, NOW + 7),
            (0, 6, -1),
        ]
        await bring_back(agent)


async def test_the_job_lets_go_of_what_is_over_and_of_nothing_else(agent: Agent) -> None:
    await made(agent, grace_ms=1)
    replica = agent.services.replica
    await create(agent, "other", 1, floe_records_grace_ms="3600000")
    other = replica.state.topics["other"].partitions[0]
    assert (await produce(agent, batch(b"x"), name="other", topic_id=other.topic.topic_id)).error_code == 0
    await replica.propose(MoveLogStart(partition=[0, other.handle], offset=[3, 1]))
    assert set(replica.state.holding) == {0, other.handle}
    await replica.propose(Claim(name=RecordsPurge.claim))
    job = RecordsPurge(replica, agent.services.clock)
    claimed = job.held()
    assert claimed is not None
    for _ in range(TRIES_MAX):
        await job.step(claimed)
        if 0 not in replica.state.holding:
            break
        await asyncio.sleep(0.01)
        await replica.propose(MoveLogStart(partition=[0], offset=[0]))  # the log's clock goes by entries
    assert (partition_of(agent).held_start, other.held_start) == (3, 0)
    assert len(partition_of(agent).slices) == 5
