"""Random faults on every link of the memory log: acknowledged is there once, in order, for everybody."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from coordination.chain import KeyState
from coordination.clock import ManualClock
from coordination.log import Fenced, LogEntry, Trimmed, Unavailable
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from tests.contract.log_labs import until

CLIENTS = 3
APPENDS = 12
FAULTS = (
    "lose_request",
    "lose_answer",
    "partition",
    "cancel",
    "silence",
    "compact",
    "expire",
    "delay",
    "trim",
)


@dataclass
class Outcome:
    """What one client was told of its appends."""

    acknowledged: dict[bytes, int] = field(default_factory=dict)
    unknown: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)


async def write(log: MemoryLog, number: int, outcome: Outcome) -> None:
    """Append; register again as a new incarnation whenever fenced."""
    incarnation, chain = number * 1000, None
    for value in range(APPENDS):
        payload = b"%d-%d" % (number, value)
        while chain is None:
            incarnation += 1
            try:
                chain = await log.register(incarnation, b"", 60.0)
            except (Unavailable, Fenced):
                await asyncio.sleep(0.001)
        try:
            outcome.acknowledged[payload] = await chain.append(payload)
        except Fenced as fenced:
            (outcome.unknown if fenced.maybe_appended else outcome.refused).add(payload)
            chain = None
        await asyncio.sleep(0.002)  # so that the faults fall between the appends


async def read(log: MemoryLog, seen: list[LogEntry], through: list[int]) -> None:
    """Follow; what was trimmed before it was read is left out, as after loading a snapshot."""
    position = 0
    while True:
        try:
            async for batch in log.follow(position):
                seen += batch.entries
                position = through[0] = batch.through
        except Trimmed as trimmed:
            position = trimmed.through


async def harm(server: MemoryServer, logs: list[MemoryLog], chance: random.Random) -> None:
    """One random fault."""
    fault, log = chance.choice(FAULTS), chance.choice(logs)
    if fault == "lose_request":
        log.faults.lose_requests += 1
    elif fault == "lose_answer":
        log.faults.lose_answers += 1
    elif fault == "partition":
        log.faults.partitioned = not log.faults.partitioned
    elif fault == "cancel":
        server.cancel_watches()
    elif fault == "silence":
        server.silence_watches()
    elif fault == "compact":
        server.compact(server.revision)
    elif fault == "expire":
        members = server.members()
        if members:
            server.expire(chance.choice(members).incarnation)
    elif fault == "delay":
        log.faults.delivery_delay_s = chance.choice((0.0, 0.002))
    else:
        server.trim(server.revision // 2)


class CarelessServer(MemoryServer):
    """Negative control: appends without comparing, so a retry of what landed lands again."""

    def append(self, incarnation: int, sequence: int, payload: bytes, expected: int) -> int | KeyState | None:
        key = self._state.keys.get(incarnation)
        return super().append(incarnation, sequence, payload, key.revision if key else expected)


async def run(seed: int, server: MemoryServer) -> tuple[list[Outcome], list[list[LogEntry]], list[LogEntry]]:
    chance = random.Random(seed)
    logs = [MemoryLog(server, ManualClock(seed + n), timeout_s=0.002, silent_s=0.005) for n in range(CLIENTS)]
    outcomes = [Outcome() for _ in logs]
    seen: list[list[LogEntry]] = [[] for _ in logs]
    through = [[0] for _ in logs]
    truth: list[LogEntry] = []
    appended = server.append

    def recorded(incarnation: int, sequence: int, payload: bytes, expected: int) -> Any:
        result = appended(incarnation, sequence, payload, expected)
        if isinstance(result, int):
            truth.append(LogEntry(result, incarnation, sequence, payload))
        return result

    server.append = recorded  # type: ignore[method-assign]  # of this server
    writers = [asyncio.create_task(write(log, n, outcomes[n])) for n, log in enumerate(logs)]
    readers = [asyncio.create_task(read(log, seen[n], through[n])) for n, log in enumerate(logs)]
    for _ in range(40):
        await harm(server, logs, chance)
        await asyncio.sleep(0.001)
    for log in logs:
        log.faults.partitioned, log.faults.delivery_delay_s = False, 0.0
    await asyncio.gather(*writers)
    await until(lambda: all(reached[0] >= server.revision for reached in through))
    for task in readers:
        task.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for log in logs:
        await log.close()
    return outcomes, seen, truth


def check(seed: int, server: MemoryServer) -> None:
    outcomes, seen, truth = asyncio.run(run(seed, server))
    at = {entry.payload: entry.revision for entry in truth}
    assert len(at) == len(truth), "nothing landed twice"
    for outcome in outcomes:
        assert all(at[payload] == revision for payload, revision in outcome.acknowledged.items())
        assert not outcome.refused & at.keys(), "a definite no is a no"
        revisions = list(outcome.acknowledged.values())
        assert revisions == sorted(revisions)
        assert len(outcome.acknowledged) + len(outcome.refused) + len(outcome.unknown) == APPENDS
    for entries in seen:
        revisions = [entry.revision for entry in entries]
        assert revisions == sorted(set(revisions)), "each once, in order"
        assert set(entries) <= set(truth)
        missing = [entry.revision for entry in truth if entry not in entries]
        assert all(revision <= server.trimmed for revision in missing), "only a trim takes entries away"


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
def test_acknowledged_once_in_order_and_the_same_for_all(seed: int) -> None:
    check(seed, MemoryServer())


def test_an_append_without_the_compare_is_caught() -> None:
    def caught(seed: int) -> bool:
        try:
            check(seed, CarelessServer())
        except AssertionError as error:
            return "nothing landed twice" in str(error)
        return False

    assert any(caught(seed) for seed in range(20))
