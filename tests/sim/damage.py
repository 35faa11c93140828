"""Records that are damaged for good, readers that meet it, and an operator who lets them go on without.

A topic of two partitions; what is stored of the first is damaged: a batch in a chunk, a block of a segment, a
segment that is gone or cut short. Exactly the damaged offsets may be answered with CORRUPT_MESSAGE, and only
they may be passed over, once somebody asked for it; the other partition of the same Fetch has nothing to do
with it. What agents have in memory they may serve. At the end merging has gone on behind the damage, and all
that was acknowledged is read from every agent, but for what was passed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from agent.net.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from agent.net.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.commands import SkipDamaged
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.errors import ReplicaFailed
from coordination.state.types import Partition
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, peek, records, split
from objectstore.merged import MergedRanges
from objectstore.naming import ChunkId, SliceRef, chunk_key, segment_key
from objectstore.offset_ranges import joined
from objectstore.store import StoreError
from objectstore.verification import Verification
from tests.checker.findings import Finding
from tests.equipment.transactional_client import Connection
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.node import AgentNode
from tests.sim.session import SessionReader

HURT = "hurt"
PARTITIONS = 2
CREATE_VERSION, PRODUCE_VERSION, FETCH_VERSION = 5, 9, 12
PRODUCE_MS, WAIT_MS = 10_000, 200
ANSWER_S_MAX = 3.0
FETCH_BYTES = 4096
WRITTEN_S = 0.1
FIRST_S, UNDECIDED_S = (3.0, 9.0), (0.5, 3.0)
"""When the damage comes, and how long it takes the operator to decide."""
CALM_S = 3.0  # since when no store of an agent's has lied, for a wrong answer to be the agent's own
MERGED_S_MAX, READ_S_MAX = 100.0, 60.0
WAYS = ("batch of a chunk", "block of a segment", "segment", "segment cut short")
ERRORS = (OSError, EOFError, TimeoutError)
_Answer = TypeVar("_Answer")


class Hurt:
    """What is known of the topic: what was sent and acknowledged, damaged, and asked to be passed over."""

    def __init__(self, objects: MemoryStore, agents: Sequence[AgentNode]) -> None:
        self.objects = objects
        self.agents = agents
        self.sent: set[bytes] = set()
        self.acked: list[dict[int, bytes]] = [{} for _ in range(PARTITIONS)]
        self.damaged: list[tuple[int, int]] = []
        """Of the first partition, [start, end)."""
        self.asked: list[tuple[int, int]] = []
        """What may be passed over; `decided` is what an agent said will be."""
        self.decided: list[tuple[int, int]] = []
        self.findings: list[Finding] = []
        self.lied_s = 0.0
        """When the store of an agent was last seen to lie now and then."""

    def is_damaged(self, index: int, offset: int) -> bool:
        """Whether what is stored at an offset is not what was sent."""
        return not index and _inside(offset, self.damaged)

    def wrong(self, anomaly: str, detail: str) -> None:
        """Note what must not be."""
        self.findings.append(Finding(anomaly, HURT, detail, ()))

    def calm(self, now_s: float) -> bool:
        """Whether no store has lied for a while: two reads that both come back flipped are damage, too."""
        if any(each.store is not None and each.store.rates.corrupt for each in self.agents):
            self.lied_s = now_s
        return now_s - self.lied_s > CALM_S

    def judge(self, index: int, offset: int, answer: Any, *, calm: bool) -> tuple[int, dict[int, bytes]]:
        """What one partition of a Fetch from `offset` on was answered: where to go on, and its records."""
        if answer.error_code == Code.CORRUPT_MESSAGE and calm and not self.is_damaged(index, offset):
            self.wrong("damage-spread", f"{index} is said to be damaged at {offset}, and is not")
        if answer.error_code or not answer.records:
            return offset, {}
        found = {each.offset: each.value or b"" for each in records(bytes(answer.records))}
        found = {at: value for at, value in found.items() if at >= offset}
        end = max(peek(answer.records, at).last_offset + 1 for at, _ in split(answer.records))
        for at in range(offset, end):
            if at not in found and not (self.is_damaged(index, at) and _inside(at, self.asked)):
                self.wrong("passed-over", f"{index}: {at} is not given, from {offset} to {end}")
        for at, value in found.items():
            if value not in self.sent or self.acked[index].get(at, value) != value:
                self.wrong("damage-differs", f"{index}: {value!r} at {at} is not what was sent")
        return end, found


def _inside(offset: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(start <= offset < end for start, end in ranges)


class Skipper:
    """Who writes to the topic, reads it, damages it, and decides to go on without what was lost."""

    def __init__(self, around: Surroundings, hurt: Hurt) -> None:
        self._around = around
        self._hurt = hurt

    async def live(self) -> None:
        """Until told to stop."""
        await self._make()
        async with asyncio.TaskGroup() as group:
            for index in range(PARTITIONS):
                group.create_task(self._write(index))
            group.create_task(self._read())
            group.create_task(self._damage_and_decide())

    async def _make(self) -> None:
        """The topic, unless it is there from a life before."""
        configs = [CreatableTopicConfig("floe.table.enabled", "false")]
        topic = CreatableTopic(HURT, PARTITIONS, 1, configs=configs)
        while True:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = await connected(self._around)
                    await connection.call("CreateTopics", CreateTopicsRequest([topic]), CREATE_VERSION)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _write(self, index: int) -> None:
        random, connection = self._around.loop.random, None
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
            values = [self._around.new_name(HURT).encode() for _ in range(random.choice((1, 2, 3)))]
            self._hurt.sent.update(values)
            raw = build([NewRecord(self._around.timestamp(), None, value) for value in values])
            data = TopicProduceData(HURT, partition_data=[PartitionProduceData(index, memoryview(raw))])
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = connection or await connected(self._around)
                    request = ProduceRequest(None, -1, PRODUCE_MS, [data])
                    answer = await connection.call("Produce", request, PRODUCE_VERSION)
            except ERRORS:
                connection = None
                continue
            row = answer.responses[0].partition_responses[0]
            if row.error_code:
                connection = None
                continue
            self._hurt.acked[index].update(enumerate(values, row.base_offset))

    async def _read(self) -> None:
        """Both partitions in one Fetch, now and then from the start; at damage it asks on, as clients do."""
        random, at, reader = self._around.loop.random, [0] * PARTITIONS, None
        while not self._around.stopping.is_set():
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    reader = reader or await self._session()
                    calm = self._hurt.calm(self._around.loop.time())
                    found = await reader.fetch(at)
            except ERRORS:
                reader = None
                await asyncio.sleep(RETRY_S)
                continue
            calm = calm and self._hurt.calm(self._around.loop.time())
            met = [each.error_code == Code.CORRUPT_MESSAGE for each in found]
            self._around.counts["damage met"] += met[0]
            at = [self._hurt.judge(index, at[index], each, calm=calm)[0] for index, each in enumerate(found)]
            if random.random() < 1 / 16 or any(each.error_code for each in found):
                reader = None  # another agent may have it in memory
            if random.random() < 1 / 32:
                at = [0] * PARTITIONS
            await asyncio.sleep(0.1)

    async def _session(self) -> SessionReader:
        around = self._around
        return SessionReader(
            await connected(around), HURT, around.loop.random, around.counts, self._hurt.wrong
        )

    async def _damage_and_decide(self) -> None:
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.uniform(*FIRST_S))
            if not await self.damage_once():
                continue
            await asyncio.sleep(random.uniform(*UNDECIDED_S))
            await self._decide()

    async def damage_once(self) -> bool:
        """Damage something, for good; whether there was anything."""
        how = self._around.loop.random.choice(WAYS)
        if self._around.stopping.is_set() or not await self._damage(how):
            return False
        self._around.counts[f"damage of a {how}"] += 1
        return True

    async def _decide(self) -> None:
        while not await decided(self._around, self._hurt):
            if self._around.stopping.is_set():
                return
            await asyncio.sleep(RETRY_S)

    async def _damage(self, how: str) -> bool:
        """Damage something of the first partition in the bucket; False where there is nothing of the kind."""
        agent = _any(self._around, self._hurt.agents)
        partition = None if agent is None else partition_of(agent)
        if partition is None:
            return False
        if how == WAYS[0]:
            return await self._damage_batch(partition)
        if partition.merged is None:
            return False
        ranges, random = MergedRanges(self._hurt.objects), self._around.loop.random
        try:
            manifest = await ranges.manifest(partition.merged.manifest)
            if not len(manifest):
                return False
            info = manifest[random.randrange(len(manifest))]
            block = random.choice((await ranges.index(info)).blocks)
        except StoreError:  # damaged before
            return False
        if how == WAYS[1]:
            self._hurt.damaged.append((block.base_offset, block.end_offset))
            await self._flip(segment_key(info.segment), block.position + block.length - 1)
            return True
        key = segment_key(info.segment)
        self._hurt.damaged.append((info.base_offset, info.end_offset))
        if how == WAYS[2]:
            self._hurt.objects._objects.pop(key, None)  # not as an agent deletes, which is judged
        else:  # its index at least, which is its end
            await self._hurt.objects.put(
                key, [(await self._hurt.objects.get(key))[: random.randrange(info.size)]]
            )
        return True

    async def _damage_batch(self, partition: Partition) -> bool:
        rows = [ref for ref in partition.slices.oldest(100, 1 << 20) if isinstance(ref.chunk, ChunkId)]
        if not rows:
            return False
        row: SliceRef = self._around.loop.random.choice(rows)
        assert isinstance(row.chunk, ChunkId), "chosen so"
        try:
            data = await self._hurt.objects.get_range(chunk_key(row.chunk), row.position, row.length)
        except StoreError:  # the agent is behind: it was merged and collected
            return False
        offset, batches = row.base_offset, []
        for at, size in split(data):
            end = offset + peek(data, at).last_offset_delta + 1
            batches.append((offset, end, row.position + at + size - 1))
            offset = end
        start, end, position = self._around.loop.random.choice(batches)
        self._hurt.damaged.append((start, end))
        await self._flip(chunk_key(row.chunk), position)
        return True

    async def _flip(self, key: str, position: int) -> None:
        data = bytearray(await self._hurt.objects.get(key))
        data[position] ^= 1
        await self._hurt.objects.put(key, [bytes(data)])


async def connected(around: Surroundings) -> Connection:
    """A connection to any agent."""
    return await Connection.open(around.loop.random.choice(around.bootstrap))


async def fetched(connection: Connection, at: Sequence[int]) -> list[Any]:
    """The partitions' answers, in order."""
    wanted = [
        FetchPartition(index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES)
        for index, offset in enumerate(at)
    ]
    topic = FetchTopic(topic=HURT, partitions=wanted)
    request = FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, topics=[topic])
    answer = await connection.call("Fetch", request, FETCH_VERSION)
    return sorted(answer.responses[0].partitions, key=lambda each: each.partition_index)


