"""Clients of the simulation: real aiokafka on the virtual network, each of their calls an operation.

A client that meets an error gives itself up: its process ends as a crashed one does and a new one follows,
under a process number of its own. What had been asked of it and not answered is `info`.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError

from tests.checker.findings import Finding
from tests.checker.operations import Micro, Operation, Outcome, Poll, Send
from tests.sim.clock import START_MS
from tests.sim.keys import Keys
from tests.sim.loop import NODE, VirtualLoop

SHORT = {"request_timeout_ms": 3000, "metadata_max_age_ms": 3000, "retry_backoff_ms": 50}
RETRY_S = 0.2
POLL_MS = 200
IDLE_S = 0.1
PADDED_OF = 0.1
LISTED_OF = 1 / 64
REASSIGNED_OF = 1 / 64
READ_MAX = 6
"""Keys that one reader is assigned."""
Finish = Callable[[Operation], None]


@dataclass(slots=True)
class Pending:
    """An operation under way, with the outcome that it has if its client dies now."""

    process: int
    f: str
    invoked_ns: int
    micro: list[Micro]
    outcome: Outcome = "info"
    error: str = "crash"


class Recorder:
    """Collects operations in the order of their completions."""

    def __init__(self, loop: VirtualLoop, trace: Callable[[str], None]) -> None:
        self.operations: list[Operation] = []
        self._loop = loop
        self._trace = trace
        self._processes = 0

    def process(self) -> int:
        """A new process number."""
        self._processes += 1
        return self._processes

    def now_ns(self) -> int:
        """Virtual nanoseconds."""
        return int(self._loop.time() * 1e9)

    def leave(self, pending: Pending) -> None:
        """What was called and has come to an end, or never will."""
        self.note(
            pending.process,
            pending.f,
            pending.outcome,
            pending.invoked_ns,
            pending.micro,
            error=pending.error,
        )

    def note(
        self,
        process: int,
        f: str,
        outcome: Outcome,
        invoked_ns: int,
        micro: Sequence[Micro] = (),
        keys: Sequence[str] = (),
        error: str = "",
    ) -> None:
        """One completion."""
        op = Operation(
            len(self.operations), process, f, outcome, tuple(micro), tuple(keys), frozenset(),
            invoked_ns, self.now_ns(), error,
        )  # fmt: skip
        self.operations.append(op)
        self._trace(f"{process} {f} {outcome} {error}".rstrip())


async def nobody(message: Any) -> Any:
    """Nobody takes a command."""
    raise OSError(f"no agent takes {message}")


async def nobody_answers(agent: int, method: str, path: str, body: object) -> tuple[int, Any]:
    """Nobody serves HTTP."""
    raise OSError(f"nobody answers {method} {path} at {agent}: {body}")


@dataclass(slots=True)
class Surroundings:
    """What every client needs."""

    loop: VirtualLoop
    recorder: Recorder
    bootstrap: list[str]
    keys: Keys
    stopping: asyncio.Event
    fetch_bytes: int
    """max.partition.fetch.bytes of the readers."""
    seeks_back: bool = True
    """Whether a consumer goes back to where a transaction began that was aborted."""
    drained: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when groups have read everything: their members are told to stop after all others."""
    unsure: set[str] = field(default_factory=set)
    """Topics that may have more partitions than anybody was told."""
    propose: Callable[[Any], Awaitable[Any]] = nobody
    """A command to the log, by any agent, as over HTTP. Raises OSError where there is none."""
    ask: Callable[[int, str, str, object], Awaitable[tuple[int, Any]]] = nobody_answers
    """A request over HTTP (registrar.py)."""
    crash: Callable[[], None] = lambda: None
    """The client that asks for it dies."""
    revision: Callable[[], int] = int
    """Of the log, which nobody can ask."""
    sent: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    """By transactional id of v1 the positions of its transaction, once they are answered."""
    counts: Counter[str] = field(default_factory=Counter)
    """What clients did, for the coverage."""
    skipped: set[str] = field(default_factory=set)
    """Places that the copying client passed over after an abort."""
    before_end: Callable[[], None] | None = None
    """What happens to the member that comes to the end of a transaction whose positions are sent, once."""
    names: int = 0
    """Numbers given so far, to new topics and to positions that only ever grow."""
    readers: defaultdict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """By group the processes that read for it."""
    findings: list[Finding] = field(default_factory=list)
    """What clients themselves saw go wrong."""
    healed_s: float = inf
    """Since when nothing is wrong any more, event loop time."""

    def any_key(self) -> TopicPartition:
        """One to write to."""
        return self.keys.written(self.loop.random)

    def new_name(self, of: str) -> str:
        """A name that no topic had before."""
        self.names += 1
        return f"{of}{self.names}"

    def timestamp(self) -> int:
        """Unix ms for a record."""
        return START_MS + int(self.loop.time() * 1000)


def name(key: TopicPartition) -> str:
    """A key as the history spells it."""
    return f"{key.topic}-{key.partition}"


