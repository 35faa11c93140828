"""Looks at something again and again while this agent follows the log."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from objectstore import coalesced, tasks

if TYPE_CHECKING:
    from coordination.replica import Replica


class Looking(ABC):
    """One look each `every_s` seconds, from `start` to `stop`."""

    def __init__(self, replica: Replica, name: str, every_s: float) -> None:
        """`name`: of the task, as a defect in it is told."""
        self._replica = replica
        self._name, self._every_s = name, every_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = tasks.kept(self._run, self._name)

    async def stop(self) -> None:
        """End it. Idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            if self._replica.ready:
                await self.look()
            await asyncio.sleep(coalesced.pause_s(self._every_s))

    @abstractmethod
    async def look(self) -> None:
        """One look, in steps."""
