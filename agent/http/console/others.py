"""All agents of the cluster, asked side by side: how much goes through each, and who does not answer.

One look at a time, whoever asks, in the background: a page shows what the last one found and waits for a
moment at most, however many agents are silent.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.cluster.peers.wire import PeerAnswered, PeerError
from agent.telemetry.told_figures import COUNTED, ToldFigures, decoded, told_now
from objectstore.tasks import start

if TYPE_CHECKING:
    from agent.http.parts import Parts
    from coordination.state.types import Broker

SIDE_BY_SIDE: Final = 8
AGAIN_S: Final = 2.0
"""Between two looks."""
RATE_S: Final = 30.0
"""An earlier look is forgotten when another one is so old: rates are over about this time."""
FIRST_WAIT_S: Final = 0.05
"""That a page waits for a look."""


class Line(NamedTuple):
    """One agent. `rates` per second by name of COUNTED, None before there are two looks. `why`: it does not
    answer, or is not ready."""

    agent: str
    zone: str
    rates: dict[str, float | None]
    why: str = ""
    answered: bool = True


class _Seen(NamedTuple):
    at_s: float
    figures: ToldFigures


class Others:
    """One agent's view of all, itself included."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._before: dict[str, list[_Seen]] = {}
        self._lines: list[Line] = []
        self._looking: asyncio.Task[None] | None = None
        self._at_s: float | None = None
        self.left_out = 0
        """Agents that were not asked, for there were too many."""

    async def lines(self) -> list[Line]:
        """As last seen, by name; empty while the first look goes on."""
        now_s = self._parts.clock.monotonic()
        if self._looking is None and (self._at_s is None or now_s - self._at_s >= AGAIN_S):
            self._looking = start(self._look(), "console-others")
            self._looking.add_done_callback(self._done)
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=FIRST_WAIT_S)
        return self._lines

    async def silent(self) -> list[tuple[str, str]]:
        """The other agents that do not answer or are not ready, and why."""
        own = self._parts.config.agent_name
        return [(each.agent, each.why) for each in await self.lines() if each.why and each.agent != own]

    def _done(self, _task: asyncio.Task[None]) -> None:
        self._looking = None

    async def _look(self) -> None:
        parts = self._parts
        brokers = sorted(parts.replica.state.brokers.values(), key=lambda each: each.name)
        others = [each for each in brokers if each.incarnation != parts.replica.incarnation]
        most = parts.config.console.agents_asked_max
        room, self.left_out = asyncio.Semaphore(SIDE_BY_SIDE), max(len(others) - most, 0)

        async def one(broker: Broker) -> Line:
            async with room:
                return await self._ask(broker)

        own = told_now(parts.config.agent_name, parts.metrics, parts.health.reasons())
        lines = [self._line(own, parts.config.agent.zone)]
        lines += await asyncio.gather(*map(one, others[:most]))
        self._lines = sorted(lines, key=lambda each: each.agent)
        self._at_s = parts.clock.monotonic()
        there = {each.agent for each in self._lines}
        self._before = {name: seen for name, seen in self._before.items() if name in there}

    async def _ask(self, broker: Broker) -> Line:
        peers, nothing = self._parts.peers(), dict.fromkeys(COUNTED)
        silent = Line(broker.name, broker.zone, nothing, answered=False)
        if broker.unwell:
            return silent._replace(why=f"it has stepped aside: {broker.unwell}")
        if peers is None or not broker.peer_address:
            return silent._replace(why="agents do not ask each other (peers.enabled)")
        try:
            async with asyncio.timeout(self._parts.config.console.agent_ms_max / 1000):
                return self._line(decoded(await peers.figures(broker.peer_address)), broker.zone)
        except TimeoutError:
            why = f"no answer within {self._parts.config.console.agent_ms_max} ms"
        except EOFError:
            why = "it hung up: its version does not tell, or it is about to end"
        except PeerAnswered as error:
            why = f"it has nothing to tell: {error}"
        except (PeerError, OSError, ValueError) as error:
            why = str(error) or repr(error)
        return silent._replace(why=why)

    def _line(self, figures: ToldFigures, zone: str) -> Line:
        now_s = self._parts.clock.monotonic()
        seen = self._before.setdefault(figures.agent, [])
        if seen and any(figures.counts[name] < seen[-1].figures.counts[name] for name in COUNTED):
            seen.clear()  # it was started anew
        while len(seen) > 1 and now_s - seen[1].at_s >= RATE_S:
            seen.pop(0)
        seen.append(_Seen(now_s, figures))
        passed = now_s - seen[0].at_s
        rates: dict[str, float | None] = dict.fromkeys(COUNTED)
        if passed > 0:
            before = seen[0].figures.counts
            rates = {name: (figures.counts[name] - before[name]) / passed for name in COUNTED}
        return Line(figures.agent, zone, rates, "; ".join(figures.reasons))
