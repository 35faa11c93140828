"""A topic that is bound to one message, to another, to none, while others write to it, through any agent.

An agent judges a record by the state that it has, which may be older than the binding that another one made.
So what counts is the record's place in the log: none that breaks the binding there may be acknowledged.
Bindings are written down with the watermark at which they began when the first agent applies them; who writes
is told offsets. In the end every agent must name, for each record that was taken, the schema that was bound
where it stands in the log (coordination/state/spans.py), and the table must show each by it (columns.py).

Before feature level 2 batches may be judged by a binding of before, nothing is remembered of bindings, and a
row is decoded by what is bound when it is committed to the table: of records of then only this is asked.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
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
from coordination.state import binding, cluster, schemas
from coordination.state.data import StateData
from coordination.state.levels import BINDING_SPANS, JUDGED_BATCHES
from coordination.state.types import Span
from objectstore.batch import NewRecord, build
from tests.checker.findings import Finding
from tests.equipment.transactional_client import Connection
from tests.sim.astray import Astray
from tests.sim.bound_messages import BY_DESCRIPTOR, MESSAGES, NOBODYS, Message, Written
from tests.sim.clients import RETRY_S, Surroundings
from tests.sim.loop import VirtualLoop
from tests.sim.node import AgentNode

BOUND = "bound"
BAD = (b"\xff\xff", b"\x00\x00", Written.of({1: 1}, NOBODYS).value)
"""What is no message of any: unparsable, a frame that is cut off, a frame of a schema that nobody made."""
BAD_OF, FRAMED_OF, TOMBSTONES_OF = 0.2, 0.3, 0.03
OTHERS_OF = 0.4
"""Payloads that are drawn for any message, whoever is to read them."""
CREATE_VERSION, PRODUCE_VERSION = 5, 9
PRODUCE_MS = 10_000
ANSWER_S_MAX = 3.0
WRITERS, BATCH_MAX = 3, 3
NEWEST = 6  # schemas that frames name
WRITTEN_S, BOUND_S = 0.08, 0.25
"""On average between two batches of a writer, and between two bindings."""
_cluster: Any = cluster  # which does not export what it imports
ERRORS = (OSError, EOFError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a row must show of its value. `kind`, for the coverage; by number the `fields` of a message."""

    kind: str
    message: Message | None = None
    fields: Mapping[int, Any] = field(default_factory=dict)

    @property
    def wrong(self) -> bool:
        """Whether `__err__` must say why it shows nothing."""
        return self.kind == "with an error"


@dataclass(frozen=True, slots=True)
class _Change:
    """Of the binding: the watermark at which it began, the schema of values from there on (0: none)."""

    start: int
    schema_id: int
    level: int
    """Feature level."""


_NEVER = _Change(0, 0, 0)


class Bindings:
    """What the log says, from which offset on the topic was bound to what; and what was written to it."""

    topic = BOUND

    def __init__(self, astray: Astray) -> None:
        self._astray = astray
        self._changes: dict[int, _Change] = {}
        """By revision, in order: nobody applies an entry before somebody has applied those before it."""
        self._remembered_from: int | None = None
        """The topic's watermark where the level began that remembers bindings."""
        self.messages: dict[int, Message] = {}
        """By schema id, all that were ever bound."""
        self.written: list[Written] = []
        """Each record, whether it was taken or not; its key is its place here."""
        self.taken: list[int] = []
        """Offsets of records that were acknowledged."""
        self.counts: Counter[str] = Counter()
        """What the table's rows showed, for the coverage."""

    @contextmanager
    def watches(self) -> Iterator[None]:
        """Every binding and every feature level that is applied meanwhile."""
        set_binding, enter = binding.put, _cluster.enter

        def noted(state: StateData, topic: Any, role: int, schema_id: int | None, at: Any) -> None:
            if topic.name == BOUND and state not in self._astray:
                start, level = topic.partitions[0].high_watermark, state.feature_level
                self._changes[at.revision] = _Change(start, schema_id or 0, level)
            if topic.name == BOUND and schema_id and state not in self._astray:
                self.messages[schema_id] = BY_DESCRIPTOR[state.schemas[schema_id].descriptor_set]
            set_binding(state, topic, role, schema_id, at)

        def entered(state: StateData, level: int) -> None:
            topic = state.topics.get(BOUND)
            if state.feature_level < BINDING_SPANS <= level and state not in self._astray:
                self._remembered_from = topic.partitions[0].high_watermark if topic is not None else 0
            enter(state, level)

        binding.put, _cluster.enter = noted, entered
        try:
            yield
        finally:
            binding.put, _cluster.enter = set_binding, enter

    def bound_at(self, offset: int) -> int:
        """The schema that the record at an offset had to be of; 0: none."""
        return self._change_at(offset).schema_id

    def _change_at(self, offset: int) -> _Change:
        changes = list(self._changes.values())
        at = bisect_right(changes, offset, key=lambda change: change.start)
        return changes[at - 1] if at else _NEVER

    def judges(self, offset: int) -> bool:
        """Whether nothing that breaks its binding may stand there: it was made on a level that sees to it."""
        change = self._change_at(offset)
        return change.schema_id > 0 and change.level >= JUDGED_BATCHES

    def remembered(self, offset: int) -> bool:
        """Whether the record was appended on the level that remembers what it was bound to."""
        return self._remembered_from is not None and offset >= self._remembered_from

    def shown_at(self, offset: int, record: Written) -> Iterator[Shown]:
        """What the table may show of a record that stands there."""
        bound = {self.bound_at(offset): None}
        if not self.remembered(offset):
            later = (each for each in self._changes.values() if each.start > offset)
            bound |= {change.schema_id: None for change in later if change.level < BINDING_SPANS}
        return (self._shown(record, schema_id) for schema_id in bound)

    def _shown(self, record: Written, bound: int) -> Shown:
        if not bound:
            return Shown("bound to nothing")
        if record.value is None:
            return Shown("of a tombstone")
        framed = record.frame is not None
        message = self.messages.get(record.frame if record.frame is not None else bound)
        fields = message.shown(record.payload) if message is not None and record.payload is not None else None
        if fields is None:
            return Shown("with an error")
        by_frame = "by a frame" if record.frame != bound else "by a frame of its binding"
        return Shown(by_frame if framed else "by its binding", message, fields)

    def judged(self, agent: AgentNode) -> Iterator[Finding]:
        """Records for which an agent, healed and up to date, names another schema than was bound there."""
        assert agent.app is not None, "healed before it is judged"
        state = agent.app.replica.state
        topic = state.topics.get(BOUND)
        if topic is None:
            return
        for offset in filter(self.remembered, self.taken):
            told = schemas.spans_between(state, topic.partitions[0], offset, offset + 1)
            expected = [Span(offset, 0, self.bound_at(offset))]
            if told != expected:
                yield Finding("span-wrong", BOUND, f"the record at {offset}: {told}, not {expected}", ())


