"""Previews that were shown: each can be confirmed once, for a while, by whom it was shown to."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.config.console import ConsoleConfig
from agent.http.console.changing.plans import Plan, Refusal
from coordination.clock import Clock
from objectstore import tasks

NAME_BYTES = 32
"""Of what a preview is called: nobody guesses it."""


class Owner(NamedTuple):
    """Whom a preview was shown to. `browser`: by its cookie."""

    principal: str
    host: str
    browser: str


@dataclass(slots=True, eq=False)
class Preview:
    """`until_s`: monotonic seconds. `doing`: since it was confirmed."""

    plan: Plan
    kind: str
    owner: Owner
    until_s: float
    doing: asyncio.Task[Sequence[Refusal]] | None = None

    def do(self) -> asyncio.Task[Sequence[Refusal]]:
        """The change, begun once. It goes on when whoever asked has gone."""

        async def change() -> Sequence[Refusal]:
            return await self.plan.do(False)

        if self.doing is None:
            self.doing = tasks.owned(change(), "console change")
        return self.doing


class Previews:
    """Of one agent, in bounds: the oldest is forgotten first."""

    def __init__(self, config: ConsoleConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._kept: OrderedDict[str, Preview] = OrderedDict()

    def name(self) -> str:
        """A new name that nobody guesses."""
        return self._clock.random_bytes(NAME_BYTES).hex()

    def keep(self, plan: Plan, kind: str, owner: Owner) -> str:
        """Remember one; what it is called."""
        name, until_s = self.name(), self._clock.monotonic() + self._config.preview_ms_max / 1000
        self._kept[name] = Preview(plan, kind, owner, until_s)
        while len(self._kept) > self._config.preview_entries_max:
            self._kept.popitem(last=False)
        return name

    def find(self, name: str, kind: str, owner: Owner) -> Preview | None:
        """The one that was shown to this owner; None: there is none, or its time is over."""
        found = self._kept.get(name)
        if found is None or found.kind != kind or found.owner != owner:
            return None
        if found.doing is None and self._clock.monotonic() > found.until_s:
            del self._kept[name]
            return None
        return found

    def forget(self, name: str) -> None:
        """It is not true any more."""
        self._kept.pop(name, None)
