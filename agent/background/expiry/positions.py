"""Forgets positions and groups past their retention (offsets.retention.minutes), as Kafka's cleanup does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from coordination import broker_configs
from coordination.clock import Clock
from coordination.commands import ExpireOffsets
from coordination.jobs import Job
from coordination.replica import Replica
from coordination.replica.clock_watch import deletion_ms
from coordination.state.group_offsets import expirable
from coordination.state.types import ClaimHolder

POLL_S = 5.0
GROUPS_PER_STEP = 64  # groups looked at before the event loop gets its turn, and named in one command
POSITIONS_PER_STEP = 10_000  # likewise, of their positions: about 3 ms
MINUTE_MS = 60_000


class OffsetExpiry(Job):
    """Every offsets.retention.check.interval.ms, proposes to forget old positions; apply decides which."""

    claim = "offset-expiry"

    def __init__(self, replica: Replica, clock: Clock, *, poll_s: float = POLL_S) -> None:
        super().__init__(replica, poll_s)
        self._clock = clock
        self._due_s = 0.0

    async def step(self, held: ClaimHolder) -> None:
        """One pass over all groups when it is time."""
        configs = self.replica.state.cluster_configs
        if self._clock.monotonic() < self._due_s:
            return
        pause_ms = broker_configs.integer(configs, "offsets.retention.check.interval.ms")
        self._due_s = self._clock.monotonic() + pause_ms / 1000
        retention_ms = broker_configs.integer(configs, "offsets.retention.minutes") * MINUTE_MS
        names = iter(list(self.replica.state.groups))
        while step := self._few(names):
            found = []
            for name in step:
                with self.item(f"group {name}", self._without(name)):
                    found += [name] if await self._expirable(name, retention_ms) else []
            if found:
                command = ExpireOffsets(retention_ms=retention_ms, group=found)
                await self.replica.propose(command, incarnation=held.incarnation)
            await asyncio.sleep(0)

    def _without(self, name: str) -> Callable[[], bool]:
        """Tells whether that group is gone."""
        return lambda: name not in self.replica.state.groups

    def _few(self, names: Iterator[str]) -> list[str]:
        """The next groups: so many, and no more positions than that but for one group's."""
        step: list[str] = []
        positions = 0
        while len(step) < GROUPS_PER_STEP and positions < POSITIONS_PER_STEP:
            name = next(names, None)
            if name is None:
                break
            group = self.replica.state.groups.get(name)
            positions += 0 if group is None else len(group.offsets)
            step.append(name)
        return step

    async def _expirable(self, name: str, retention_ms: int) -> bool:
        """Whether anything of the group is; one with very many positions is looked at in parts."""
        now_ms, start = deletion_ms(self.replica.state, self._clock.now_ms()), 0
        while (group := self.replica.state.groups.get(name)) is not None:
            places = slice(start, start + POSITIONS_PER_STEP)
            if expirable(self.replica.state, group, now_ms, retention_ms, places):
                return True
            start += POSITIONS_PER_STEP
            if start >= len(group.offsets):
                break
            await asyncio.sleep(0)
        return False
