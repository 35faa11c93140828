"""Whether clients are sent to this agent: stepping aside when it cannot do its work, and coming back.

It says so in the log (JudgeAgent), so that all agents name others for its partitions, groups and
transactions, and its claims go to others. When it is the log that it does not reach, it acts as if it had
said so, and the others notice its silence. Coming back waits until it has been well for a while, twice as
long for each time that it had come back within FORGOTTEN_S before. While no other agent is well it serves
whatever its state is.

Who is drained steps aside in the same way because somebody asked for it, finishes what it has taken, and
comes back when it is told to, or with its next incarnation of a new process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.config import Config
from agent.health.health import Health
from agent.health.others import Others
from agent.telemetry.logs import logger
from coordination.commands import JudgeAgent, command
from coordination.replica import Replica
from coordination.replica.proposals import Results
from coordination.state.levels import JUDGED_AGENTS
from coordination.state.members import REASON_LENGTH_MAX
from coordination.state.types import Broker

_log = logger("health")

FORGOTTEN_S = 600.0  # a step aside that is older makes none that follow longer
UNTOLD = frozenset({"append", "log"})  # these keep an agent from saying it in the log
DRAINED = "drained"  # what the reason of an agent that was told to step aside begins with, and no other


class Standing:
    """One agent's place in Metadata. Times are the event loop's, seconds."""

    def __init__(self, config: Config, replica: Replica, health: Health, now: Callable[[], float]) -> None:
        given = config.health
        self.leaving = False
        """Whether this agent has left Metadata and is about to stop."""
        self.aside = ""
        """Why this agent has stepped aside; empty: it has not."""
        self.on_away: list[Callable[[bool], None]] = []
        """Called when clients begin to be sent away; with whether it is because the log fails."""
        self._replica = replica
        self._health = health
        self._now = now
        self._enabled = given.step_aside
        self._return_s, self._return_s_max = given.return_ms / 1000, given.return_ms_max / 1000
        self._heartbeat_s = config.replica.heartbeat_ms / 1000
        self._others = Others(replica, now, given.silence_ms_max / 1000, self._heartbeat_s)
        self._well_since: float | None = None
        self._steps: deque[float] = deque(maxlen=16)  # when it came back
        self._returning = False  # whether it has told the log that it is well, which may refuse
        self._untold = False  # whether it is the log that fails
        self._away = False
        self._drained = ""  # why: by whom
        self._told: Results | None = None
        self._accusing: list[Results] = []
        self._marked: tuple[Broker, Broker] | None = None
        health.on_look.append(self.look)
        health.why_aside = self.why

    # What handlers ask.

    def brokers(self) -> Mapping[int, Broker]:
        """The brokers by node id, this one as it is: the log may not say yet that it has stepped aside."""
        brokers = self._replica.state.brokers
        own = self._own()
        if not self.aside or own is None or own.unwell:
            return brokers
        if self._marked is None or self._marked[0] is not own:
            self._marked = (own, replace(own, unwell=self.aside))
        return {**brokers, own.node_id: self._marked[1]}

    @property
    def others_serve(self) -> bool:
        """Whether clients that leave this agent find another one that is well."""
        own = self._replica.incarnation
        brokers = self._replica.state.brokers.values()
        return any(each.serving and not each.unwell and each.incarnation != own for each in brokers)

    def away(self) -> bool:
        """Whether clients are told to go elsewhere: this agent leaves or is not well, and others serve.

        One that waits to come back is well, and does what it is asked: who comes all the same has not found
        the others.
        """
        own = self._own()
        unwell = (self.aside or (own is not None and own.unwell)) and self._well_since is None
        return bool(self.leaving or unwell) and self.others_serve

    @property
    def orderly(self) -> bool:
        """Whether it gives its clients away in good order: what it has taken, it finishes."""
        return self.leaving or bool(self._drained)

    @property
    def drained(self) -> bool:
        """Whether somebody told this agent to step aside."""
        return bool(self._drained)

    @property
    def settled(self) -> bool:
        """Whether the log says of this agent what was asked for last: drained, or not."""
        own = self._own()
        return own is not None and is_drained(own) == self.drained

    @property
    def doubtful(self) -> bool:
        """Whether this agent has stepped aside, but the log does not say so (yet).

        It may be cut off from the log alone, or the log may be down for all: the others may still name it.
        """
        own = self._own()
        return self._untold and bool(self.aside) and not self.leaving and own is not None and not own.unwell

    def send_away(self) -> None:
        """This agent has left Metadata: tell clients at once, those that wait for records too."""
        self.leaving = True
        self._tell()

    def drain(self, by: str) -> None:
        """Give away what this agent leads and holds, until `restore` or a restart. `by`: who asked for it."""
        self._drained = f"{DRAINED} by {by}"[:REASON_LENGTH_MAX]
        self.look()

    def restore(self) -> None:
        """The end of `drain`: it comes back at once when it is well."""
        self._drained = ""
        self.look()

    def why(self) -> str:
        """Why clients are not sent to this agent; empty when they are, or nobody else serves either."""
        own = self._own()
        unwell = self.aside or ("" if own is None else own.unwell)
        return unwell if unwell and self.others_serve else ""

    # What it does.

    async def give_way(self) -> None:
        """Before it is named again: let clients of its last run, which crashed, find those that serve.

        One that is back before the others have missed it is led by again at once, and its clients would wait
        for it: librdkafka, refused three times, tries again after up to 10 s, and asks each second who leads.
        """
        if self._took_over() and self.others_serve:
            await asyncio.sleep(self._return_s)

    def look(self) -> None:
        """Step aside, come back, or accuse agents that are silent. Called after every look at the health."""
        if self._replica.state.feature_level >= JUDGED_AGENTS and not self.leaving:
            if self._enabled or self._drained or self._gone():
                self._judge()
            if self._enabled:
                self._accuse()
                self._health.paces.tell(self._heartbeat_s)
        self._tell()

    def _judge(self) -> None:
        grave, own = self._health.grave() if self._enabled else [], self._own()
        if self._returning and own is not None and not own.unwell:
            self._returning = False
            self._steps.append(self._now())
        if grave or self._drained:
            self._well_since = None
            self._untold = any(found.name in UNTOLD for found in grave)
            reason = "; ".join(f"{found.name}: {found.message}" for found in grave)[:REASON_LENGTH_MAX]
            self._keep_aside(own, self._drained or reason)
        elif self.aside or (own is not None and own.unwell):
            self._come_back(own)

    def _keep_aside(self, own: Broker | None, reason: str) -> None:
        """Be aside, and have the log say so: whether for a drain or not, it says again when that changes."""
        if not self.aside or self.aside.startswith(DRAINED) != self.drained:
            self._step_aside(reason)
        said = own is not None and own.unwell and is_drained(own) == self.drained
        if own is not None and not said and not self._untold and len(self._brokers()) > 1:
            self._say(own, reason)

    def _step_aside(self, reason: str) -> None:
        self.aside = reason
        _log.warning("this agent steps aside", reason=reason, others_serve=self.others_serve)

    def _come_back(self, own: Broker | None) -> None:
        """When it has been well for long enough; at once when nobody else has noticed."""
        now = self._now()
        if not self.aside and own is not None:  # the others said so: it was paused, or cut off
            self._step_aside(own.unwell)
        if self._hindered():
            self._well_since = None
            return
        if self._well_since is None:
            self._well_since = now
        if own is not None and own.unwell:
            drained = is_drained(own)  # that was no fault: it need not prove that it is well
            if drained or now - self._well_since >= self.return_s:
                self._returning |= self._say(own, "") and not drained
            return
        self.aside, self._untold = "", False
        _log.info("this agent is well again: clients are sent to it")

    def _hindered(self) -> bool:
        """Whether it has to stay aside. Who does not leave for its checks does not stay away for them."""
        if self._enabled:
            return bool(self._health.faults())
        return not self._replica.ready or self._health.failure() is not None

    @property
    def return_s(self) -> float:
        """How long it must be well before it comes back."""
        again = sum(1 for at in self._steps if self._now() - at < FORGOTTEN_S)
        return float(min(self._return_s_max, self._return_s * 2**again))

    def _say(self, own: Broker, unwell: str) -> bool:
        """Tell the log, one thing at a time; said again at the next look when it was not taken."""
        if self._told is not None and not self._told.done():
            return False
        judgement = JudgeAgent(incarnation=own.incarnation, unwell=unwell)
        self._told = self._replica.submit([command(judgement)], incarnation=own.incarnation)
        return True

    def _accuse(self) -> None:
        self._accusing = [each for each in self._accusing if not each.done()]
        if self.aside or not self._replica.ready or self._accusing:
            self._others.silent()  # it keeps listening
            return
        for judgement in self._others.silent():
            _log.warning(
                "another agent is silent", incarnation=f"{judgement.incarnation:016x}", why=judgement.unwell
            )
            self._accusing.append(self._replica.submit([command(judgement)]))

    def _tell(self) -> None:
        """Call who wants to know when clients begin to be sent away."""
        away = self.away()
        if away and not self._away:
            for tell in self.on_away:
                tell(self._untold and not self.leaving)
        self._away = away

    def _gone(self) -> bool:
        """Whether it, or the log, still has it aside: after a drain, or because the others said so."""
        own = self._own()
        return bool(self.aside) or (own is not None and bool(own.unwell))

    def _took_over(self) -> bool:
        """Whether its registration ended another run of its name, which had not left."""
        known = self._replica.state.incarnations
        own = known.get(self._replica.incarnation)
        return own is not None and any(
            each.name == own.name and each.fenced_revision == own.registered_revision
            for each in known.values()
        )

    def _own(self) -> Broker | None:
        replica = self._replica
        found = replica.state.brokers.get(replica.node_id)
        return found if found is not None and found.incarnation == replica.incarnation else None

    def _brokers(self) -> list[Broker]:
        return [each for each in self._replica.state.brokers.values() if each.serving]


def is_drained(broker: Broker) -> bool:
    """Whether the log says that somebody told this agent to step aside."""
    return broker.unwell.startswith(DRAINED)