class Writer:
    """Sends small groups of records until told to stop. `pending`: what a crash leaves unanswered."""

    def __init__(self, around: Surroundings, rate: float) -> None:
        self._around = around
        self._pause_s = 1 / rate
        self._next = 0
        self.pending: Pending | None = None

    async def live(self) -> None:
        """Until told to stop: one process after the other."""
        while not self._around.stopping.is_set():
            process = self._around.recorder.process()
            producer = AIOKafkaProducer(
                bootstrap_servers=self._around.bootstrap,
                enable_idempotence=True,
                client_id=NODE.get(),
                **SHORT,
            )
            try:
                await producer.start()
                await self._write(producer, process)
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(producer)

    async def _write(self, producer: Any, process: int) -> None:
        random = self._around.loop.random
        while not self._around.stopping.is_set():
            await asyncio.sleep(random.expovariate(1 / self._pause_s))
            sends = []
            for _ in range(random.choice((1, 1, 2, 4))):
                self._next += 1
                sends.append((self._around.any_key(), f"{process}.{self._next}"))
            await self._operation(producer, process, sends)

    async def _operation(self, producer: Any, process: int, sends: list[tuple[TopicPartition, str]]) -> None:
        recorder = self._around.recorder
        invoked = recorder.now_ns()
        self.pending = Pending(process, "send", invoked, [Send(name(key), value) for key, value in sends])
        futures = []
        error: BaseException | None = None
        for key, value in sends:
            try:
                await partition_known(producer, key)
                futures.append(
                    await producer.send(
                        key.topic,
                        value.encode(),
                        key=value.encode(),
                        partition=key.partition,
                        timestamp_ms=self._around.timestamp(),
                        headers=self._padding(),
                    )
                )
            except (KafkaError, OSError, TimeoutError) as raised:
                error = raised
                break
        told = await asyncio.gather(*futures, return_exceptions=True)
        done = []
        for position, (key, value) in enumerate(sends):
            answer = told[position] if position < len(told) else None
            offset = None if answer is None or isinstance(answer, BaseException) else answer.offset
            offset = None if offset == -1 else offset  # aiokafka's for what the broker remembers no more
            done.append(Send(name(key), value, offset))
            error = answer if isinstance(answer, BaseException) else error
        self.pending = None
        outcome: Outcome = "ok" if error is None else "info"
        what = "" if error is None else type(error).__name__
        recorder.note(process, "send", outcome, invoked, done, error=what)
        if error is not None:
            raise error

    def _padding(self) -> list[tuple[str, bytes]]:
        """Now and then a record is larger than a small fetch."""
        random = self._around.loop.random
        return [("padding", b"." * random.randint(200, 1500))] if random.random() < PADDED_OF else []


class Reader:
    """Polls keys of its own choice from the start or where it was, until told to stop."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around

    async def live(self) -> None:
        """Until told to stop: one process after the other."""
        while not self._around.stopping.is_set():
            consumer = committed(self._around)
            process = self._around.recorder.process()
            try:
                await consumer.start()
                await self._read(consumer, process)
            except (KafkaError, OSError, TimeoutError):
                await asyncio.sleep(RETRY_S)
            finally:
                await stopped(consumer)

    async def _read(self, consumer: Any, process: int) -> None:
        random, recorder = self._around.loop.random, self._around.recorder
        self._assign(consumer, process)
        while not self._around.stopping.is_set():
            if random.random() < LISTED_OF:  # Jepsen's list-append: the whole list, by a new process
                process = recorder.process()
                self._assign(consumer, process)
                await consumer.seek_to_beginning()
            elif random.random() < REASSIGNED_OF:  # without a group it begins at the start of new keys
                process = recorder.process()
                self._assign(consumer, process)
            await polled(consumer, recorder, process)
            await asyncio.sleep(IDLE_S)

    def _assign(self, consumer: Any, process: int) -> None:
        random, recorder = self._around.loop.random, self._around.recorder
        keys = self._around.keys.some(random, READ_MAX)
        consumer.assign(keys)
        recorder.note(process, "assign", "ok", recorder.now_ns(), keys=[name(key) for key in keys])


async def polled(consumer: Any, recorder: Recorder, process: int) -> int:
    """One poll as an operation; the number of records."""
    invoked = recorder.now_ns()
    records: Mapping[TopicPartition, Sequence[Any]] = await consumer.getmany(timeout_ms=POLL_MS)
    recorder.note(process, "poll", "ok", invoked, [Poll(seen(records))])
    return sum(len(each) for each in records.values())


def seen(records: Mapping[TopicPartition, Sequence[Any]]) -> dict[str, tuple[tuple[int, str], ...]]:
    """What one poll returned, as the history spells it."""
    return {
        name(key): tuple((each.offset, each.value.decode()) for each in records[key])
        for key in sorted(records)
    }


async def partition_known(producer: Any, key: TopicPartition) -> None:
    """aiokafka asserts that it knows a partition: let it look again, the topic may have grown."""
    if key.partition not in await producer.partitions_for(key.topic):
        await producer.client.force_metadata_update()
        if key.partition not in await producer.partitions_for(key.topic):
            raise UnknownTopicOrPartitionError(str(key))


def committed(around: Surroundings) -> Any:
    """A consumer of this process, of committed records; assigned nothing yet, and commits nothing itself."""
    return AIOKafkaConsumer(
        bootstrap_servers=around.bootstrap,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        client_id=NODE.get(),
        isolation_level="read_committed",
        max_partition_fetch_bytes=around.fetch_bytes,
        **SHORT,
    )


async def stopped(client: Any) -> None:
    """Stop a client of aiokafka, which may be in any state."""
    try:
        async with asyncio.timeout(5):
            await client.stop()
    except (KafkaError, OSError, TimeoutError):
        return