def asks_any(loop: VirtualLoop, agents: Sequence[AgentNode]) -> Callable[[Any], Awaitable[Any]]:
    """How somebody asks one of the agents for a command, as over HTTP. Raises OSError where none answers."""

    async def tried(agent: AgentNode, message: Any) -> Any:
        assert agent.app is not None, "it is alive"
        try:
            return await agent.app.replica.propose(message)
        except (LogError, ReplicaFailed) as error:
            raise OSError(str(error)) from error

    async def propose(message: Any) -> Any:
        agent = loop.random.choice(agents)
        if agent.app is None or not agent.alive:
            raise OSError(f"{agent.name} is not there")
        return await agent.spawn(tried(agent, message))

    return propose


async def connected(around: Surroundings) -> Connection:
    """A connection of one's own, to any agent."""
    return await Connection.open(around.loop.random.choice(around.bootstrap))


async def make_topic(around: Surroundings, topic: CreatableTopic) -> None:
    """The topic, unless it is there from a life before."""
    while True:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = await connected(around)
                await connection.call("CreateTopics", CreateTopicsRequest([topic]), CREATE_VERSION)
        except ERRORS:
            await asyncio.sleep(RETRY_S)
        else:
            return


def batch_of(topic: str, written: list[Written], records: Sequence[Written], stamp: int) -> ProduceRequest:
    """Records in one batch, each keyed by its number. `written`: all before; these are added to it."""
    first = len(written)
    written += records
    raw = build([NewRecord(stamp, str(n).encode(), each.value) for n, each in enumerate(records, first)])
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(0, memoryview(raw))])
    return ProduceRequest(None, -1, PRODUCE_MS, [data])


class Binder:
    """One process: it binds and unbinds the topic, and writes to it by connections of its own."""

    def __init__(self, around: Surroundings, bindings: Bindings, configs: Mapping[str, str]) -> None:
        self._around = around
        self._bindings = bindings
        self._configs = [CreatableTopicConfig(*each) for each in configs.items()]

    async def live(self) -> None:
        """Until told to stop."""
        await make_topic(self._around, CreatableTopic(BOUND, 1, 1, configs=self._configs))
        async with asyncio.TaskGroup() as group:
            for _ in range(WRITERS):
                group.create_task(self._write())
            group.create_task(self._bind())

    async def _bind(self) -> None:
        """By any agent. An answer that is lost changes nothing of what the log says."""
        random, bound = self._around.loop.random, None
        while not self._around.stopping.is_set():
            wanted = random.choice([each for each in (None, None, *MESSAGES) if each is not bound])
            asked = BindSchema(topic=BOUND, unbind=wanted is None, tombstones=True)
            if wanted is not None:
                asked.descriptor_set, asked.message = wanted.descriptor_set, wanted.name
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    await self._around.propose(asked)
                self._around.counts["bound" if wanted is not None else "unbound"] += 1
                bound = wanted
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(random.expovariate(1 / BOUND_S))

    async def _write(self) -> None:
        random, connection = self._around.loop.random, None
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / WRITTEN_S))
            records = [self._drawn() for _ in range(random.randint(1, BATCH_MAX))]
            request = batch_of(BOUND, self._bindings.written, records, self._around.timestamp())
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    connection = connection or await connected(self._around)
                    answer = await connection.call("Produce", request, PRODUCE_VERSION)
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
            for offset, record in enumerate(records, int(row.base_offset)):
                self._judge(record, offset)

    def _drawn(self) -> Written:
        """A plain record or a framed one, as a rule such as one of the newest schemas describes."""
        random, known = self._around.loop.random, self._bindings.messages
        if random.random() < BAD_OF:
            return Written(random.choice(BAD))
        if random.random() < TOMBSTONES_OF:
            return Written(None)
        newest = list(known)[-NEWEST:]
        frame = random.choice(newest) if newest and random.random() < FRAMED_OF else None
        reader = known[frame if frame is not None else newest[-1]] if newest else None
        if reader is None or random.random() < OTHERS_OF:
            reader = random.choice(MESSAGES)
        return Written.of(reader.drawn(random), frame)

    def _judge(self, record: Written, offset: int) -> None:
        self._bindings.taken.append(offset)
        judges = self._bindings.judges(offset)
        self._around.counts["records taken by a binding"] += judges
        if judges and record.value in BAD:
            detail = f"the record at {offset} breaks the binding at its place, and is acknowledged"
            self._around.findings.append(Finding("binding-broken", BOUND, detail, ()))
