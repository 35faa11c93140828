"""Who is not heard of any more: an agent that is paused or cut off from the log cannot say so itself.

Every agent writes something each `replica.heartbeat_ms`. Whoever follows the log knows when it last heard of
whom; it trusts that only while it hears of itself, so that a log that stood still accuses nobody.
"""

from __future__ import annotations

from collections.abc import Callable

from coordination.commands import JudgeAgent
from coordination.replica import Replica
from coordination.state.types import Applied, Broker

RANK_S = 0.3  # each further agent waits so much longer, so that mostly one says it
RANKS = 4
HEARTBEATS_MISSED = 3
PAUSE_S = 1.0  # between two looks: this agent itself stood still


class Others:
    """When this agent last heard of the others. Times are the event loop's, seconds."""

    def __init__(
        self, replica: Replica, now: Callable[[], float], silence_s: float, heartbeat_s: float
    ) -> None:
        self._replica = replica
        self._now = now
        self._silence_s = max(silence_s, HEARTBEATS_MISSED * heartbeat_s)
        self._heartbeat_s = heartbeat_s
        self._heard: dict[int, float] = {}
        self._looked = now()
        self._listening = now()  # since when silence counts
        replica.add_listener(self._applied)

    def _applied(self, applied: Applied) -> None:
        self._heard[applied.incarnation] = self._now()

    def silent(self) -> list[JudgeAgent]:
        """Judgements of agents that were silent too long. After a pause of the calls it waits anew."""
        now, own, state = self._now(), self._replica.incarnation, self._replica.state
        paused, self._looked = now - self._looked > PAUSE_S, now
        unheard = not own or now - self._heard.get(own, 0.0) > 2 * self._heartbeat_s
        if paused or unheard:
            self._listening = now
        brokers = state.brokers
        self._heard = {n: at for n, at in self._heard.items() if n in state.incarnations}
        found = []
        for broker in brokers.values():
            if broker.incarnation == own or broker.unwell or not broker.serving:
                continue
            silent_s = now - max(self._heard.get(broker.incarnation, 0.0), self._listening)
            if silent_s >= self._silence_s + RANK_S * self._rank(broker):
                heard = state.incarnations[broker.incarnation].sequence
                reason = f"nothing was heard of it for {silent_s:.1f} s"
                found.append(JudgeAgent(incarnation=broker.incarnation, unwell=reason, heard=heard))
        return found

    def _rank(self, accused: Broker) -> int:
        """This agent's place among those that may say it."""
        brokers = self._replica.state.brokers.values()
        before = [b for b in brokers if not b.unwell and b.node_id < self._replica.node_id and b != accused]
        return len(before) % RANKS
