"""A topic that is bound to a schema and unbound again, while others write what breaks it, through any agent.

An agent judges a record by the state that it has, which may be older than the binding that another one made.
So what counts is the record's place in the log: none that breaks the binding there may be acknowledged.
Bindings are written down with the watermark at which they began when the first agent applies them; who writes
is told offsets. In the end every agent must name, for each record that was taken, the schema that was bound
where it stands in the log (coordination/state/spans.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agent.net.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from agent.net.wire.generated.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.errors import ReplicaFailed
from coordination.state import schemas
from coordination.state.data import StateData
from coordination.state.types import Span
from objectstore.batch import NewRecord, build
from tests.checker.findings import Finding
from tests.equipment.transactional_client import Connection
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.loop import VirtualLoop
from tests.sim.node import AgentNode
from tests.unit.schema import samples

BOUND = "bound"
GOOD, BAD = b"\x08\xdd\x0f", b"\xff\xff"
"""A message of what the topic is bound to, and what is none of any."""
CREATE_VERSION, PRODUCE_VERSION = 5, 9
PRODUCE_MS = 10_000
ANSWER_S_MAX = 3.0
WRITERS = 3
WRITTEN_S, BOUND_S = 0.03, 0.25
"""On average between two records of a writer, and between two bindings."""
ERRORS = (OSError, EOFError, TimeoutError)


class Bindings:
    """What the log says: from which offset on the topic was bound, and to what."""

    def __init__(self) -> None:
        self._from: dict[int, tuple[int, int]] = {}
        """By revision: the watermark at which it began, and the schema of values from there on; 0: none."""
        self.taken: list[int] = []
        """Offsets of records that were acknowledged."""

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Every binding that is applied meanwhile."""
        set_binding = schemas._set

        def noted(state: StateData, topic: Any, role: int, schema_id: int | None, at: Any) -> None:
            if topic.name == BOUND:
                self._from[at.revision] = (topic.partitions[0].high_watermark, schema_id or 0)
            set_binding(state, topic, role, schema_id, at)

        schemas._set = noted
        try:
            yield
        finally:
            schemas._set = set_binding

    def bound_at(self, offset: int) -> int:
        """The schema that the record at an offset had to be of; 0: none."""
        before = [schema_id for start, schema_id in self._in_order() if start <= offset]
        return before[-1] if before else 0

    def _in_order(self) -> Sequence[tuple[int, int]]:
        return [self._from[revision] for revision in sorted(self._from)]

    def judged(self, agent: AgentNode) -> Iterator[Finding]:
        """Records for which an agent, healed and up to date, names another schema than was bound there."""
        assert agent.app is not None, "healed before it is judged"
        state = agent.app.replica.state
        topic = state.topics.get(BOUND)
        if topic is None:  # nobody could make it
            return
        for offset in self.taken:
            told = schemas.spans_between(state, topic.partitions[0], offset, offset + 1)
            expected = [Span(offset, 0, self.bound_at(offset))]
            if told != expected:
                yield Finding("span-wrong", BOUND, f"the record at {offset}: {told}, not {expected}", ())


def asks_any(loop: VirtualLoop, agents: Sequence[AgentNode]) -> Callable[[Any], Awaitable[Any]]:
    """How somebody asks one of the agents for a command, as over HTTP. Raises OSError where none answers."""

    async def tried(answer: Awaitable[Any]) -> Any:
        try:
            return await answer
        except (LogError, ReplicaFailed) as error:
            raise OSError(str(error)) from error

    async def propose(message: Any) -> Any:
        agent = loop.random.choice(agents)
        if agent.app is None or not agent.alive:
            raise OSError(f"{agent.name} is not there")
        return await agent.spawn(tried(agent.app.replica.propose(message)))

    return propose


class Binder:
    """One process: it binds and unbinds the topic, and writes to it by connections of its own."""

    def __init__(self, around: Surroundings, bindings: Bindings) -> None:
        self._around = around
        self._bindings = bindings

    async def live(self) -> None:
        """Until told to stop."""
        await self._make()
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())
            group.create_task(self._bind())

    async def _make(self) -> None:
        """The topic, unless it is there from a life before."""
        configs = [CreatableTopicConfig("floe.table.enabled", "false")]
        topic = CreatableTopic(BOUND, 1, 1, configs=configs)
        while True:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = await self._connected()
                    await connection.call("CreateTopics", CreateTopicsRequest([topic]), CREATE_VERSION)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            else:
                return

    async def _connected(self) -> Connection:
        return await Connection.open(self._around.loop.random.choice(self._around.bootstrap))

    async def _bind(self) -> None:
        """By any agent. An answer that is lost changes nothing of what the log says."""
        described, random = samples.descriptor_set(samples.FLIGHTS), self._around.loop.random
        unbind = False
        while not self._around.stopping.is_set():
            message = BindSchema(topic=BOUND, unbind=unbind)
            if not unbind:
                message.descriptor_set, message.message = described, "nyc.Flight"
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._around.propose(message)
                self._around.counts["bound" if not unbind else "unbound"] += 1
                unbind = not unbind
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.expovariate(1 / BOUND_S))

    async def _write(self) -> None:
        random, connection = self._around.loop.random, None
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
            value = random.choice((GOOD, BAD))
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = connection or await self._connected()
                    answer = await connection.call("Produce", self._request(value), PRODUCE_VERSION)
            except ERRORS:
                connection = None  # stays open: what is under way on it still arrives
                continue
            row = answer.responses[0].partition_responses[0]
            if row.error_code:
                if row.error_code == Code.INVALID_RECORD:
                    self._around.counts["records refused by a binding"] += 1
                else:
                    connection = None  # perhaps another agent is well
                continue
            self._judge(value, int(row.base_offset))

    def _request(self, value: bytes) -> ProduceRequest:
        raw = build([NewRecord(self._around.timestamp(), None, value)])
        data = TopicProduceData(BOUND, partition_data=[PartitionProduceData(0, memoryview(raw))])
        return ProduceRequest(None, -1, PRODUCE_MS, [data])

    def _judge(self, value: bytes, offset: int) -> None:
        self._bindings.taken.append(offset)
        bound = self._bindings.bound_at(offset) > 0
        self._around.counts["records taken by a binding"] += bound
        if bound and value == BAD:
            detail = f"the record at {offset} breaks the binding at its place, and is acknowledged"
            self._around.findings.append(Finding("binding-broken", BOUND, detail, ()))
