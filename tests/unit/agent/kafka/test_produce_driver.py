"""The produce driver: order, errors and memory, over the real state machine with a hand-cranked log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from agent.kafka.produce import driver
from agent.kafka.produce.buffer import Offered, Outcome
from agent.kafka.produce.driver import ProduceDriver
from agent.kafka.produce.planner import FlushLimits
from agent.telemetry.metrics import Metrics
from coordination.commands import Command, CreateTopic, Entry, RegisterAgent, SetFeatureLevel, command
from coordination.kafka_codes import Code
from coordination.log import LogEntry, Unavailable
from coordination.replica.errors import OutcomeUnknown, StaleIncarnation
from coordination.replica.proposals import Line
from coordination.state.state import State
from coordination.state.types import Result
from objectstore import tasks
from objectstore.adapters.memory import MemoryStore
from objectstore.batch import NewRecord, build, peek
from objectstore.chunk import verify
from objectstore.naming import ChunkId, chunk_key
from objectstore.store import Buffer, Retryable

LIMITS = FlushLimits(linger_s=0.02, quiet_s=0.001, puts_per_s=10_000, puts_burst=10_000)
CLUSTER = bytes(16)
PARTITIONS = 4


class CrankedLog:
    """A submitter over a real State; `held` keeps proposals until `crank`, `failures` fail the next ones."""

    def __init__(self) -> None:
        self.state = State()
        self.incarnation = 7
        self.held = False
        self.failures: list[Exception | None] = []
        self.proposals: list[tuple[list[Command], asyncio.Future[list[Result]]]] = []
        self.lines: list[Line | None] = []
        self._sequence = 0
        self.apply([command(RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=2))])
        self.apply([command(CreateTopic(name="t", topic_id=b"t" * 16, partitions=PARTITIONS))])

    def apply(self, commands: Sequence[Command]) -> list[Result]:
        self._sequence += 1
        entry = Entry(format=1, incarnation=7, sequence=self._sequence, proposed_ms=1, commands=commands)
        payload = entry.SerializeToString()
        return list(self.state.apply(LogEntry(self._sequence, 7, self._sequence, payload)).results)

    def submit(
        self, commands: Sequence[Command], *, line: Line | None = None, **_more: object
    ) -> asyncio.Future[list[Result]]:
        self.lines.append(line)
        future: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            future.set_exception(failure)
        else:
            self.proposals.append((list(commands), future))
            if not self.held:
                self.crank()
        return future

    def crank(self) -> None:
        for commands, future in self.proposals:
            future.set_result(self.apply(commands))
        self.proposals.clear()

    @property
    def partition(self) -> list[int]:
        return [p.high_watermark for p in self.state.topics["t"].partitions]


class Puts:
    """PUTs into a memory store, held until released where `hold` is set; `fail` fails by chunk number."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.hold = False
        self.fail: dict[int, BaseException] = {}
        self.started: list[int] = []
        self.began = asyncio.Event()
        self._gates: dict[int, asyncio.Event] = {}

    async def put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> None:
        self.started.append(chunk.number)
        self.began.set()
        if self.hold:
            await self._gates.setdefault(chunk.number, asyncio.Event()).wait()
        if chunk.number in self.fail:
            raise self.fail[chunk.number]
        await self.store.put(chunk_key(chunk), parts)

    def release(self, number: int) -> None:
        self._gates[number].set()


class Harness:
    def __init__(self, limits: FlushLimits = LIMITS, bytes_max: int = 1 << 20) -> None:
        self.log = CrankedLog()
        self.puts = Puts()
        self.kept: list[tuple[ChunkId, int, bytes, int]] = []
        self.driver = ProduceDriver(
            self.log, self.puts.put, self._keep, CLUSTER, limits, bytes_max, Metrics()
        )

    def _keep(self, chunk: ChunkId, position: int, parts: Sequence[Buffer], base: int) -> None:
        self.kept.append((chunk, position, b"".join(parts), base))

    async def send(self, *batches: Offered, connection: int = 1) -> asyncio.Future[list[Outcome]]:
        await self.driver.room(sum(b.size for b in batches))
        return self.driver.append(connection, batches)


