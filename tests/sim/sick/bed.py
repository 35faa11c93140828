"""Judges that one sick agent stays its own matter, by looking at all of them ten times in a virtual second.

`stood-still`: a client could not go on for longer than PAUSE_S_MAX.
`sick-agent-named`: a well agent named it for longer than OUT_S_MAX.
`still-away`: it was well again and not named. `well-agent-aside`: another one was not named.
`flapping`: one stepped aside more often than STEPS_MAX. `nobody-named`: clients were told of no agent at all.
`claims-kept`, `groups-kept`: who is not named holds a job, or runs groups, though others are well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agent.app import App
from coordination.state.types import serving_of
from tests.checker.findings import Finding
from tests.sim.sick.goers import ANSWER_S_MAX, ASKED_S_MAX, Goers
from tests.sim.sick.spells import BY_NAME, OUT_S_MAX, Sickness

if TYPE_CHECKING:
    from tests.sim.node import AgentNode
    from tests.sim.world import World

LOOK_S = 0.1
PAUSE_S_MAX = OUT_S_MAX + ANSWER_S_MAX + ASKED_S_MAX
"""And what is the client's own: what it had sent waits for its timeout, and so does what it asks first."""
STEPS_MAX = 4
"""Times that an agent steps aside within a minute: it waits for 2, 4, 8, 16 s before it comes back."""
RETURN_S, RETURN_S_MAX = 2.0, 60.0
"""As `health.return_ms` and `health.return_ms_max` are by default."""
GIVEN_UP_S = 1.0
"""Within which an agent that knows that it is not named runs no groups."""


class Sickbed:
    """One run's. `longest`: the longest pause of a client, s, whose it was, and when it was that long."""

    def __init__(self, world: World) -> None:
        self.longest = (0.0, "", 0.0)
        self._world = world
        self._sick: dict[str, tuple[Sickness, float]] = {}
        self._well_since: dict[str, tuple[Sickness, float]] = {}
        self._told: set[tuple[str, str]] = set()
        self._aside: dict[str, float] = {}
        """Who is not named, and since when."""
        self._steps: dict[str, list[float]] = {}
        self._excused_until = 0.0
        """Nobody could go on before."""
        self._looking = False

    def begin(self, name: str, targets: Sequence[AgentNode]) -> None:
        """Those are sick from now on."""
        for agent in targets:
            self._world.seen.counts[f"sickness {name.removeprefix('sick-')}"] += 1
            self._sick[agent.name] = (BY_NAME[name], self._world.loop.time())
        if not self._looking:
            self._looking = True
            self._look()

    def end(self, targets: Sequence[AgentNode]) -> None:
        """Those are well again."""
        now = self._world.loop.time()
        for agent in targets:
            if agent.name in self._sick:
                sickness, _ = self._sick.pop(agent.name)
                self._well_since[agent.name] = (sickness, now)
                if sickness.everybody:
                    self._excused_until = now
        self._told = {each for each in self._told if each[0] != "stood-still"}

    def _look(self) -> None:
        around = self._world.around
        if around is None or around.stopping.is_set():
            return
        self._world.loop.call_later(LOOK_S, self._look)
        for anomaly, who, detail in (*self._clients(), *self._agents()):
            if (anomaly, who) not in self._told:
                self._told.add((anomaly, who))
                self._world.trace(f"sickbed: {anomaly} {who} {detail}")
                around.findings.append(Finding(anomaly, who, detail, ()))

    def _clients(self) -> Iterator[tuple[str, str, str]]:
        now = self._world.loop.time()
        if any(sickness.everybody for sickness, _ in self._sick.values()):
            return
        goers = self._world.living.get("going")
        for goer in goers.all if isinstance(goers, Goers) else ():
            since = goer.since()
            pause_s = 0.0 if since is None else now - max(since, self._excused_until)
            if pause_s > self.longest[0]:
                self.longest = (pause_s, goer.name, now)
            if pause_s > PAUSE_S_MAX:
                yield "stood-still", goer.name, f"for more than {PAUSE_S_MAX:.0f} s"

    def _agents(self) -> Iterator[tuple[str, str, str]]:
        apps = [
            (agent.name, agent.app) for agent in self._world.agents if agent.alive and agent.app is not None
        ]
        well = [app for name, app in apps if name not in self._sick and app.replica.ready]
        if not well:
            return
        newest = max(well, key=lambda app: app.replica.revision)
        named = {broker.name for broker in serving_of(newest.standing.brokers().values())}
        if not named:
            yield "nobody-named", "", "clients are told of no agent"
        by_any = {b.name for app in well for b in serving_of(app.standing.brokers().values())}
        for name, app in apps:
            said = {broker.name for broker in serving_of(newest.replica.state.brokers.values())}
            self._note(name, said)
            yield from self._spells(name, name in said, name in by_any)
            yield from self._given_up(name, app, newest)

    def _note(self, name: str, named: set[str]) -> None:
        now = self._world.loop.time()
        if name in named:
            self._aside.pop(name, None)
        elif name not in self._aside:
            self._aside[name] = now
            self._steps.setdefault(name, []).append(now)
            self._world.seen.counts["sickness stepped aside"] += 1

    def _spells(self, name: str, named: bool, by_any: bool) -> Iterator[tuple[str, str, str]]:
        now = self._world.loop.time()
        steps = [at for at in self._steps.get(name, ()) if now - at < 60]
        if len(steps) > STEPS_MAX:
            yield "flapping", name, f"stepped aside {len(steps)} times within a minute"
        if name in self._sick:
            sickness, began = self._sick[name]
            if sickness.leaves and by_any and now - began > OUT_S_MAX:
                yield "sick-agent-named", name, f"{sickness.name}: after {OUT_S_MAX:.0f} s"
        elif name in self._well_since:
            sickness, ended = self._well_since[name]
            waits_s = min(RETURN_S_MAX, RETURN_S * 2 ** max(0, len(self._steps.get(name, ())) - 1))
            if not named and now - ended > sickness.back_s + waits_s:
                yield "still-away", name, f"{now - ended:.1f} s after {sickness.name} was over"
        elif not named:
            yield "well-agent-aside", name, "nothing is wrong with it"

    def _given_up(self, name: str, app: App, newest: App) -> Iterator[tuple[str, str, str]]:
        state, now = newest.replica.state, self._world.loop.time()
        broker = next((each for each in state.brokers.values() if each.name == name), None)
        ill = self._sick.get(name) or self._well_since.get(name)
        alone = ill is not None and not ill[0].everybody  # else the jobs were its own while nobody was well
        if alone and broker is not None and broker.unwell:
            held = [each for each, claim in state.claims.items() if claim.incarnation == broker.incarnation]
            if held:
                yield "claims-kept", name, f"it holds {held} and is unwell: {broker.unwell}"
        services, aside = app._services, self._aside.get(name)
        known = app.standing.away() and app.replica.revision >= newest.replica.revision
        if services is None or aside is None or not known or now - aside < GIVEN_UP_S:
            return
        if running := [*services.groups.running()]:
            yield "groups-kept", name, f"{running} run where no client is sent"
