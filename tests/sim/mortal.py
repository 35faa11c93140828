"""A topic whose records are deleted, and which is deleted itself and made again under its name.

One client does all of it, so it knows what must be there: from the log start that DeleteRecords was answered
with on, every acknowledged record of the topic's present life, once, and nothing of a life before. Records
that it deleted it brings back now and then, while they are held (floe.records.grace.ms): then they must be
there again.

These requests name the topic. So one that the network held up means the topic that has the name when it
arrives, as with any broker: a record that was sent to the last life, DeleteRecords or DeleteTopics that were
given up long ago. `Arrivals` knows what agents were asked in the present life, and when the log took a
deletion, which may be later than the agent that was asked gave it up; that is what is judged by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, for_code

from agent.kafka.handlers import k00_produce, k20_delete_topics, k21_delete_records
from agent.net.wire.generated.delete_records import DeleteRecordsRequest
from agent.net.wire.generated.produce import ProduceRequest
from coordination.commands import UndeleteRecords, UndeleteTopic
from coordination.state.held import ALL
from coordination.state.state import State
from coordination.state.types import Done
from objectstore.batch import records
from tests.checker.findings import Finding
from tests.sim.clerk import ADMIN
from tests.sim.clients import POLL_MS, RETRY_S, SHORT, Surroundings, stopped
from tests.sim.loop import NODE

MORTAL = "mortal"
KEY = TopicPartition(MORTAL, 0)
PAUSE_S = 0.4
AWAY_S_MAX = 6.0
BATCH = 4
LIFE_STEPS_MAX = 6
READ_S_MAX = 10.0
ERRORS = (KafkaError, OSError, TimeoutError)


@dataclass(slots=True, eq=False)
class _Asked:
    """What one request asks of the topic."""

    values: frozenset[bytes] = frozenset()
    before: int = 0
    """Records below that offset are to be deleted."""
    deletes: bool = False
    """The topic is to be deleted."""


class Arrivals:
    """What agents were asked to do with the topic in its present life, sent in that life or not."""

    def __init__(self) -> None:
        self._under_way: list[_Asked] = []
        self._present: list[_Asked] = []
        self.topic_id = b""
        """Of the topic that was made last."""
        self.handle = -1
        """Of its partition."""
        self.was_start = 0
        """The highest log start before records were brought back: its table may have begun there."""
        self.back = b""
        """Of the topic whose life goes on when it comes back. None where a deletion of long ago came into it:
        then somebody's Metadata may have made another one, which has nothing of what is known.
        """
        self.kept_away = False
        """Whether a fault of the plan wants the topic deleted, and not back before it is over."""
        self.away = False
        """Whether its client has deleted it and has not asked for it back yet."""

    def begin(self) -> None:
        """A life is about to begin. What is under way may come to the one before or to this one."""
        self._present, self.back = list(self._under_way), b""

    def applied(self, state: State, kinds: Sequence[str], commands: Sequence[Any], results: Any) -> None:
        """An entry was applied by the first agent: what another one gave up may be in it, and counts now."""
        topic = state.topics.get(MORTAL)
        if topic is not None and topic.partitions[0].handle != self.handle:
            self.handle, self.was_start = topic.partitions[0].handle, 0
        for kind, command, result in zip(kinds, commands, results, strict=True):
            if kind == "delete_topic" and command.delete_topic.name == MORTAL and isinstance(result, Done):
                self._present.append(_Asked(deletes=True))
            if kind == "create_topic" and command.create_topic.name == MORTAL and isinstance(result, Done):
                self.topic_id = command.create_topic.topic_id
            if kind == "undelete_topic" and isinstance(result, Done):
                self._came_back(command.undelete_topic.topic_id)
            if kind == "move_log_start" and isinstance(result, Done):
                self._moved(command.move_log_start, result)
            if kind == "undelete_records" and isinstance(result, Done):
                self._records_came_back(command.undelete_records)

    def _moved(self, message: Any, result: Done) -> None:
        """Log starts moved, also where the agent that was asked gave it up."""
        assert isinstance(result.value, tuple), "the log start of each"
        starts = dict(zip(message.partition, result.value, strict=True))
        if self.handle in starts:
            self._present.append(_Asked(before=starts[self.handle]))

    def _records_came_back(self, message: Any) -> None:
        """What was deleted before is there again; what is under way may delete it anew."""
        if self.handle in message.partition:
            self.was_start = max(self.was_start, self.before)
            self._present = [
                each if each in self._under_way else _Asked(each.values, 0, each.deletes)
                for each in self._present
            ]

    def _came_back(self, topic_id: bytes) -> None:
        """A topic was deleted and is back: what it had in its life so far it has."""
        if topic_id != self.back:
            return
        so_far = [_Asked(each.values, each.before) for each in self._present if not each.deletes]
        self._present = [*so_far, *(each for each in self._under_way if each.deletes)]

    @property
    def values(self) -> set[bytes]:
        """Of the records that came."""
        return {value for each in self._present for value in each.values}

    @property
    def before(self) -> int:
        """Records from there on were not to be deleted."""
        return max((each.before for each in self._present), default=0)

    @property
    def over(self) -> bool:
        """Whether the topic was to be deleted in what its client takes for one life."""
        return any(each.deletes for each in self._present)

    @contextmanager
    def watches(self) -> Iterator[None]:
        """What agents are asked meanwhile."""
        modules: tuple[Any, ...] = (k00_produce, k20_delete_topics, k21_delete_records)
        handles = [module.handle for module in modules]
        for module, handle in zip(modules, handles, strict=True):
            module.handle = partial(self.asked, handle)
        try:
            yield
        finally:
            for module, handle in zip(modules, handles, strict=True):
                module.handle = handle

    async def asked(self, handle: Callable[..., Awaitable[Any]], ctx: Any, request: Any, version: int) -> Any:
        """Let an agent handle a request, and note what it asks of the topic."""
        asked = _asked(request)
        if asked is None:
            return await handle(ctx, request, version)
        self._under_way.append(asked)
        self._present.append(asked)
        try:
            return await handle(ctx, request, version)
        finally:  # not reached where the agent is killed: then it stays under way
            self._under_way.remove(asked)


def _asked(request: Any) -> _Asked | None:
    """Of the topic; None of any other."""
    match request:
        case ProduceRequest():
            data = [
                each for topic in request.topic_data if topic.name == MORTAL for each in topic.partition_data
            ]
            found = (
                record.value for each in data if each.records is not None for record in records(each.records)
            )
            return _Asked(frozenset(value for value in found if value is not None)) if data else None
        case DeleteRecordsRequest():
            rows = [row for topic in request.topics if topic.name == MORTAL for row in topic.partitions]
            return _Asked(before=max(row.offset for row in rows)) if rows else None
        case _:
            names = [*request.topic_names, *(each.name for each in request.topics)]
            return _Asked(deletes=True) if MORTAL in names else None


class Mortal:
    """One client. The topic's present life has what `_acked` says, from `_start` on."""

    def __init__(self, around: Surroundings, arrivals: Arrivals) -> None:
        self._around = around
        self._arrivals = arrivals
        self._acked: dict[int, bytes] = {}
        self._start = 0
        self._next = 0

    async def live(self) -> None:
        """Until told to stop: one life of the topic after the other."""
        while not self._around.stopping.is_set():
            admin = AIOKafkaAdminClient(
                bootstrap_servers=self._around.bootstrap, client_id=NODE.get(), **ADMIN
            )
            try:
                await admin.start()
                await self._born(admin)
                for _ in range(self._around.loop.random.randint(1, LIFE_STEPS_MAX)):
                    if self._around.stopping.is_set():
                        return
                    await self._lived(admin)
                    if self._arrivals.kept_away:
                        break
                    await asyncio.sleep(self._around.loop.random.expovariate(1 / PAUSE_S))
                if await self._came_back(admin):
                    await self._lived(admin)
            except ERRORS:
                await asyncio.sleep(RETRY_S)
            finally:
                await admin.close()

    async def _born(self, admin: Any) -> None:
        """Delete the topic until it is gone, then make it. An answer that was lost may come true still."""
        changes: tuple[tuple[Callable[[], Awaitable[Any]], type[KafkaError] | None], ...] = (
            (lambda: admin.delete_topics([MORTAL]), UnknownTopicOrPartitionError),
            (lambda: admin.create_topics([NewTopic(MORTAL, 1, 1)]), None),
        )
        for change, done in changes:
            self._arrivals.begin()  # the second time counts: then the topic is gone
            answer = await change()
            for _, code, *_ in getattr(answer, "topic_errors", None) or answer.topic_error_codes:
                if code and (done is None or for_code(code) is not done):
                    raise for_code(code)
        self._acked, self._start = {}, 0
        self._arrivals.away = False
        self._around.counts["topics made again"] += 1

    async def _came_back(self, admin: Any) -> bool:
        """Delete the topic and bring it back. Whether it is there."""
        topic_id, over = self._arrivals.topic_id, self._arrivals.over
        self._arrivals.back = b"" if over else topic_id
        answer = await admin.delete_topics([MORTAL])
        if not topic_id or any(code for _, code, *_ in answer.topic_error_codes):
            return False
        self._arrivals.away = True
        await asyncio.sleep(Random(self._next).uniform(0, AWAY_S_MAX))
        while self._arrivals.kept_away and not self._around.stopping.is_set():  # noqa: ASYNC110 - polls a flag
            await asyncio.sleep(RETRY_S)
        self._arrivals.away = False
        result = await self._around.propose(UndeleteTopic(topic_id=topic_id))
        if not isinstance(result, Done):
            return False
        self._around.counts["topics of another life brought back" if over else "topics brought back"] += 1
        return True

    async def _lived(self, admin: Any) -> None:
        """Write, take the oldest away, read."""
        await self._written()
        if self._acked and self._around.loop.random.random() < 0.5:
            before = self._around.loop.random.choice(sorted(self._acked))
            answer = await admin.delete_records({KEY: RecordsToDelete(before)})
            if answer.get(KEY) is not None:
                self._start = max(self._start, before)
                self._around.counts["records deleted"] += 1
        if self._start and self._around.loop.random.random() < 0.5:
            await self._brought_back()
        known = [offset for offset in self._acked if offset >= self._start]
        found = await self._read()
        self._judge(known, found)

    async def _brought_back(self) -> None:
        """Bring records back, to one that was acknowledged or as many as are held."""
        to = self._around.loop.random.choice([ALL, *(each for each in self._acked if each < self._start)])
        message = UndeleteRecords(partition=[self._arrivals.handle], offset=[to])
        result = await self._around.propose(message)
        if isinstance(result, Done):
            assert isinstance(result.value, tuple), "the log start of each"
            self._around.counts["records brought back"] += result.value[0] < self._start
            self._start = result.value[0]

    async def _written(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._around.bootstrap, enable_idempotence=True, client_id=NODE.get(), **SHORT
        )
        try:
            await producer.start()
            for _ in range(BATCH):
                self._next += 1
                value = f"{NODE.get()}.{self._next}".encode()
                stamp_ms = self._around.timestamp()
                done = await producer.send_and_wait(MORTAL, value, partition=0, timestamp_ms=stamp_ms)
                self._acked[done.offset] = value
        finally:
            await stopped(producer)

    async def _read(self) -> list[tuple[int, bytes]]:
        """Everything that is there."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._around.bootstrap,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            client_id=NODE.get(),
            **SHORT,
        )
        try:
            await consumer.start()
            consumer.assign([KEY])
            await consumer.seek_to_beginning(KEY)
            end = (await consumer.end_offsets([KEY]))[KEY]
            found: list[tuple[int, bytes]] = []
            async with asyncio.timeout(READ_S_MAX):
                while await consumer.position(KEY) < end:
                    records = await consumer.getmany(timeout_ms=POLL_MS)
                    found += [(each.offset, each.value) for each in records.get(KEY, ())]
            return found
        finally:
            await stopped(consumer)

    def _judge(self, known: list[int], found: list[tuple[int, bytes]]) -> None:
        came, offsets = self._arrivals.values, [offset for offset, _ in found]
        wrong = [f"{value!r} at {at} is of a life before" for at, value in found if value not in came]
        if offsets != sorted(dict.fromkeys(offsets)):
            wrong.append(f"out of order: {offsets}")
        if not self._arrivals.over:
            kept = self._arrivals.before
            wrong += [f"{each} is read after it was deleted" for each in offsets if each < self._start]
            wrong += [f"{each} was acknowledged and is gone" for each in known
                      if each >= kept and each not in offsets]  # fmt: skip
            wrong += [f"{at}: {value!r} is not what was acknowledged" for at, value in found
                      if self._acked.get(at, value) != value]  # fmt: skip
        self._around.findings += [Finding("mortal", MORTAL, each, ()) for each in wrong]
