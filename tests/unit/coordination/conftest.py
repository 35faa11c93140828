"""Agents over one log and one store in memory, stopped at the end of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from coordination.clock import ManualClock
from coordination.commands import RegisterAgent
from coordination.memory_log import MemoryLog
from coordination.memory_server import MemoryServer
from coordination.replica import Replica, ReplicaOptions
from objectstore.adapters.memory import MemoryStore
from tests.unit.coordination.kit import A, B, Script

QUICK = ReplicaOptions(
    ttl_s=1.0, heartbeat_s=0.2, members_s=0.1, tick_s=0.02, gap_s=0.2, queue_wait_s=0.5, outcome_wait_s=5.0,
    barrier_s=5.0, confirm_s=5.0, stop_s=1.0, retry_s=0.02,
)  # fmt: skip


class Agents:
    """Makes agents that share a log and a store."""

    def __init__(self) -> None:
        self.server = MemoryServer()
        self.store = MemoryStore()
        self.made: list[Replica] = []
        self.logs: dict[str, MemoryLog] = {}

    def make(self, name: str, *, silent_s: float = 0.5, **options: float) -> Replica:
        """An agent that has not started; its link is `logs[name]`."""
        clock = ManualClock(seed=len(self.made) + 1)
        log = self.logs[name] = MemoryLog(self.server, clock, timeout_s=0.05, silent_s=silent_s)
        made = Replica(log, self.store, clock, replace(QUICK, **options))
        self.made.append(made)
        return made

    async def start(self, name: str, *, silent_s: float = 0.5, **options: float) -> Replica:
        """An agent that is registered."""
        made = self.make(name, silent_s=silent_s, **options)
        await made.start(registration(name))
        return made


def registration(name: str, level: int = 1) -> RegisterAgent:
    """What an agent of this name registers with."""
    return RegisterAgent(name=name, node_id=-1, feature_min=level, feature_max=level)


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; the test's own timeout ends a wait that never does."""
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.005)


@pytest.fixture
def script() -> Script:
    """A log with two agents, A and B."""
    made = Script()
    made.register(A)
    made.register(B)
    return made


@pytest.fixture
async def agents() -> AsyncIterator[Agents]:
    made = Agents()
    yield made
    for log in made.logs.values():
        log.faults.refused = log.faults.partitioned = False
    for replica in made.made:
        await replica.stop()
    for log in made.logs.values():
        await log.close()