def offer(
    handle: int = 0, count: int = 1, *, producer: int = -1, sequence: int = -1, size: int = 10
) -> Offered:
    raw = build(
        [NewRecord(1, None, b"x" * size)] * count,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=sequence,
    )
    return Offered(handle, raw, peek(raw))


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Harness]]:
    made: list[Harness] = []

    def build_harness(limits: FlushLimits = LIMITS, bytes_max: int = 1 << 20) -> Harness:
        made.append(Harness(limits, bytes_max))
        return made[-1]

    yield build_harness
    for harness in made:
        await harness.driver.close()


async def settle(harness: Harness, puts: int) -> None:
    """Let the loop run until so many PUTs have begun."""
    async with asyncio.timeout(5):
        while len(harness.puts.started) < puts:
            harness.puts.began.clear()
            await harness.puts.began.wait()


async def test_batches_of_many_partitions_are_one_chunk_and_get_their_offsets(
    make: Callable[..., Harness],
) -> None:
    harness = make()
    answer = await (await harness.send(offer(2, 3), offer(0, 2), offer(2, 1)))
    assert [outcome.base_offset for outcome in answer] == [0, 0, 3]
    assert harness.log.partition == [2, 0, 4, 0]
    chunk = ChunkId(7, 1)
    slices = verify(await harness.puts.store.get(chunk_key(chunk)), chunk)
    assert [(s.partition, s.batches) for s in slices] == [(0, 1), (2, 2)]


async def test_own_chunks_fill_the_cache_by_runs(make: Callable[..., Harness]) -> None:
    harness = make()
    first, second, other = offer(2, 3), offer(2, 1), offer(3, 1)
    await (await harness.send(first, other, second))
    assert [(c.number, base, raw) for c, _, raw, base in harness.kept] == [
        (1, 0, bytes(first.data) + bytes(second.data)),
        (1, 0, bytes(other.data)),
    ]
    refs = harness.log.state.topics["t"].partitions[2].slices.plan(0, 1 << 20)
    assert [(r.chunk, r.position, r.length) for r in refs] == [
        (c, position, len(raw)) for c, position, raw, _ in harness.kept[:1]
    ]


async def test_commands_follow_the_order_of_flushes_not_of_puts(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.puts.hold = True
    first = await harness.send(offer(0, 1), connection=1)
    second = await harness.send(offer(0, 1), connection=2)
    await settle(harness, 2)
    harness.puts.release(2)
    await asyncio.sleep(0.01)
    assert not second.done()
    harness.puts.release(1)
    assert [(await first)[0].base_offset, (await second)[0].base_offset] == [0, 1]


async def test_a_failed_put_is_retriable_and_nothing_after_it_overtakes(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.puts.hold = True
    harness.puts.fail[2] = Retryable("503")
    answers = [await harness.send(offer(0, 1)) for _ in range(3)]
    await settle(harness, 3)
    harness.puts.release(3)
    harness.puts.release(2)
    harness.puts.release(1)
    codes = [(await answer)[0] for answer in answers]
    assert codes[0].base_offset == 0
    assert [c.code for c in codes[1:]] == [Code.NOT_ENOUGH_REPLICAS] * 2
    assert [c.base_offset for c in codes[1:]] == [-1, -1]
    assert harness.log.partition[0] == 1
    harness.puts.hold = False
    assert (await (await harness.send(offer(0, 1))))[0].base_offset == 1, "the driver goes on"


async def test_a_flush_that_fails_in_the_log_takes_those_behind_it_along(
    make: Callable[..., Harness],
) -> None:
    """Its producer sends it again: whoever came behind it must not be in the log before that."""
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.puts.hold = True
    harness.log.failures = [Unavailable("down")]
    first, second = [await harness.send(offer(0, 1)) for _ in range(2)]
    await settle(harness, 2)
    harness.puts.release(1)
    assert (await first)[0].code is Code.NOT_ENOUGH_REPLICAS
    harness.puts.release(2)
    assert (await second)[0].code is Code.NOT_ENOUGH_REPLICAS
    assert harness.log.partition[0] == 0


class Panic(BaseException):
    """What native code raises: no Exception."""


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), MemoryError("full"), Panic("native"), asyncio.CancelledError()], ids=repr
)
async def test_a_put_that_fails_as_nobody_expects_is_told_to_producers_and_the_next_works(
    make: Callable[..., Harness], error: BaseException
) -> None:
    """It used to hold up every later flush, without a word."""
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.puts.fail[1] = error
    first = await harness.send(offer(0, 1))
    second = await harness.send(offer(0, 1))
    for answer in (first, second):
        async with asyncio.timeout(5):
            (outcome,) = await answer
        assert (outcome.code, outcome.base_offset) == (Code.NOT_ENOUGH_REPLICAS, -1)
    assert (await (await harness.send(offer(0, 1))))[0].base_offset == 0
    assert harness.driver.budget.used == 0


