"""Appends, merges, log-start moves, collection and fetches in any order, over a store that fails and lies.

The model is a list of batches per partition. What a consumer is given begins with the batch that holds its
offset and goes on without a gap (rule 7); OFFSET_OUT_OF_RANGE is said only of what is out of range; whatever
the store does, an error is an error and never an empty answer where there are records. Collection has no
grace here, so that readers meet objects that are gone all the time (rule 9). Where records have one
(floe.records.grace.ms), they are brought back as often as they are deleted, and must be what they were.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agent.background.collection import make_collector, make_merged_collector
from agent.background.rewriting.merging.merge import Parts
from agent.background.rewriting.worker import Corrupt
from coordination.commands import MoveLogStart, PurgeRecords, UndeleteRecords
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.memory_server import MemoryServer
from coordination.state import held
from coordination.state.types import Done
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek, records, split
from objectstore.faulty import Dice, FaultRates, FaultyStore
from objectstore.merged import MergedRanges
from objectstore.retry import RetryingStore, RetryPolicy
from objectstore.store import StoreError
from tests.unit.agent.background.merging_rig import EAGER, merge_rows, partition_of, parts_of
from tests.unit.agent.kafka.test_handlers_produce_fetch import NOW, create, fetch, offsets, produce
from tests.unit.agent.rig import Agent, batch, start_agent

RATES = FaultRates(refused=0.1, lost_answer=0.05, truncated=0.05, corrupt=0.03, slow=0.1, slow_s_max=0.002)
PATIENT = RetryPolicy(tries_max=5, wait_s_first=0.0005, wait_s_max=0.002)
ROUNDS = 60
GOOD_MIN = 30


@dataclass
class Model:
    """What was acknowledged: (base offset, values, timestamp) per batch; the log start as last moved."""

    batches: list[tuple[int, list[bytes], int]] = field(default_factory=list)
    on_the_way: list[tuple[int, list[bytes], int]] = field(default_factory=list)
    end: int = 0
    start: int = 0
    starts: list[int] = field(default_factory=lambda: [0])  # what it has been, each before it is asked for
    asked_start: int = 0  # of a move that may not have been answered yet
    good: int = 0
    failed: int = 0
    merged: int = 0
    back: int = 0


class Play:
    """Two agents on one failing store, one partition."""

    def __init__(self, seed: int, agents: list[Agent], store: RetryingStore) -> None:
        self.dice = Dice(seed)
        self.agents = agents
        self.store = store
        self.model = Model()
        self.writing = asyncio.Lock()
        self.moving = asyncio.Lock()

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        return int(self.dice.random() * limit)

    async def write(self) -> None:
        """One batch, in the model once it is acknowledged."""
        model = self.model
        async with self.writing:
            values = [b"%d-%d" % (model.end, n) for n in range(1 + self.below(4))]
            at = NOW + 10 * len(model.batches)
            model.on_the_way = [(model.end, values, at)]
            answer = await produce(self.agents[self.below(2)], batch(*values, timestamp=at))
            if answer.error_code == Code.NONE:
                assert answer.base_offset == model.end
                model.batches.append((model.end, values, at))
                model.end += len(values)
            model.on_the_way = []

    async def merge(self) -> None:
        """Some of the oldest rows, into segments of one size or another; two agents may do it at once."""
        agent = self.agents[self.below(2)]
        rules = replace(EAGER, segment_bytes=(300, 2_000, 1 << 20)[self.below(3)])
        parts: Parts = parts_of(agent, self.store, rules)
        try:
            done = await merge_rows(agent, self.store, 1 + self.below(6), parts=parts)
        except (StoreError, Corrupt, LogError):
            self.model.failed += 1
        else:
            self.model.merged += len(done.swapped)

    async def move_start(self) -> None:
        """Records are deleted from the front."""
        model = self.model
        if self.below(4):
            return
        async with self.moving:
            offset = model.start + self.below(max(1, (model.end - model.start) // 2))
            model.asked_start = max(model.asked_start, offset)
            await self.agents[self.below(2)].services.replica.propose(
                MoveLogStart(partition=[0], offset=[offset])
            )
            model.start = max(model.start, offset)

    async def bring_back(self) -> None:
        """Deleted records come back, from any that is held on, or some of them go for good."""
        model, replica = self.model, self.agents[self.below(2)].services.replica
        async with self.moving:
            first = partition_of(self.agents[0]).held_start
            offset = first + self.below(model.start - first + 1)
            if not self.below(8):
                done = await replica.propose(PurgeRecords(partition=[0], offset=[offset]))
                assert done == Done(offset - first)
                return
            model.start = offset
            model.starts.append(offset)
            done = await replica.propose(UndeleteRecords(partition=[0], offset=[offset]))
            assert done == Done((offset,))
            model.back += 1

    def lowest(self, since: int, before: int) -> int:
        """The lowest log start while something was asked: it was `before`, and `since` so many had been."""
        return min([before, *self.model.starts[since:]])

    async def collect(self) -> None:
        """Everything that nothing refers to goes at once."""
        agent = self.agents[self.below(2)]
        replica, clock = agent.services.replica, agent.services.clock
        try:
            report = await make_collector(replica, self.store, clock, 0).run()
            ranges = MergedRanges(self.store)
            await make_merged_collector(replica, self.store, ranges, clock, 0).run(report)
        except (StoreError, LogError):
            self.model.failed += 1

    async def read(self) -> None:
        """A fetch at any offset, with any limit, on any agent."""
        model = self.model
        agent = self.agents[self.below(2)]
        since, before, end = len(model.starts), model.start, model.end
        offset = self.below(model.end + 2)
        answer = await fetch(agent, offset, bytes_max=(1, 300, 1 << 20)[self.below(3)])
        if answer.error_code == Code.OFFSET_OUT_OF_RANGE:
            assert offset < model.asked_start or offset > end
            return
        if answer.error_code != Code.NONE:
            # Two reads of one place may both come back flipped: damage, as far as anybody can tell.
            assert answer.error_code in (Code.KAFKA_STORAGE_ERROR, Code.CORRUPT_MESSAGE)
            model.failed += 1
            return
        assert self.lowest(since, before) <= offset
        if not answer.records or not len(answer.records):
            assert offset >= end, f"nothing at {offset} where {end} were acknowledged"
            return
        self.follows(offset, answer.records)
        model.good += 1

    def follows(self, offset: int, found: memoryview) -> None:
        """The batches are those of the model from the one that holds the offset on."""
        batches = self.model.batches + self.model.on_the_way
        first = next(n for n, (base, values, _) in enumerate(batches) if base + len(values) > offset)
        for number, (position, size) in enumerate(split(found)):
            base, values, _ = batches[first + number]
            piece = found[position : position + size]
            assert peek(piece).base_offset == base
            assert [record.value for record in records(piece)] == values

    async def ask_time(self) -> None:
        """The first offset at or after a batch's time is the batch's first, or the log start behind it."""
        batches = list(self.model.batches)
        if not batches:
            return
        base, _, at = batches[self.below(len(batches))]
        since, before = len(self.model.starts), self.model.start
        agent = self.agents[self.below(2)]
        ((code, offset, _),) = await offsets(agent, at)
        if code != Code.NONE:
            assert code == Code.KAFKA_STORAGE_ERROR
            return
        # Times of damaged records are not known: the answer is the first of them then, which may be earlier.
        damaged = [range(r.start, r.end) for r in agent.services.damages.ranges(agent.services.replica.state)]
        assert max(base, self.lowest(since, before)) <= offset or any(offset in each for each in damaged)
        assert offset <= max(base, self.model.asked_start)


@pytest.mark.parametrize(
    ("seed", "grace"), [*((seed, False) for seed in range(8)), *((seed, True) for seed in range(8, 14))]
)
@pytest.mark.timeout(120)
async def test_what_is_read_is_what_was_written(seed: int, grace: bool) -> None:
    memory = MemoryStore()
    faulty = FaultyStore(memory, seed, RATES)
    store = RetryingStore(faulty, PATIENT)
    server = MemoryServer()
    caches = {"cache_bytes_max": 2048, "cold_cache_bytes_max": 1024, "index_cache_bytes_max": 4096}
    small: Any = {"fetch": caches}
    agents = [await start_agent(server, store, name, **small) for name in ("a", "b")]
    try:
        play = Play(seed, agents, store)
        await create(agents[0], partitions=1, floe_records_grace_ms=str(3_600_000 * grace))
        await agents[1].services.replica.barrier()
        for _ in range(5):
            await play.write()
        more = (play.move_start, play.bring_back, play.bring_back) if grace else ()
        steps = (play.write, play.write, play.merge, play.merge, play.move_start, play.collect, *more)

        async def change() -> None:
            for _ in range(ROUNDS):
                await steps[play.below(len(steps))]()

        async def look() -> None:
            for _ in range(ROUNDS):
                await (play.ask_time if not play.below(4) else play.read)()
                await asyncio.sleep(0)

        await asyncio.gather(change(), change(), look(), look(), look())
        faulty.rates = FaultRates()
        await play.collect()
        for agent in agents:
            await agent.services.replica.barrier()
            await reads_all(play, agent)
        assert play.model.good >= GOOD_MIN
        assert play.model.merged > 0
        if grace:
            await comes_back(play)
        assert partition_of(agents[0]).high_watermark == play.model.end
    finally:
        for agent in agents:
            await agent.stop()


async def reads_all(play: Play, agent: Agent) -> None:
    """A consumer from the log start to the end gets every batch."""
    offset = play.model.start
    while offset < play.model.end:
        answer = await fetch(agent, offset, bytes_max=500)
        assert answer.error_code == Code.NONE
        assert len(answer.records) > 0, f"stuck at {offset} of {play.model.end}"
        play.follows(offset, answer.records)
        last = [peek(answer.records, position) for position, _ in split(answer.records)][-1]
        offset = last.base_offset + last.last_offset_delta + 1


async def comes_back(play: Play) -> None:
    """Everything that is held is read again, on either agent."""
    assert play.model.back > 0
    replica = play.agents[0].services.replica
    done = await replica.propose(UndeleteRecords(partition=[0], offset=[held.ALL]))
    assert isinstance(done, Done)
    play.model.start = partition_of(play.agents[0]).log_start
    for agent in play.agents:
        await agent.services.replica.barrier()
        await reads_all(play, agent)
