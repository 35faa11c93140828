"""No batch overtakes one before it that failed and will be sent again, whichever step failed.

The real produce driver over the real proposals and the real state; the log between them is cranked by hand,
and every step fails at random: the PUT, the queue that is full, the wait in it, the append, the incarnation.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from agent.kafka.produce.buffer import Offered, Outcome
from agent.kafka.produce.driver import ProduceDriver
from agent.kafka.produce.planner import FlushLimits
from agent.telemetry.metrics import Metrics
from coordination.commands import Command, CreateTopic, RegisterAgent, command
from coordination.kafka_codes import Code
from coordination.log import LogEntry, Unavailable
from coordination.replica.proposals import Batch, Line, Proposals, Results, payload
from coordination.state import Done, State
from objectstore import tasks
from objectstore.batch import NewRecord, build, peek
from objectstore.naming import ChunkId
from objectstore.store import Ambiguous, Buffer, Retryable

SEEDS = 250
STEPS = 120
QUEUE_WAIT_S, OUTCOME_WAIT_S = 1.0, 2.0
STEP_KINDS = ("send", "stored", "append", "wait", "yield", "misfortune")
UNKNOWN = Code.REQUEST_TIMED_OUT
LIMITS = FlushLimits(
    buffer_bytes_max=1, linger_s=0, quiet_s=0, in_flight_max=6, puts_per_s=1e9, puts_burst=1e9
)


class Log:
    """What the replica is to the driver; time and the log's turns come from the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.state = State()
        self.proposals = Proposals(lambda: self.now, 1 << 20, 4, 1 << 20)
        self.defect = False
        """Whether the next submission ends by an exception that nobody expects."""
        self.unsure: list[Batch] = []
        """Sent, and perhaps appended."""
        self._author, self._sequence, self._revision = 6, 0, 0
        self.register()
        self.proposals.submit([command(CreateTopic(name="t", topic_id=b"t" * 16, partitions=1))], None)
        self.append()

    @property
    def incarnation(self) -> int:
        return self.proposals.incarnation

    def submit(
        self,
        commands: Sequence[Command],
        *,
        incarnation: int | None = None,
        line: Line | None = None,
        stamps: list[float] | None = None,
    ) -> Results:
        if self.defect:
            self.defect = False
            raise RuntimeError("a defect")
        return self.proposals.submit(commands, incarnation, line, stamps)

    def take(self) -> Batch | None:
        """What Author would append next: nothing while an append has no answer."""
        if self.unsure or not self.incarnation:
            return None
        return self.proposals.take(self._author, self._sequence + 1, random.choice((None, 1)))

    def append(self) -> None:
        batch = self.take()
        if batch is not None:
            self._land(batch)

    def lose(self) -> None:
        """It is sent; no answer comes."""
        batch = self.take()
        if batch is not None:
            self.unsure.append(batch)

    def fence(self) -> None:
        """The key is gone: what was sent for sure has not landed, of what is unsure nobody knows."""
        batch = self.take()
        if batch is not None:
            self.proposals.fail(batch, Unavailable("its key is gone; nothing was written"))
        self.proposals.incarnation = 0

    def landed_after_all(self) -> None:
        for batch in self.unsure:
            self._land(batch)
        self.unsure.clear()

    def register(self) -> None:
        """A new incarnation; it fences the one before."""
        self.unsure.clear()
        self._author, self._sequence = self._author + 1, 0
        self.proposals.put_first([command(RegisterAgent(name="a", node_id=-1, feature_min=1, feature_max=1))])
        batch = self.proposals.take(self._author, 1, 1)
        assert batch is not None
        self._land(batch)
        self.proposals.superseded(self._author)
        self.proposals.incarnation = self._author

    def _land(self, batch: Batch) -> None:
        self._sequence, self._revision = batch.sequence, self._revision + 1
        content = payload(batch, 1, 0)
        entry = LogEntry(self._revision, batch.incarnation, batch.sequence, content)
        self.proposals.settle(self.state.apply(entry))


@dataclass(slots=True)
class Sent:
    """A batch of one record, in the order of sending. `told_at`: how many had been sent when it was
    answered."""

    number: int
    answer: asyncio.Future[list[Outcome]]
    told_at: int | None = field(default=None)


