"""Files that are replaced while the agent runs: certificates, keys, authorities, lists of users.

They are looked at by their times, sizes and inodes, which tells a Kubernetes Secret too that
was mounted anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from agent.telemetry.logs import logger
from objectstore import coalesced, tasks

_log = logger("renewal")


class Renewable(Protocol):
    """Something made of files."""

    name: str
    """What it is, for the log."""
    problem: str
    """Why what lies on the disk is not in force; empty when it is."""

    def renew(self) -> bool:
        """Look whether the files changed, in a thread. True when what is in force, or `problem`, is new."""


class Renewal:
    """Looks at each every `interval_s` seconds. `told` hears of each change."""

    def __init__(
        self, things: Sequence[Renewable], interval_s: float, told: Callable[[Renewable], None]
    ) -> None:
        self._things, self._interval_s, self._told = things, interval_s, told
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._things:
            self._task = tasks.kept(self._run, "renewal of certificates")

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(coalesced.pause_s(self._interval_s))
            await self.look()

    async def look(self) -> None:
        """Look at everything once."""
        for thing in self._things:
            if not await asyncio.to_thread(thing.renew):
                continue
            if thing.problem:
                _log.error("new files are refused, the old stay", what=thing.name, reason=thing.problem)
            else:
                _log.info("new files are in force", what=thing.name)
            self._told(thing)
