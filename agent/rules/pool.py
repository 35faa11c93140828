"""The workers that evaluate rules: started when first needed, shared by all topics, bounded in every way.

A worker that does not answer in time is ended, with the batch that it was at; the next batch gets a new one.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from agent.config import RulesConfig
from agent.rules.messages import Bad, Check, Findings, Hello, OwnTrial, Source, Trial, Tried
from agent.rules.turns import Turns
from agent.rules.verdicts import Verdicts
from coordination.helper import LIGHT_BYTES_MAX, Helper, HelperDied
from objectstore import tasks
from schema.rules.problem import Problem
from schema.rules.ruled import Ruled, Run
from schema.validator import BAD_RECORDS_MAX

_T = TypeVar("_T")

MODULE = "agent.rules.process"
START_SECONDS_MAX = 60.0
"""Longest time until a worker is there, seconds; it counts apart from what it is then asked."""

WAITS_MAX = 6
"""`rules.batch_s_max` is time on a processor: a worker that gets none is waited for so many times as long."""

PIECE_RECORDS_MIN = 2_000
"""Records from which on a batch is shared by several workers: each of them decodes all of it."""

KINDS_MAX = 10_000
"""Message types that have numbers; one that is not used for longest gets another one."""

SLACK = 0.05
"""Share of that time that may be wanting: it is counted in ticks, and the agent has its own part."""

TRIES = 2
"""Workers that may end over one piece of work: the first may have been ended by something else."""

BINDINGS = "(bindings)"
"""Whose turn it is when rules are tried; no topic is called that."""


class Unusable(Exception):
    """The rules were not evaluated, and would not be the next time; the message says why."""


class Busy(Exception):
    """There is too much to evaluate just now; nothing was done."""


class Starved(Exception):
    """A worker got too little of a processor to say anything of the rules."""


class _Worker:
    """One helper process and what it costs to have it."""

    def __init__(self, config: RulesConfig) -> None:
        self._helper = Helper(MODULE, START_SECONDS_MAX + WAITS_MAX * config.batch_s_max)
        self._config = config
        self._spent: float | None = None
        self.ended = 0

    @property
    def pid(self) -> int | None:
        """None while there is none."""
        return self._helper.pid

    async def ask(self, message: object, parts: Sequence[memoryview] = (), *, light: bool = False) -> Any:
        """What it answers. Raises TimeoutError and Starved, with the worker ended, and HelperDied."""
        if self._helper.pid is None:
            try:
                async with asyncio.timeout(START_SECONDS_MAX):
                    (self._spent, _), _ = await self._helper.ask(Hello(self._config.worker_bytes_max))
            except TimeoutError:
                raise HelperDied(f"not started within {START_SECONDS_MAX:.0f} s") from None
        most = self._config.batch_s_max
        watch = _Watch(self._helper.pid, most, self._spent)
        try:
            async with watch.begun(asyncio.timeout(WAITS_MAX * most)):
                (self._spent, answer), _ = await self._helper.ask(message, parts, light=light)
        except TimeoutError:
            if watch.over:
                raise
            raise Starved from None
        finally:
            watch.end()
        return answer

    async def close(self) -> None:
        await self._helper.close()


class _Watch:
    """Looks whether a worker has had the time on a processor that it may have for one answer."""

    def __init__(self, pid: int | None, seconds_max: float, before: float | None) -> None:
        """`before`: its seconds at its last answer, as it told; to look it up would cost each batch."""
        self._pid, self._max, self._before = pid, seconds_max, before
        self._loop = asyncio.get_running_loop()
        self._limit = asyncio.timeout(None)
        self._next: asyncio.TimerHandle | None = None
        self.over = False

    def begun(self, limit: asyncio.Timeout) -> asyncio.Timeout:
        """From now on; `limit` ends when the time is over."""
        self._limit = limit
        self._next = self._loop.call_later(self._max, self._look)
        return limit

    def _look(self) -> None:
        now = processor_seconds(self._pid)
        left = 0.0 if self._before is None or now is None else self._max - (now - self._before)
        if left <= self._max * SLACK:
            self.over = True
            self._limit.reschedule(self._loop.time())
        else:
            self._next = self._loop.call_later(left, self._look)

    def end(self) -> None:
        """No more looks."""
        if self._next is not None:
            self._next.cancel()


def processor_seconds(pid: int | None) -> float | None:
    """What a process has had of processors; None where nobody tells: then the loop's clock decides."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it ended, or this is no Linux
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class RulesPool:
    """All rules of this agent's topics are evaluated here."""

    def __init__(self, config: RulesConfig) -> None:
        self._config = config
        self._workers = [_Worker(config) for _ in range(config.workers)]
        self._turns = Turns(self._workers)
        self._numbers: OrderedDict[bytes, int] = OrderedDict()
        self._next = 0
        self._bytes: Counter[str] = Counter()
        self._closed = False
        self._verdicts = Verdicts()
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers that were started and not ended."""
        return [each.pid for each in self._workers if each.pid is not None]

    @property
    def sizes(self) -> dict[str, int]:
        """What is under way, for /status."""
        return {
            "rules_bytes": self._bytes.total(),
            "rules_waiting": self._turns.waiting,
            "rules_workers": len(self.pids),
        }

    async def check(
        self,
        topic: str,
        batch: memoryview,
        ruled: Ruled,
        records: int,
        *,
        stop: bool,
        bad_max: int = BAD_RECORDS_MAX,
        violations_max: int = 0,
    ) -> Findings:
        """Evaluate the rules of a batch of so many records. `stop`: one bad record refuses them all.

        At most `bad_max` bad ones are told, with so many violations of each one by one.

        Raises Unusable, and Busy where the topic has too much under way already or waited too long.
        """
        runs: Mapping[str, Sequence[Run]] = ruled.runs
        count, apart = records, ruled.apart
        if apart is not None:  # the others surely obey
            known = (
                self._verdicts.findings(apart.signed, bad_max) if apart.signed and violations_max else None
            )
            if known is not None:
                return _in_place(known, apart.places, records)
            batch, runs, count = memoryview(apart.batch), apart.runs, len(apart.places)
        self._admit(topic, len(batch))
        roles = tuple(ruled.roles - ruled.settled)
        asked = Check([], runs, 0, count, bad_max, stop, {}, violations_max, roles, ruled.own)
        found = await self._whatever_comes(topic, len(batch), self._shared(topic, batch, ruled, asked))
        if apart is None:
            return found
        if apart.signed:
            self._verdicts.learn(apart.signed, found, violations_max)
        return _in_place(found, apart.places, records)

    async def trial(self, descriptor_set: bytes, messages: Sequence[str]) -> Sequence[Problem]:
        """The rules of messages, by their full names, that cannot be used. Raises Unusable and Busy."""
        self._admit(BINDINGS, len(descriptor_set))
        return await self._tried(Trial(descriptor_set, messages), len(descriptor_set))

    async def own_trial(self, asked: OwnTrial) -> Sequence[Problem]:
        """A topic's own rules that cannot be used. Raises Unusable and Busy."""
        size = sum(len(each[0]) for each in (asked.key, asked.value) if each is not None)
        self._admit(BINDINGS, size)
        return await self._tried(asked, size)

    async def _tried(self, asked: Trial | OwnTrial, size: int) -> Sequence[Problem]:
        tried = await self._whatever_comes(BINDINGS, size, self._ask(BINDINGS, asked))
        assert isinstance(tried, Tried)
        if tried.unusable:
            raise Unusable(tried.unusable)
        return tried.problems

    async def close(self) -> None:
        """End the workers. Idempotent."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._workers))

    async def _whatever_comes(self, topic: str, size: int, work: Coroutine[Any, Any, _T]) -> _T:
        """Do it to its end though the client may leave: to give it up would end a worker."""
        task = tasks.owned(work, "rules")
        self._tasks.add(task)

        def done(_: asyncio.Task[_T]) -> None:
            if not task.cancelled():
                task.exception()  # nobody may be left to take it
            self._tasks.discard(task)
            self._bytes[topic] -= size
            if not self._bytes[topic]:
                del self._bytes[topic]

        task.add_done_callback(done)
        return await asyncio.shield(task)

    def _admit(self, topic: str, size: int) -> None:
        """Count it in. Who has nothing under way is let in as long as others have left room."""
        most, held = self._config.bytes_in_flight_max, self._bytes.total()
        own = self._bytes[topic] + size
        if (self._bytes[topic] and own > most // 2) or (held and held + size > most):
            raise Busy(
                f"rules of topic {topic} wait to be evaluated for {self._bytes[topic]} bytes of records "
                f"(rules.bytes_in_flight_max={most}, half of it for a topic): send again"
            )
        self._bytes[topic] = own

    async def _shared(self, topic: str, batch: memoryview, ruled: Ruled, asked: Check) -> Findings:
        """By as many workers as the batch is worth, of those that have nothing else to do.

        Each decodes all of it: where others wait, that is time taken from them.
        """
        records, left = asked.end, asked.end if ruled.left is None else ruled.left
        count = max(1, min(self._turns.idle(topic), left // PIECE_RECORDS_MIN))
        ends = [records * number // count for number in range(count + 1)]
        kinds = {self._number(each.digest): each for each in ruled.kinds}
        checks = [replace(asked, kinds=[*kinds], first=first, end=end) for first, end in pairwise(ends)]
        sources = {number: (each.descriptor_set, each.name) for number, each in kinds.items()}
        if count == 1:
            return await self._piece(topic, checks[0], batch, sources)
        found = await asyncio.gather(
            *(self._piece(topic, each, batch, sources) for each in checks), return_exceptions=True
        )
        failed = next((each for each in found if isinstance(each, BaseException)), None)
        if failed is not None:
            raise failed
        return _together([each for each in found if isinstance(each, Findings)], asked.bad_max)

    async def _piece(
        self, topic: str, check: Check, batch: memoryview, sources: dict[int, Source]
    ) -> Findings:
        worker = await self._turn(topic)
        try:
            light = len(batch) <= LIGHT_BYTES_MAX and not check.sources
            found: Findings = await self._answer(worker, topic, check, [batch], light=light)
            if found.missing:
                lacks = {number: sources[number] for number in found.missing}
                again = replace(check, sources=lacks)
                found = await self._answer(worker, topic, again, [batch])
        finally:
            self._turns.give(topic, worker)
        if found.missing:
            raise Busy("a worker was replaced twice while it evaluated rules: send again")
        if found.unusable:
            raise Unusable(found.unusable)
        return found

    async def _ask(self, topic: str, message: object) -> Any:
        worker = await self._turn(topic)
        try:
            return await self._answer(worker, topic, message, ())
        finally:
            self._turns.give(topic, worker)

    async def _turn(self, topic: str) -> _Worker:
        if self._closed:
            raise Busy("the agent is stopping: send again")
        worker = self._turns.take_now(topic)
        if worker is not None:
            return worker
        try:
            async with asyncio.timeout(self._config.wait_ms_max / 1000):
                return await self._turns.take(topic)
        except TimeoutError:
            raise Busy(
                f"no worker had time for rules of topic {topic} within {self._config.wait_ms_max} ms "
                "(rules.wait_ms_max, rules.workers): send again"
            ) from None

    async def _answer(
        self,
        worker: _Worker,
        topic: str,
        message: object,
        parts: Sequence[memoryview],
        *,
        light: bool = False,
    ) -> Any:
        for _ in range(TRIES):
            with suppress(HelperDied):
                try:
                    return await worker.ask(message, parts, light=light)
                except TimeoutError:
                    raise Unusable(
                        f"the rules were not evaluated within {self._config.batch_s_max:g} s "
                        "(rules.batch_s_max): make them cheaper, or send smaller batches"
                    ) from None
                except Starved:
                    raise Busy(
                        f"a worker had no {self._config.batch_s_max:g} s of a processor (rules.batch_s_max) "
                        f"for rules of topic {topic} in {WAITS_MAX} times as long: send again"
                    ) from None
            worker.ended += 1
        raise Unusable(
            f"the process that evaluates rules ended {TRIES} times over this "
            f"(it may have {self._config.worker_bytes_max} bytes, rules.worker_bytes_max)"
        )

    def _number(self, digest: bytes) -> int:
        """Under which number workers know a message type."""
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = self._next
            self._next += 1
            if len(self._numbers) > KINDS_MAX:
                self._numbers.popitem(last=False)
        self._numbers.move_to_end(digest)
        return number


def _in_place(found: Findings, places: Sequence[int], records: int) -> Findings:
    """What was found of these records of a batch of so many, told of the batch."""
    bad = [Bad(places[each.index], each.role, each.reason, each.violations) for each in found.bad]
    return replace(found, records=records, bad=bad)


def _together(pieces: Sequence[Findings], bad_max: int) -> Findings:
    """The findings of a batch from those of its pieces."""
    if len(pieces) == 1:
        return pieces[0]
    whole = Findings()
    for each in pieces:
        whole.records += each.records
        whole.bad_records += each.bad_records
        whole.bad += each.bad[: bad_max - len(whole.bad)]
        for key, count in each.broken.items():
            whole.broken[key] = whole.broken.get(key, 0) + count
    return whole