class Story:
    """One random run."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)
        self.weights = [random.choice((1, 3, 6)) for _ in STEP_KINDS]
        self.log = Log()
        self.puts: list[asyncio.Future[None]] = []
        self.sent: list[Sent] = []
        self.stored: dict[int, list[int]] = {}
        self.driver = ProduceDriver(
            self.log, self._put, lambda *_: None, bytes(16), LIMITS, 1 << 20, Metrics()
        )

    async def _put(self, chunk: ChunkId, parts: Sequence[Buffer]) -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.puts.append(gate)
        await gate

    async def send(self) -> None:
        raw = build([NewRecord(1, None, b"%d" % len(self.sent))])
        await self.driver.room(len(raw))
        self.note_told()
        self.sent.append(Sent(len(self.sent), self.driver.append(1, [Offered(0, raw, peek(raw))])))

    def note_told(self) -> None:
        for one in self.sent:
            if one.told_at is None and one.answer.done():
                one.told_at = len(self.sent)

    def put(self, error: Exception | None) -> None:
        waiting = [gate for gate in self.puts if not gate.done()]
        if waiting:
            gate = random.choice(waiting)
            gate.set_exception(error) if error is not None else gate.set_result(None)

    async def step(self) -> None:
        match random.choices(STEP_KINDS, self.weights)[0]:
            case "send":
                await self.send()
            case "stored":
                self.put(None)
            case "append":
                self.log.landed_after_all()
                self.log.append()
            case "wait":
                self.log.now += random.choice((0.2, 0.4, 0.7))
                self.log.proposals.expire(QUEUE_WAIT_S, OUTCOME_WAIT_S)
            case "yield":
                await asyncio.sleep(0)
            case "misfortune":
                self.misfortune()
        if random.random() < 0.5:
            await asyncio.sleep(0)

    def misfortune(self) -> None:
        kinds = ("put", "put", "lose", "fence", "register", "landed and register", "defect")
        match random.choice(kinds):
            case "defect":
                self.log.defect = True
            case "put":
                self.put(random.choice((Retryable("503"), Ambiguous("lost"))))
            case "lose":
                self.log.lose()
            case "fence":
                self.log.fence()
            case "landed and register":
                self.log.landed_after_all()
                self.log.register()
            case "register":
                self.log.register()

    async def run(self) -> None:
        for _ in range(STEPS):
            await self.step()
        for _ in range(10 * STEPS):
            if all(one.answer.done() for one in self.sent):
                break
            if not self.log.incarnation or self.log.unsure:
                self.log.register()
            self.put(None)
            self.log.append()
            await asyncio.sleep(0)
        self.note_told()


async def check(seed: int) -> tuple[list[str], int, int]:
    """What is wrong, and how many batches failed and landed."""
    story = Story(seed)
    await story.run()
    wrong = []
    landed: list[tuple[int, int]] = []
    failed: list[Sent] = []
    for one in story.sent:
        if not one.answer.done():
            wrong.append(f"{one.number} is never answered")
            return wrong, 0, 0
        (outcome,) = one.answer.result()
        if outcome.code is Code.NONE:
            landed.append((outcome.base_offset, one.number))
        elif outcome.code is not UNKNOWN:
            failed.append(one)
    if sorted(landed) != landed:
        wrong.append(f"sent in order, stands as {landed}")
    for one in failed:
        assert one.told_at is not None
        over = [number for _, number in landed if one.number < number < one.told_at]
        if over:
            wrong.append(f"{one.number} failed, and {over}, sent before that was told, overtook it")
    watermark = story.log.state.topics["t"].partitions[0].high_watermark
    told = sum(one.answer.result()[0].code in (Code.NONE, UNKNOWN) for one in story.sent)
    if not len(landed) <= watermark <= told:
        wrong.append(f"{watermark} records stand in the log, {len(landed)} to {told} were told")
    await story.driver.close()
    return wrong, len(failed), len(landed)


async def test_what_failed_is_overtaken_by_nothing_that_was_sent_before_it_was_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "DEFECTS", told := tasks.Defects())
    failures = successes = 0
    for seed in range(SEEDS):
        wrong, failed, landed = await check(seed)
        assert not wrong, f"seed {seed}: {wrong}"
        failures, successes = failures + failed, successes + landed
    assert failures > SEEDS, "steps fail"
    assert successes > SEEDS, "and work"
    assert told.counts.keys() == {"submission of a flush"}


async def test_what_is_behind_an_outcome_that_cannot_be_told_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may have been refused."""
    monkeypatch.setattr(tasks, "DEFECTS", told := tasks.Defects())
    story = Story(0)
    answered: Results = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(story.log, "submit", lambda *_, **__: answered)
    await story.send()
    await asyncio.sleep(0)
    story.put(None)
    await story.send()
    await asyncio.sleep(0)
    answered.set_result([Done()])
    codes = [(await one.answer)[0].code for one in story.sent]
    assert codes == [Code.REQUEST_TIMED_OUT, Code.NOT_ENOUGH_REPLICAS]
    assert told.counts.keys() == {"outcome of a flush"}
    await story.driver.close()


async def test_without_a_line_it_is_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the log fails proposals one by one."""
    monkeypatch.setattr(Proposals, "_break", lambda self, line, error: None)
    for seed in range(SEEDS):
        wrong, _, _ = await check(seed)
        if wrong:
            assert "overtook" in wrong[0]
            return
    raise AssertionError(f"{SEEDS} seeds found nothing")