async def test_a_chunk_that_cannot_be_made_fails_alone(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make()

    def full(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(driver, "make_flush", full)
        async with asyncio.timeout(5):
            (outcome,) = await (await harness.send(offer(0, 1)))
    assert outcome.code is Code.NOT_ENOUGH_REPLICAS
    for _ in range(2 * LIMITS.in_flight_max):
        assert (await (await harness.send(offer(0, 1))))[0].code is Code.NONE
    assert harness.driver.budget.used == 0


async def test_what_apply_took_is_acknowledged_though_the_cache_fails(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make()

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(harness.driver, "_keep_own", full)
    for offset in range(2 * LIMITS.in_flight_max):
        async with asyncio.timeout(5):
            assert (await (await harness.send(offer(0, 1))))[0].base_offset == offset


async def test_an_answer_of_the_log_that_makes_no_sense_is_an_unknown_outcome(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = make()
    with monkeypatch.context() as patched:
        patched.setattr(harness.log, "apply", lambda commands: ["nonsense"])
        async with asyncio.timeout(5):
            (outcome,) = await (await harness.send(offer(0, 1)))
    assert outcome.code is Code.REQUEST_TIMED_OUT
    assert (await (await harness.send(offer(0, 1))))[0].code is Code.NONE


async def test_what_follows_a_failed_put_stays_in_the_line_of_what_waits_for_the_log(
    make: Callable[..., Harness],
) -> None:
    """It must not overtake those before either, should they fail in the log yet."""
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.log.held = True
    harness.puts.fail[2] = Retryable("503")
    first, second, third = [await harness.send(offer(0, 1)) for _ in range(3)]
    assert (await second)[0].code is (await third)[0].code is Code.NOT_ENOUGH_REPLICAS
    last = await harness.send(offer(0, 1))
    await settle(harness, 4)
    while len(harness.log.lines) < 2:  # noqa: ASYNC110 - the driver says nothing when it submits
        await asyncio.sleep(0.001)
    assert harness.log.lines[0] is harness.log.lines[1] is not None
    harness.log.crank()
    assert [(await first)[0].base_offset, (await last)[0].base_offset] == [0, 1]


async def test_what_waits_in_the_buffer_does_not_overtake_a_failed_put(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, linger_s=5))
    harness.puts.hold = True
    harness.puts.fail[1] = Retryable("503")
    first = await harness.send(offer(0, 1))
    await settle(harness, 1)
    second = await harness.send(offer(0, 1))
    harness.puts.release(1)
    assert [(await first)[0].code, (await second)[0].code] == [Code.NOT_ENOUGH_REPLICAS] * 2


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (StaleIncarnation("over"), Code.NOT_LEADER_OR_FOLLOWER),
        (Unavailable("down"), Code.NOT_ENOUGH_REPLICAS),
        (OutcomeUnknown("lost"), Code.REQUEST_TIMED_OUT),
    ],
)
async def test_every_failed_append_is_told_truly_with_offset_minus_one(
    make: Callable[..., Harness], failure: Exception, code: Code
) -> None:
    harness = make()
    harness.log.failures = [failure]
    outcome = (await (await harness.send(offer(0, 1))))[0]
    assert (outcome.code, outcome.base_offset) == (code, -1)
    assert outcome.message
    assert (await (await harness.send(offer(1, 1))))[0].code is Code.NONE, "the driver goes on"


async def test_idempotent_retries_are_decided_at_apply(make: Callable[..., Harness]) -> None:
    harness = make()
    batch = offer(0, 2, producer=5, sequence=0)
    first = (await (await harness.send(batch)))[0]
    again = (await (await harness.send(batch)))[0]
    gap = (await (await harness.send(offer(0, 1, producer=5, sequence=9))))[0]
    assert (first.code, first.base_offset) == (again.code, again.base_offset) == (Code.NONE, 0)
    assert (gap.code, gap.base_offset) == (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert harness.log.partition[0] == 2
    assert len(harness.kept) == 2, "a duplicate's bytes are kept under its first offset, harmlessly"


async def test_requests_wait_for_room_and_get_it_in_order(make: Callable[..., Harness]) -> None:
    batch = offer(0, 1, size=400)
    harness = make(bytes_max=len(batch.data) * 2)
    harness.puts.hold = True
    await harness.send(batch)
    await settle(harness, 1)
    await harness.send(batch)
    waiting = asyncio.create_task(harness.driver.room(len(batch.data)))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    harness.puts.release(1)
    async with asyncio.timeout(5):
        await waiting
    harness.driver.budget.give(len(batch.data))


async def test_giving_up_while_waiting_for_room_leaves_the_budget_whole(make: Callable[..., Harness]) -> None:
    harness = make(bytes_max=100)
    await harness.driver.room(100)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await harness.driver.room(50)
    harness.driver.budget.give(100)
    assert (harness.driver.budget.used, harness.driver.budget.waiting) == (0, 0)
    async with asyncio.timeout(5):
        await harness.driver.room(1000)  # above the limit: alone
    harness.driver.budget.give(1000)


async def test_draining_waits_for_every_outcome(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, linger_s=100, quiet_s=100))
    harness.log.held = True
    answers = [await harness.send(offer(0, 1)) for _ in range(3)]
    draining = asyncio.create_task(harness.driver.drain())
    await settle(harness, 2)
    await asyncio.sleep(0.01)
    assert not draining.done()
    while not draining.done():
        harness.log.crank()
        await asyncio.sleep(0.001)
    assert [(await answer)[0].base_offset for answer in answers] == [0, 1, 2]


async def test_a_closed_driver_answers_that_the_agent_is_leaving(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, linger_s=100))
    harness.puts.hold = True
    flushing = await harness.send(offer(0, 1))
    buffered = await harness.send(offer(0, 1))
    await settle(harness, 1)
    await harness.driver.close()
    late = await harness.send(offer(0, 1))
    for answer in (flushing, buffered, late):
        assert (await answer)[0].code is Code.NOT_LEADER_OR_FOLLOWER
    assert harness.driver.budget.used == 0