def partition_of(agent: AgentNode) -> Partition | None:
    """The damaged partition as an agent knows it."""
    topic = agent.app.replica.state.topics.get(HURT) if agent.app is not None else None
    return topic.partitions[0] if topic is not None else None


def _any(around: Surroundings, agents: Sequence[AgentNode]) -> AgentNode | None:
    well = [each for each in agents if each.alive and each.ready]
    return around.loop.random.choice(well) if well else None


async def decided(around: Surroundings, hurt: Hurt) -> bool:
    """The operator has an agent look through the partition, and asks to pass over what is damaged."""
    agent = _any(around, hurt.agents)
    if agent is None or agent.store is None or agent.app is None:
        return False
    replica, store = agent.app.replica, agent.store

    def look() -> Partition:
        found = partition_of(agent)
        if found is None:
            raise StoreError("the topic is not there")
        return found

    begun_calm = hurt.calm(around.loop.time())
    verified = await _asked(agent, lambda: Verification(store, look, replica.barrier).run(0, 1 << 30))
    if verified is None:
        return False
    calm = begun_calm and hurt.calm(around.loop.time())
    found = [(each.start, each.end) for each in verified.damaged]
    for start, end in found:
        if calm and not all(hurt.is_damaged(0, offset) for offset in range(start, end)):
            hurt.wrong("damage-spread", f"[{start}, {end}) is not damaged, but found to be: {hurt.damaged}")
    found = [each for each in found if all(hurt.is_damaged(0, offset) for offset in range(*each))]
    new = [each for each in found if each not in hurt.decided]
    if not new:
        return True
    hurt.asked = joined([*hurt.asked, *new])
    message = SkipDamaged(
        partition=look().handle, start=[start for start, _ in new], end=[end for _, end in new], by="operator"
    )
    done = await _asked(agent, lambda: replica.propose(message))
    if done is None:
        return False
    around.counts["damage decided on"] += 1
    hurt.decided += new
    return True


