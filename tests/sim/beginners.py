"""Producers that begin while their topic is bound anew, beside batches of another topic in the same chunks.

A chunk says one revision by which all that is in it was judged, the oldest. A batch of another topic, looked
at before this one was bound, would have a sound batch refused that a producer began with, and the next,
in the next chunk, taken: it had overtaken. So each producer here is new, no partition knows it, and its
batches come one by one, several under way. It takes a log that is far away, as what is behind a refused chunk
goes on only where it is on its way already, and agents that gather longer than elsewhere here (settings.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count, pairwise

from aiokafka import TopicPartition

from agent.net.wire.generated.create_topics import CreatableTopic
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.commands import BindSchema
from objectstore.batch import NewRecord, build
from objectstore.merged import MergedRanges
from objectstore.reader import ChunkReader
from objectstore.store import ObjectStore
from tests.checker.findings import Finding
from tests.sim.audit import CACHE_BYTES, Readers
from tests.sim.bindings import connected, make_topic
from tests.sim.bound_messages import F, Field, Message, Written
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.node import AgentNode
from tests.sim.pipeliner import ANSWER_S_MAX, BURST_S_MAX, ERRORS, PRODUCE_MS, VERSION, Batch, Pipeliner

BEGUN, BESIDE = "begun", "beside"
PARTITIONS = 2
PRODUCERS, OTHERS = 12, 4
MESSAGES = (
    Message("begun.M", (Field(1, "number", F.TYPE_INT64),)),
    Message("begun.M", (Field(1, "number", F.TYPE_INT64), Field(2, "more", F.TYPE_STRING))),
)
"""Both describe the same records."""
BATCHES_MAX = 5
BETWEEN_S, BESIDE_S, BOUND_S = 0.015, 0.006, 0.3
"""On average between two batches of a producer, two of a writer of the other topic, and two bindings."""


class Begun:
    """What was written to the topic: numbers by partition, in the order of their producer."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, list[list[int]]] = {each: [] for each in range(PARTITIONS)}
        self.numbers = count()

    async def judged(self, agent: AgentNode, objects: ObjectStore) -> list[Finding]:
        """Every burst is there once, in its order, and nothing twice."""
        assert agent.app is not None, "healed before it is judged"
        topic = agent.app.replica.state.topics.get(BEGUN)
        readers = Readers(MergedRanges(objects), ChunkReader(objects, CACHE_BYTES))
        findings: list[Finding] = []
        for index, partition in enumerate(topic.partitions if topic is not None else ()):
            read = [int(each.key or b"") for each in await readers.all(partition)]
            findings += self._judged(index, read)
        await readers.ranges.close()
        await readers.chunks.close()
        return findings

    def _judged(self, index: int, read: Sequence[int]) -> Iterator[Finding]:
        place = f"{BEGUN}-{index}"
        for number, times in Counter(read).items():
            if times > 1:
                yield Finding("duplicate", place, f"the record {number} is there {times} times", ())
        at = {number: where for where, number in enumerate(read)}
        for burst in self.acknowledged[index]:
            places = [at.get(number, -1) for number in burst]
            if -1 in places or places != sorted(places):
                yield Finding("sequence-lost", place, f"{burst} of one producer stand at {places}", ())


class Beginner(Pipeliner):
    """One producer after the other, each with some batches under way."""

    def __init__(self, around: Surroundings, begun: Begun) -> None:
        super().__init__(around, 1.0)
        self._begun = begun

    async def live(self) -> None:
        """See Pipeliner."""
        while not self._around.stopping.is_set():
            try:
                async with asyncio.timeout(BURST_S_MAX):
                    await self._begin()
                    await self._few()
            except ERRORS:
                self._connection = None
                await asyncio.sleep(RETRY_S)

    async def _few(self) -> None:
        random = self._around.loop.random
        key = TopicPartition(BEGUN, random.randrange(PARTITIONS))
        batches = [
            Batch(n, [str(next(self._begun.numbers))], n) for n in range(random.randint(2, BATCHES_MAX))
        ]
        await self._answered(key, batches)
        for batch, following in pairwise(batches):
            if following.offset <= batch.offset:
                self._wrong(key, batch, f"at {batch.offset}, behind the next at {following.offset}")
        self._begun.acknowledged[key.partition].append([int(each.values[0]) for each in batches])
        self._around.counts["producers begun"] += 1

    async def _pause(self) -> None:
        await asyncio.sleep(self._around.loop.random.expovariate(1 / BETWEEN_S))

    def _record(self, stamp_ms: int, value: str) -> NewRecord:
        return NewRecord(stamp_ms, value.encode(), Written.of({1: int(value)}).value)


class Beginners:
    """One process: it binds the topic again and again, begins producers of it, and writes beside them."""

    def __init__(self, around: Surroundings, begun: Begun) -> None:
        self._around, self._begun = around, begun

    async def live(self) -> None:
        """Until told to stop."""
        for name in (BEGUN, BESIDE):
            await make_topic(self._around, CreatableTopic(name, PARTITIONS, 1))
        async with asyncio.TaskGroup() as group:
            for _ in range(PRODUCERS):
                group.create_task(Beginner(self._around, self._begun).live())
            for _ in range(OTHERS):
                group.create_task(self._beside())
            group.create_task(self._bind())

    async def _bind(self) -> None:
        random = self._around.loop.random
        for number in count():
            if self._around.stopping.is_set():
                return
            message = MESSAGES[number % len(MESSAGES)]
            asked = BindSchema(topic=BEGUN, descriptor_set=message.descriptor_set, message=message.name)
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._around.propose(asked)
                self._around.counts["bound while producers begin"] += 1
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.expovariate(1 / BOUND_S))

    async def _beside(self) -> None:
        """Batches of the other topic, whatever comes of them."""
        random, connection = self._around.loop.random, None
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / BESIDE_S))
            raw = build([NewRecord(self._around.timestamp(), None, b"beside")])
            data = TopicProduceData(BESIDE, partition_data=[PartitionProduceData(0, memoryview(raw))])
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = connection or await connected(self._around)
                    await connection.call("Produce", ProduceRequest(None, -1, PRODUCE_MS, [data]), VERSION)
            except ERRORS:
                connection = None