async def test_who_has_stepped_aside_takes_nothing(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, linger_s=100))
    harness.driver.away = lambda: True
    answer = await harness.send(offer(0, 1))
    assert answer.done(), "at once: the client is to ask who leads now"
    assert (await answer)[0].code is Code.NOT_LEADER_OR_FOLLOWER
    assert not harness.puts.started
    assert harness.driver.budget.used == 0


async def test_a_put_that_is_given_up_is_no_defect(
    make: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "DEFECTS", told := tasks.Defects())
    harness = make(replace(LIMITS, buffer_bytes_max=1))
    harness.puts.hold = True
    harness.puts.fail[1] = Retryable("503")
    answers = [await harness.send(offer(0, 1)) for _ in range(2)]
    await settle(harness, 2)
    harness.puts.release(1)
    assert [(await answer)[0].code for answer in answers] == [Code.NOT_ENOUGH_REPLICAS] * 2
    await asyncio.sleep(0.01)  # the second one's PUT hears that it is cancelled
    assert not told.newest


async def test_what_has_its_outcome_is_judged_by_nothing_older(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.puts.hold = True
    answers = [await harness.send(offer(0, 1)._replace(judged=5)) for _ in range(2)]
    await settle(harness, 1)
    assert not harness.driver.judged_since(6), "whichever partition it is about: they may share a chunk"
    assert harness.driver.judged_since(5)
    harness.puts.hold = False
    for number in harness.puts.started:
        harness.puts.release(number)
    await asyncio.gather(*answers)
    assert harness.driver.judged_since(6)


async def test_a_request_of_more_batches_than_one_chunk_takes_is_split(make: Callable[..., Harness]) -> None:
    harness = make(replace(LIMITS, batches_max=3))
    answer = await (await harness.send(*[offer(n % PARTITIONS) for n in range(10)]))
    assert [outcome.code for outcome in answer] == [Code.NONE] * 10
    assert harness.log.partition == [3, 3, 2, 2]
    assert len(harness.puts.started) == 4


def parted(sequence: int, *, count: int = 4, aside: int = 2, size: int = 10) -> Offered:
    """A batch for partition 1 of which records were set aside for partition 0."""
    main = offer(1, count, producer=7, sequence=sequence, size=size)
    return main._replace(companion=offer(0, aside, size=size))


async def test_a_companion_is_stored_and_answered_with_its_batch(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.log.apply([command(SetFeatureLevel(level=2))])
    told: list[tuple[int, int]] = []
    harness.driver.on_companion = lambda handle, records: told.append((handle, records))
    first, second = await harness.send(parted(0), offer(0, 3)), await harness.send(parted(4), parted(0))
    assert [each.base_offset for each in await first] == [0, 0]
    assert [each.base_offset for each in await second] == [4, 0], "the last one is a duplicate"
    assert harness.log.partition[:2] == [7, 8]
    assert told == [(0, 2), (0, 2)]
    assert harness.driver.budget.used == 0
    for chunk in harness.puts.started:
        number = ChunkId(7, chunk)
        stored = await harness.puts.store.get(chunk_key(number))
        assert [each.partition for each in verify(stored, number)] == [0, 1]


async def test_what_fails_takes_both_and_gives_all_bytes_back(make: Callable[..., Harness]) -> None:
    harness = make()
    harness.log.apply([command(SetFeatureLevel(level=2))])
    harness.puts.fail[1] = Retryable("no")
    outcome = await harness.send(parted(0))
    assert harness.driver.budget.used > len(parted(0).data)
    assert [each.code for each in await outcome] == [Code.NOT_ENOUGH_REPLICAS]
    harness.log.failures.append(OutcomeUnknown("?"))
    assert [each.code for each in await (await harness.send(parted(0)))] == [Code.REQUEST_TIMED_OUT]
    assert harness.log.partition[:2] == [0, 0]
    assert harness.driver.budget.used == 0
    assert [each.code for each in await (await harness.send(parted(0)))] == [Code.NONE]


async def test_companions_count_towards_what_one_chunk_takes(make: Callable[..., Harness]) -> None:
    limits = replace(LIMITS, batches_max=4)
    harness = make(limits)
    harness.log.apply([command(SetFeatureLevel(level=2))])
    outcomes = [await harness.send(*(parted(4 * number) for number in range(5)))]
    assert [[each.base_offset for each in await one] for one in outcomes] == [[0, 4, 8, 12, 16]]
    assert len(harness.puts.started) == 3, "two batches with their companions in each"
