"""What is wrong now, as this agent knows it: what `floe doctor` would say of it, and of others by the log.

The alert rules (deploy/alerts.yaml) look at figures over time, which takes Prometheus; these are the same
conditions for the moment (agent/health/ailments.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agent.health.ailments import Ailment, Grade, ailments
from agent.health.told import Told
from agent.http.console.markup import Content, Html, many, table, tag
from agent.http.console.shell import Page

if TYPE_CHECKING:
    from starlette.requests import Request

    from agent.http.console.others import Others
    from agent.http.gauges import Gauges
    from agent.http.parts import Parts

HERE: Final = "/console/alarms"
SHOWN: Final = 100
KEPT_S: Final = 5.0
"""For how long what was found is shown again: to gather it takes in all tables."""
Gather = Callable[[], Awaitable[Mapping[str, Any]]]


class Alarms:
    """Makes the page."""

    def __init__(self, parts: Parts, gather: Gather, gauges: Gauges, others: Others) -> None:
        self._parts, self._gather, self._gauges, self._others = parts, gather, gauges, others
        self._found: list[Ailment] = []
        self._at_s: float | None = None

    async def page(self, _request: Request) -> Page:
        """Of the cluster, for whoever may describe it."""
        found = await self._ailments()
        silent = await self._others.silent()
        heads = ("How bad", "Where", "What", "What to do", "Read on")
        note = (
            f"What agent {self._parts.config.agent_name} knows of itself and by the log; "
            "floe doctor asks all agents for all of it."
        )
        more = tag("p", f"and {len(found) - SHOWN:,} more") if len(found) > SHOWN else None
        live = many(
            (
                table(heads, map(_row, found[:SHOWN]), "nothing is wrong that this agent knows of"),
                more,
                *_of_others(silent),
                tag("p", note, class_="doc"),
            )
        )
        return Page("Alarms", HERE, live)

    async def _ailments(self) -> list[Ailment]:
        now_s = self._parts.clock.monotonic()
        if self._at_s is None or now_s - self._at_s >= KEPT_S:
            status, samples = await self._gather(), await self._gauges.samples()
            own = Told(self._parts.config.agent_name, "", status, samples, at=now_s)
            self._found, self._at_s = ailments([own], self._parts.clock.now_ms()), now_s
        return self._found


def _row(one: Ailment) -> tuple[Content, ...]:
    grade = tag("span", str(one.grade), class_="bad" if one.grade is Grade.WRONG else None)
    return grade, one.where, one.what, one.remedy, one.page


def _of_others(silent: Sequence[tuple[str, str]]) -> list[Html]:
    if not silent:
        return []
    return [
        tag("h2", "Agents that do not answer this one, or are not ready"),
        table(("Agent", "Why"), silent),
    ]
