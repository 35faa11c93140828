"""Another cluster in the same world: agents, a log and a bucket of its own, on the same network.

Its agents are real ones, as all. What watches the states of the first cluster passes them over
(`astray.py`): they are recognised by their names, a60 and on, whose numbers no agent of the first has.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from coordination.memory_server import MemoryServer
from coordination.state import StateError
from objectstore.adapters.memory import MemoryStore
from tests.checker.findings import Finding
from tests.sim.clients import Surroundings
from tests.sim.clock import START_MS
from tests.sim.faults import fault_of
from tests.sim.node import AgentNode
from tests.sim.settings import settings_of

if TYPE_CHECKING:
    from tests.sim.world import World

AGENTS = 2
TROUBLES = (
    "kill",
    "power-off",
    "stop",
    "pause",
    "cut-log",
    "refuse-log",
    "slow-log",
    "lose-answers",
    "bad-store",
    "refuse-store",
)
"""Faults that ask for nothing but the agents that they hit."""
READY_S_MAX = 60.0
AGAIN_S = 0.5


class Second:
    """A cluster of agents a{first} and on."""

    def __init__(self, world: World, first: int, server: MemoryServer, bucket: MemoryStore) -> None:
        self._world, self.server, self.bucket = world, server, bucket
        plan = world.plan
        settings = settings_of(plan) | {"log_archive": {"enabled": False}}
        settings.pop("relay", None)
        self.agents = [
            AgentNode(
                world.loop, world.network, f"a{first + n}", first + n, (server, bucket), settings, plan.ways()
            )
            for n in range(AGENTS)
        ]
        self.findings: list[Finding] = []

    @classmethod
    def empty(cls, world: World, first: int) -> Second:
        """A new one."""
        bucket = MemoryStore(lambda: START_MS + int(world.loop.time() * 1000))
        return cls(world, first, MemoryServer(f"second{first}"), bucket)

    def around(self, around: Surroundings) -> Surroundings:
        """What those have around them who know this cluster."""
        return replace(around, bootstrap=[each.bootstrap for each in self.agents], sent={})

    def trouble(self, kind: str, number: int, *, begins: bool) -> None:
        """Let something of TROUBLES begin, or end, for one agent or (beyond them) for all."""
        fault = fault_of(kind)
        targets = self.agents[number : number + 1] or self.agents
        (fault.begin if begins else fault.end)(self._world, targets)

    def restarted(self) -> None:
        """An agent that ended with an error is started again, as its supervisor would."""
        for agent in self.agents:
            error = agent.error
            if isinstance(error, StateError):
                self.findings.append(Finding("poisoned", "", f"{agent.name}: {error}"[:300], ()))
            if error is not None:
                agent.crash()
            if not agent.alive:
                agent.start()

    async def healed(self) -> bool:
        """All troubles end; whether every agent serves then."""
        for kind in TROUBLES:
            self.trouble(kind, len(self.agents), begins=False)
        self._world.network.heal_all()
        try:
            async with asyncio.timeout(READY_S_MAX):
                while not all(each.alive and each.ready and each.error is None for each in self.agents):
                    self.restarted()
                    await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            told = [(each.name, repr(each.error)) for each in self.agents if not each.ready]
            self.findings.append(Finding("stuck", "", f"not ready, {READY_S_MAX:.0f} s long: {told}", ()))
            return False
        return True