async def _asked(agent: AgentNode, question: Callable[[], Awaitable[_Answer]]) -> _Answer | None:
    """What an agent does as asked over HTTP; None where it fails, dies or takes too long."""

    async def tried() -> _Answer | None:
        try:
            return await question()
        except (StoreError, LogError, ReplicaFailed, TimeoutError):
            return None

    task = agent.spawn(tried())
    await asyncio.wait([task], timeout=READ_S_MAX)
    return task.result() if task.done() and not task.cancelled() else None


async def judged(around: Surroundings, hurt: Hurt) -> list[Finding]:
    """The end, when all is whole but for the damage: what is left is decided on, and everything is read."""
    if not all(hurt.acked):
        return hurt.findings
    try:
        async with asyncio.timeout(READ_S_MAX):
            while not await decided(around, hurt):  # noqa: ASYNC110 - tries again until it is done
                await asyncio.sleep(RETRY_S)
    except TimeoutError:
        hurt.wrong("stuck", f"nobody can decide on {hurt.damaged}")
    await _merged(hurt)
    for agent in hurt.agents:
        for index in range(PARTITIONS):
            await _read_to_the_end(hurt, agent, index)
    return hurt.findings


async def _merged(hurt: Hurt) -> None:
    """Merging goes on behind the damage."""
    behind = max((end for _, end in hurt.damaged), default=0)

    def done() -> bool:
        partition = partition_of(hurt.agents[0])
        merged = partition.merged if partition is not None else None
        return merged is not None and merged.end_offset >= behind

    try:
        async with asyncio.timeout(MERGED_S_MAX):
            while not done():  # noqa: ASYNC110 - polls a state
                await asyncio.sleep(0.5)
    except TimeoutError:
        hurt.wrong("merging-stuck", f"nothing is merged behind {behind}, for {MERGED_S_MAX:.0f} s")


async def _read_to_the_end(hurt: Hurt, agent: AgentNode, index: int) -> None:
    found: dict[int, bytes] = {}
    at, end = [0] * PARTITIONS, 1
    at[1 - index] = 1 << 40  # out of range, and so out of the way
    connection = None
    try:
        async with asyncio.timeout(READ_S_MAX):
            while at[index] < end:
                try:
                    connection = connection or await Connection.open(agent.bootstrap)
                    answer = (await fetched(connection, at))[index]
                except (OSError, EOFError):
                    connection = None
                    await asyncio.sleep(RETRY_S)
                    continue
                end = max(end, answer.high_watermark)
                at[index], some = hurt.judge(index, at[index], answer, calm=True)
                found.update(some)
    except TimeoutError:
        hurt.wrong("stuck", f"{agent.name}: {index} cannot be read behind {at[index]} of {end}")
        return
    for offset in hurt.acked[index].keys() - found.keys():
        if not hurt.is_damaged(index, offset):
            hurt.wrong("lost", f"{agent.name}: {index} has no record at {offset}, which was acknowledged")
