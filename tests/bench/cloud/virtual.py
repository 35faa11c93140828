"""The produce path's own waits in virtual time: what its rules cost under a store's delays, and nothing else.

The real driver, planner, putter and state machine; the store takes what is drawn for it, the log appends one
entry at a time, all that waits together, and processors are infinitely fast. So a run is the same everywhere
and says what the rules are worth, where a measurement on a shared machine says what the machine does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random

from agent.config.limits import ProduceConfig
from agent.kafka.assembly import flush_limits, put_chunk_of, reads_of
from agent.kafka.produce.buffer import Offered
from agent.kafka.produce.driver import ProduceDriver
from agent.telemetry.metrics import Metrics
from coordination.commands import Command, CreateTopic, Entry, RegisterAgent, command
from coordination.log import LogEntry
from coordination.state.state import State
from coordination.state.types import Result
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import peek
from objectstore.store import PLAIN, Buffer, ObjectMeta, PutMode
from tests.bench.cloud.delays import PROFILES, Delay, Profile, draws
from tests.bench.cloud.load import PARTITIONS, Load
from tests.bench.load import batch_of
from tests.sim.loop import VirtualLoop
from tests.unit.agent.costs.planned import config_of

APPEND = Delay(0.004, 0.012, tail_share=0.0)
"""One entry of etcd's three members, with a disk each and a millisecond between them."""

NAMES_MAX = 64
READ_BYTES = 64 * 1024


class FarStore(MemoryStore):
    """Takes what is drawn, half of it before the effect. Holds what was put lately: hedges look at it."""

    def __init__(self, profile: Profile, seed: int) -> None:
        super().__init__()
        self._write_s, self._read_s = draws(profile.write, seed), draws(profile.read, seed + 1)
        self._names: deque[str] = deque()
        self.puts = self.gets = 0

    async def put(self, key: str, parts: Sequence[Buffer], mode: PutMode = PLAIN) -> str:
        """See ObjectStore."""
        self.puts += 1
        way = next(self._write_s) / 2
        await asyncio.sleep(way)
        try:
            etag = await super().put(key, parts, mode)
            self._names.append(key)
            if len(self._names) > NAMES_MAX:
                await super().delete([self._names.popleft()])
            return etag
        finally:
            await asyncio.sleep(way)

    async def head(self, key: str) -> ObjectMeta:
        """See ObjectStore."""
        await asyncio.sleep(next(self._read_s))
        return await super().head(key)

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        await asyncio.sleep(next(self._read_s))
        return await super().get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See ObjectStore."""
        self.gets += 1
        await asyncio.sleep(next(self._read_s))
        return await super().get_range(key, start, length)


class FarLog:
    """A submitter over a real state: an entry takes a while, and holds all that waited for it."""

    incarnation = 7

    def __init__(self, seed: int) -> None:
        self.state, self._sequence, self._draws = State(), 0, draws(APPEND, seed)
        self._waiting: list[tuple[Sequence[Command], asyncio.Future[list[Result]]]] = []
        self._more = asyncio.Event()
        self._apply([command(RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=2))])
        self._apply([command(CreateTopic(name="t", topic_id=b"t" * 16, partitions=PARTITIONS))])

    def _apply(self, commands: Sequence[Command]) -> list[Result]:
        self._sequence += 1
        entry = Entry(format=1, incarnation=7, sequence=self._sequence, proposed_ms=1, commands=commands)
        at = LogEntry(self._sequence, 7, self._sequence, entry.SerializeToString())
        return list(self.state.apply(at).results)

    def submit(self, commands: Sequence[Command], **_others: object) -> asyncio.Future[list[Result]]:
        """See Submitter; nothing fails here."""
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, future))
        self._more.set()
        return future

    async def run(self) -> None:
        """Append for ever."""
        while True:
            await self._more.wait()
            self._more.clear()
            entry, self._waiting = self._waiting, []
            await asyncio.sleep(next(self._draws))
            results = iter(self._apply([each for commands, _ in entry for each in commands]))
            for commands, future in entry:
                future.set_result([next(results) for _ in commands])


@dataclass(frozen=True, slots=True)
class Waits:
    """Milliseconds from due to acknowledged, of each request that counts; PUTs a second, hedges included."""

    taken_ms: list[float]
    puts_per_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """Milliseconds of each read; GETs for each, hedges included."""

    taken_ms: list[float]
    gets: float


async def _produce(driver: ProduceDriver, load: Load, number: int, taken: list[float]) -> None:
    loop, raw = asyncio.get_running_loop(), batch_of(load.records)
    due, turn = Random(load.seed * 1_000 + number).random() * load.period_s, number

    async def one(due: float, handle: int) -> None:
        outcomes = await driver.append(number, [Offered(handle, raw, peek(raw))])
        assert not outcomes[0].code, outcomes
        if due >= load.warm_s:
            taken.append(1000 * (loop.time() - due))

    async with asyncio.TaskGroup() as asked:
        while due < load.seconds:
            await asyncio.sleep(due - loop.time())
            await driver.room(len(raw))
            asked.create_task(one(due, turn % PARTITIONS))
            turn, due = turn + 1, due + load.period_s


async def _run(profile: str, settings: ProduceConfig, load: Load) -> Waits:
    config, metrics, taken = config_of(settings), Metrics(), list[float]()
    store, log = FarStore(PROFILES[profile], load.seed), FarLog(load.seed + 1)
    put = put_chunk_of(config, store, metrics)
    driver = ProduceDriver(
        log, put, lambda *_: None, bytes(16), flush_limits(config), settings.buffer_bytes_max, metrics
    )
    appending = asyncio.create_task(log.run())
    async with asyncio.TaskGroup() as producers:
        for number in range(load.producers):
            producers.create_task(_produce(driver, load, number, taken))
    appending.cancel()
    with suppress(asyncio.CancelledError):
        await appending
    await driver.close()
    return Waits(taken, store.puts / load.seconds)


async def _read(profile: str, hedge_ms: int, reads_per_s: int, seconds: float, seed: int) -> Reading:
    store, metrics, taken = FarStore(PROFILES[profile], seed), Metrics(), list[float]()
    await store.put("chunk", [bytes(READ_BYTES)])
    config = config_of(ProduceConfig())
    config = config.model_copy(update={"fetch": config.fetch.model_copy(update={"hedge_ms": hedge_ms})})
    reads, loop = reads_of(config, store, metrics), asyncio.get_running_loop()

    async def one() -> None:
        began = loop.time()
        await reads.get_range("chunk", 0, READ_BYTES)
        taken.append(1000 * (loop.time() - began))

    async with asyncio.TaskGroup() as asked:
        for _ in range(int(seconds * reads_per_s)):
            asked.create_task(one())
            await asyncio.sleep(1 / reads_per_s)
    return Reading(taken, store.gets / len(taken))


def reading(profile: str, hedge_ms: int, reads_per_s: int, seconds: float, seed: int) -> Reading:
    """One run of consumers' reads of the store; `hedge_ms` is fetch.hedge_ms."""
    loop = VirtualLoop(seed)
    try:
        return loop.run_until_complete(_read(profile, hedge_ms, reads_per_s, seconds, seed))
    finally:
        loop.put_away()


def waits(profile: str, settings: ProduceConfig, load: Load) -> Waits:
    """One run."""
    loop = VirtualLoop(load.seed)
    try:
        return loop.run_until_complete(_run(profile, settings, load))
    finally:
        loop.put_away()
