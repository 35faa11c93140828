"""An idempotent producer with several batches of one key under way, as Java's and librdkafka's have.

What is not answered in time is sent again in its order by another connection, to any agent, while the first
copies may still be at work. The broker remembers the last five batches of a producer for that (KIP-98): of
at most five under way each one is found again, and the oldest is always the one that is due. One behind it
may be acknowledged first where all of them are stored: an agent that steps aside refuses the oldest and is
back before it is asked for the next (seed 495). So their offsets tell whether one was taken before its turn.

Told of a gap before one that is not the oldest, it does as librdkafka: once all have their answers it takes
the producer's next epoch, and sends all that is not acknowledged once more, numbered anew. What an agent
still had under way of it, and stores afterwards, is there twice then: a gap is told of when it is sure. At
times the leader moves in the middle: later ones go to another agent, while earlier ones stay where they were
sent, and are sent again when they were given up there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import islice, pairwise

from aiokafka import TopicPartition

from agent.net.wire.generated.init_producer_id import InitProducerIdRequest
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.kafka_codes import Code
from objectstore.batch import NewRecord, build
from tests.checker.findings import Finding
from tests.checker.operations import Send
from tests.equipment.transactional_client import INIT_VERSION, Connection
from tests.sim.clients import RETRY_S, Pending, Surroundings, name
from tests.sim.producers import RETRIABLE, Refusal

UNDER_WAY_MAX = 5
"""Batches of one key, as max.in.flight.requests.per.connection allows with idempotence."""
BURST_MAX = 8
"""Batches of one burst."""
VERSION = 9
ANSWER_S_MAX = 2.0
BURST_S_MAX = 20.0
PRODUCE_MS = 30_000
MOVES_OF = 4
"""In one of so many windows the leader moves."""
ERRORS = (OSError, EOFError, TimeoutError, Refusal)
GAP, FORGOTTEN = int(Code.OUT_OF_ORDER_SEQUENCE_NUMBER), int(Code.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(slots=True)
class Batch:
    """One batch of one key: its place in the burst, its values and their first sequence."""

    place: int
    values: list[str]
    sequence: int
    offset: int = -1


class _Gap(Exception):
    """A batch that is not the oldest under way was refused for what is missing before it."""


class Pipeliner:
    """One client. `pending`: what a crash leaves unanswered."""

    def __init__(self, around: Surroundings, rate: float) -> None:
        self._around = around
        self._pause_s = 4 / rate
        self._pair = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._connection: Connection | None = None
        self._where: str | None = None
        self._next = self._windows = 0
        self._known_at: set[TopicPartition] = set()
        """Where a batch of the producer is."""
        self.pending: Pending | None = None

    async def live(self) -> None:
        """Until told to stop: one producer id after the other."""
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            process = self._around.recorder.process()
            try:
                async with asyncio.timeout(BURST_S_MAX):
                    await self._begin()
                while not self._around.stopping.is_set():
                    await asyncio.sleep(random.expovariate(1 / self._pause_s))
                    await self._burst(process)
            except ERRORS:
                await asyncio.sleep(RETRY_S)

    async def _begin(self, pair: tuple[int, int] = (-1, -1)) -> None:
        """A producer id, or the next epoch of the one in `pair` (KIP-360)."""
        self._connection = await self._connected()
        request = InitProducerIdRequest(None, 60_000, *pair)
        answer = await self._connection.call("InitProducerId", request, INIT_VERSION)
        if answer.error_code:
            raise Refusal(Code(answer.error_code).name)
        if answer.producer_id != self._pair[0]:
            self._known_at = set()
        self._pair, self._sequences = (answer.producer_id, answer.producer_epoch), {}

    async def _connected(self) -> Connection:
        self._where = self._around.loop.random.choice(self._around.bootstrap)
        async with asyncio.timeout(ANSWER_S_MAX):
            return await Connection.open(self._where)

    async def _elsewhere(self) -> Connection:
        """To another agent than the one that it is connected to."""
        others = [each for each in self._around.bootstrap if each != self._where]
        async with asyncio.timeout(ANSWER_S_MAX):
            return await Connection.open(self._around.loop.random.choice(others))

    async def _burst(self, process: int) -> None:
        """Some batches for one key, as one operation."""
        random, recorder = self._around.loop.random, self._around.recorder
        key = self._around.any_key()
        batches = []
        for place in range(random.randint(2, BURST_MAX)):
            values = [f"{process}.{self._next + n}" for n in range(1, random.choice((1, 1, 2)) + 1)]
            self._next += len(values)
            sequence = self._sequences.get(key, 0)
            self._sequences[key] = sequence + len(values)
            batches.append(Batch(place, values, sequence))
        sends = [Send(name(key), value) for batch in batches for value in batch.values]
        self.pending = pending = Pending(process, "send", recorder.now_ns(), [*sends], error="unanswered")
        try:
            async with asyncio.timeout(BURST_S_MAX):
                await self._answered(key, batches)
            for batch, following in pairwise(batches):
                if following.offset <= batch.offset:
                    self._wrong(key, batch, f"at {batch.offset}, behind the next at {following.offset}")
            pending.outcome, pending.error = "ok", ""
        finally:
            if self.pending is pending:  # a crash has noted it already
                self.pending = None
                pending.micro = [
                    Send(name(key), value, batch.offset + n if batch.offset >= 0 else None)
                    for batch in batches
                    for n, value in enumerate(batch.values)
                ]
                recorder.leave(pending)

    async def _answered(self, key: TopicPartition, batches: list[Batch]) -> None:
        """Send them until each is acknowledged. Raises Refusal."""
        due = deque(batches)
        while due:
            try:
                if self._connection is None:
                    self._connection = await self._connected()
                await self._sent(self._connection, key, due)
            except (OSError, EOFError, TimeoutError):
                self._connection = None  # stays open: what is under way on it still arrives
                self._around.counts["pipelined again"] += 1
                await asyncio.sleep(RETRY_S)
            except _Gap:
                await self._numbered_anew(key, due)

    async def _numbered_anew(self, key: TopicPartition, due: deque[Batch]) -> None:
        """The next epoch of the producer, and numbers from 0 for all that is not acknowledged."""
        self._around.counts["pipelined anew"] += 1
        while True:
            try:
                await self._begin(self._pair)
                break
            except ERRORS:
                await asyncio.sleep(RETRY_S)
        sequence = 0
        for batch in due:
            if batch.offset < 0:
                batch.sequence, sequence = sequence, sequence + len(batch.values)
        self._sequences[key] = sequence

    async def _sent(self, connection: Connection, key: TopicPartition, due: deque[Batch]) -> None:
        """The first ones, side by side; none is due any more once it and all before it are acknowledged."""
        window = [batch for batch in islice(due, UNDER_WAY_MAX) if batch.offset < 0]
        ways = await self._ways(connection, key, len(window))
        for way, batch in zip(ways, window, strict=True):
            await way.send("Produce", self._request(key, batch), VERSION)
            await self._pause()
        again = gap = False
        lost: list[Connection] = []
        for way, batch in zip(ways, window, strict=True):
            if way in lost:
                continue
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    answer = await way.receive("Produce", VERSION)
            except (OSError, EOFError, TimeoutError):
                if ways[0] is ways[-1]:
                    raise
                lost.append(way)  # librdkafka goes on with its next epoch once all are answered or lost
                continue
            row = answer.responses[0].partition_responses[0]
            code = int(row.error_code)
            if not code:
                batch.offset = int(row.base_offset)
                self._known_at.add(key)
                while due and due[0].offset >= 0:
                    due.popleft()
            elif code == FORGOTTEN or (code == GAP and batch is due[0]):
                self._wrong(key, batch, Code(code).name)
            elif code != GAP and Code(code) not in RETRIABLE:
                raise Refusal(Code(code).name)
            else:
                again, gap = True, gap or code == GAP
        if gap and due and due[0].offset < 0:
            raise _Gap
        if lost:
            raise TimeoutError
        if again:
            self._connection = None
            await asyncio.sleep(RETRY_S)

    async def _ways(self, connection: Connection, key: TopicPartition, count: int) -> list[Connection]:
        """By which connection each of so many goes.

        Where its partition does not know the producer the leader stays: any batch would be taken for its
        first one, as Kafka's brokers do (KIP-360).
        """
        self._windows += 1
        alone = len(self._around.bootstrap) == 1
        if count < 2 or alone or key not in self._known_at or self._windows % MOVES_OF:
            return [connection] * count
        self._around.counts["pipelined by two"] += 1
        return [connection] * (count // 2) + [await self._elsewhere()] * (count - count // 2)

    async def _pause(self) -> None:
        """Between two that are sent side by side."""

    def _record(self, stamp_ms: int, value: str) -> NewRecord:
        return NewRecord(stamp_ms, value.encode(), value.encode())

    def _request(self, key: TopicPartition, batch: Batch) -> ProduceRequest:
        stamp_ms = self._around.timestamp()
        raw = build(
            [self._record(stamp_ms, value) for value in batch.values],
            producer_id=self._pair[0],
            producer_epoch=self._pair[1],
            base_sequence=batch.sequence,
        )
        data = TopicProduceData(
            key.topic, partition_data=[PartitionProduceData(key.partition, memoryview(raw))]
        )
        return ProduceRequest(None, -1, PRODUCE_MS, [data])

    def _wrong(self, key: TopicPartition, batch: Batch, what: str) -> None:
        """The oldest one under way is refused, or one behind it was taken before it."""
        detail = f"producer {self._pair}, sequence {batch.sequence} of at most {UNDER_WAY_MAX} under way"
        self._around.findings.append(Finding("sequence-lost", name(key), f"{detail}: {what}", ()))
        raise Refusal(what)
