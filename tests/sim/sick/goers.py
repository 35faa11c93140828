"""Clients that must be able to go on: a producer and a reader of each partition, groups, transactional ids.

They do what real ones do: ask whom Metadata or FindCoordinator names, send there, wait for an answer no
longer than their timeout, and otherwise ask again, somebody else. One thing at a time is under way, and
`since` says since when.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from typing import Any

from agent.net.wire.generated import metadata as md
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import produce as pr
from agent.net.wire.generated.create_topics import CreatableTopic, CreateTopicsRequest
from agent.net.wire.generated.fetch import FetchPartition, FetchRequest, FetchTopic
from agent.net.wire.generated.find_coordinator import FindCoordinatorRequest
from agent.net.wire.generated.init_producer_id import InitProducerIdRequest
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build, peek, split
from tests.equipment.transactional_client import INIT_VERSION, Connection
from tests.sim.clients import Surroundings
from tests.sim.loop import NODE

TOPIC, PARTITIONS = "going-on", 4
GROUPS = TRANSACTIONAL = 2
ANSWER_S_MAX = 3.0
"""How long such a client waits for an answer: what was sent to an agent that says nothing waits for this."""
ASKED_S_MAX = 1.0
"""How long it waits for one that should tell it where to go."""
BACKOFF_S = 0.1
PAUSE_S = 0.3
"""Between two things that one of them does."""
POLL_MS = 500
GROUP_KEY, TRANSACTION_KEY = 0, 1
ERRORS = (OSError, EOFError, TimeoutError)


class Goer(ABC):
    """One client."""

    def __init__(self, around: Surroundings, name: str) -> None:
        self.name = name
        self.done = 0
        """What it has come to the end of."""
        self._around = around
        self._began: float | None = None
        self._order = list(around.bootstrap)
        around.loop.random.shuffle(self._order)
        self._connections: dict[str, Connection] = {}

    def since(self) -> float | None:
        """When that began which is under way; None: nothing is."""
        return self._began

    async def live(self) -> None:
        """Until told to stop: one thing after the other, each again until it is done."""
        loop, stopping = self._around.loop, self._around.stopping
        while not stopping.is_set():
            self._began = loop.time()
            while not stopping.is_set() and not await self._tried():  # noqa: ASYNC110 - tries again
                await asyncio.sleep(BACKOFF_S)
            self._began = None
            self.done += 1
            await asyncio.sleep(loop.random.expovariate(1 / PAUSE_S))

    async def _tried(self) -> bool:
        where = ""
        try:
            where = await self._found()
            return bool(where) and await self._do(where)
        except ERRORS:
            self._drop(where)
            return False

    @abstractmethod
    async def _found(self) -> str:
        """Who is to be asked, `host:port`; empty: nobody is named."""

    @abstractmethod
    async def _do(self, where: str) -> bool:
        """One try; whether it is done."""

    async def _ask_any(self, name: str, request: Any, version: int) -> Any:
        """By the agent that answered last; who does not answer is asked last from then on."""
        try:
            return await self._ask(self._order[0], name, request, version, ASKED_S_MAX)
        except ERRORS:
            self._order.append(self._order.pop(0))
            self._drop(self._order[-1])
            raise

    async def _ask(self, where: str, name: str, request: Any, version: int, seconds: float) -> Any:
        async with asyncio.timeout(seconds):
            if where not in self._connections:
                self._connections[where] = await Connection.open(where)
            return await self._connections[where].call(name, request, version)

    def _drop(self, where: str) -> None:
        connection = self._connections.pop(where, None)
        if connection is not None:
            connection._writer.close()

    async def _leader(self, partition: int) -> str:
        asked = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=TOPIC)])
        answer = await self._ask_any("Metadata", asked, 8)
        at = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
        return at.get(leaders.get(partition, -1), "")

    async def _coordinator(self, key: str, kind: int) -> str:
        answer = await self._ask_any("FindCoordinator", FindCoordinatorRequest(key, kind), 2)
        return "" if answer.error_code else f"{answer.host}:{answer.port}"


class Sender(Goer):
    """Writes to one partition, idempotently. `acknowledged`: (offset, when), as far as they are not read."""

    def __init__(self, around: Surroundings, partition: int) -> None:
        super().__init__(around, f"sender {partition}")
        self._partition = partition
        self._pair = (-1, -1)
        self._leader_at = ""
        self.acknowledged: deque[tuple[int, float]] = deque()

    async def _found(self) -> str:
        if self._pair[0] < 0:
            answer = await self._ask_any("InitProducerId", InitProducerIdRequest(None, 60_000), INIT_VERSION)
            if answer.error_code:
                return ""
            self._pair = (answer.producer_id, answer.producer_epoch)
        self._leader_at = self._leader_at or await self._leader(self._partition)
        return self._leader_at

    async def _do(self, where: str) -> bool:
        self._leader_at = ""  # whatever goes wrong, it asks anew
        answer = await self._ask(where, "Produce", self._request(), 9, ANSWER_S_MAX)
        row = answer.responses[0].partition_responses[0]
        if row.error_code not in (0, Code.DUPLICATE_SEQUENCE_NUMBER):
            return False
        self._leader_at = where
        if row.base_offset >= 0:
            self.acknowledged.append((row.base_offset, self._around.loop.time()))
        return True

    def _request(self) -> pr.ProduceRequest:
        record = NewRecord(self._around.timestamp(), None, b"%d" % self.done)
        raw = build(
            [record], producer_id=self._pair[0], producer_epoch=self._pair[1], base_sequence=self.done
        )
        data = pr.TopicProduceData(
            TOPIC, partition_data=[pr.PartitionProduceData(self._partition, memoryview(raw))]
        )
        return pr.ProduceRequest(None, -1, 30_000, [data])


class Follower(Goer):
    """Reads what one sender wrote."""

    def __init__(self, around: Surroundings, sender: Sender, partition: int) -> None:
        super().__init__(around, f"reader {partition}")
        self._sender = sender
        self._partition = partition
        self._offset = 0
        self._leader_at = ""

    def since(self) -> float | None:
        """When that was acknowledged which it has not read."""
        left = self._sender.acknowledged
        while left and left[0][0] < self._offset:
            left.popleft()
        return left[0][1] if left else None

    async def _found(self) -> str:
        self._leader_at = self._leader_at or await self._leader(self._partition)
        return self._leader_at

    async def _do(self, where: str) -> bool:
        self._leader_at = ""
        part = FetchPartition(self._partition, fetch_offset=self._offset, partition_max_bytes=1 << 20)
        asked = FetchRequest(max_wait_ms=POLL_MS, min_bytes=1, topics=[FetchTopic(TOPIC, partitions=[part])])
        answer = await self._ask(where, "Fetch", asked, 11, ANSWER_S_MAX)
        row = answer.responses[0].partitions[0]
        if row.error_code:
            return False
        self._leader_at = where
        for at, _ in split(row.records) if row.records else ():
            header = peek(row.records, at)
            self._offset = header.base_offset + header.last_offset_delta + 1
        return True


class Committer(Goer):
    """Commits positions of a group without members."""

    def __init__(self, around: Surroundings, number: int) -> None:
        super().__init__(around, f"group {number}")
        self._group = f"going-on-{number}"
        self._at = ""

    async def _found(self) -> str:
        self._at = self._at or await self._coordinator(self._group, GROUP_KEY)
        return self._at

    async def _do(self, where: str) -> bool:
        self._at = ""
        row = oc.OffsetCommitRequestPartition(0, self.done)
        asked = oc.OffsetCommitRequest(
            self._group, topics=[oc.OffsetCommitRequestTopic(TOPIC, partitions=[row])]
        )
        answer = await self._ask(where, "OffsetCommit", asked, 8, ANSWER_S_MAX)
        if answer.topics[0].partitions[0].error_code:
            return False
        self._at = where
        return True


class Initializer(Goer):
    """Begins again and again as the producer of one transactional id."""

    def __init__(self, around: Surroundings, number: int) -> None:
        super().__init__(around, f"transactional id {number}")
        self._id = f"going-on-{number}"
        self._at = ""

    async def _found(self) -> str:
        self._at = self._at or await self._coordinator(self._id, TRANSACTION_KEY)
        return self._at

    async def _do(self, where: str) -> bool:
        self._at = ""
        asked = InitProducerIdRequest(self._id, 60_000)
        answer = await self._ask(where, "InitProducerId", asked, INIT_VERSION, ANSWER_S_MAX)
        if answer.error_code:
            return False
        self._at = where
        return True


class Goers:
    """All of them, as one process of the world."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        senders = [Sender(around, n) for n in range(PARTITIONS)]
        self.all: list[Goer] = [
            *senders,
            *(Follower(around, sender, n) for n, sender in enumerate(senders)),
            *(Committer(around, n) for n in range(GROUPS)),
            *(Initializer(around, n) for n in range(TRANSACTIONAL)),
        ]

    async def live(self) -> None:
        """Until told to stop."""
        connection = await Connection.open(self._around.bootstrap[0])
        await connection.call("CreateTopics", CreateTopicsRequest([CreatableTopic(TOPIC, PARTITIONS, 1)]), 5)
        await connection.close()
        node = NODE.get()
        await asyncio.gather(*(asyncio.create_task(each.live(), name=node) for each in self.all))
