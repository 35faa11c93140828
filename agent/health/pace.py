"""How fast this agent is beside the others, who say so of themselves in their heartbeats. Times in seconds.

Slow is judged of oneself only, by what *most* of the others say: one that lies or says nothing moves nobody,
and where most are slow nobody is. Figures of agents that are unwell do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.config.limits import HealthConfig
from agent.health.checks import Slow
from agent.health.evidence import Evidence
from coordination.commands import Heartbeat, command
from coordination.replica import Replica
from coordination.replica.proposals import Results
from coordination.state.levels import TOLD_PACE
from coordination.state.types import Applied, Done, Pace

FRESH_S = 10.0  # what was said longer ago does not count
OTHERS_MIN = 2  # fewer others are no majority
ALIKE = 2  # within so many times the others' this agent is no worse than they are
TOLD_SHARE = 0.75  # of the time between heartbeats: the replica itself has then no need of any
NEVER_S = float("inf")


@dataclass(frozen=True, slots=True)
class Speed:
    """What half of the attempts take at most, and 99 of a hundred; 0.0: unknown."""

    usual_s: float
    late_s: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """When an agent is slow; see `health.slow_ms_min`, `slow_ms_max` and `slow_ratio`."""

    min_s: float
    max_s: float
    ratio: int

    @classmethod
    def of(cls, given: HealthConfig) -> Bounds:
        """As configured."""
        return cls(given.slow_ms_min / 1000, given.slow_ms_max / 1000, given.slow_ratio)

    def usual_s(self, others: Sequence[float]) -> float:
        """What half of the attempts may take, by what the others say of theirs."""
        if not others:
            return self.max_s
        most_s, bound_s = _most(others), self.max_s
        if len(others) >= OTHERS_MIN:
            bound_s = min(self.max_s, max(self.min_s, self.ratio * most_s))
        return max(bound_s, ALIKE * most_s)

    def late_s(self, others: Sequence[float]) -> float:
        """What 99 of a hundred attempts may take; no bound where too few others know."""
        return max(self.max_s, self.ratio * _most(others)) if len(others) >= OTHERS_MIN else NEVER_S


def _most(others: Sequence[float]) -> float:
    """More than half of the others, or of two both, are as fast as this."""
    return sorted(others)[len(others) // 2]


class Paces:
    """How fast this agent and the others are, as heartbeats tell. `now` gives the event loop's time."""

    def __init__(
        self, replica: Replica, now: Callable[[], float], appends: Evidence, writes: Evidence, bounds: Bounds
    ) -> None:
        self._replica = replica
        self._now = now
        self._appends = appends
        self._writes = writes
        self._bounds = bounds
        self._said: dict[int, tuple[float, Pace]] = {}  # by incarnation: when, and what
        self._told_at = now()
        self._telling: Results | None = None
        replica.add_listener(self._applied)

    def _applied(self, applied: Applied) -> None:
        for result in applied.results:
            if type(result) is Done and type(result.value) is Pace:
                self._said[applied.incarnation] = (self._now(), result.value)

    # What it says.

    def appends_slow(self) -> Slow | None:
        """Whether this agent's appends are slow."""
        return self._slow(
            self._appends, [Speed(p.append_us / 1e6, p.append_late_us / 1e6) for p in self._others()]
        )

    def writes_slow(self) -> Slow | None:
        """Whether this agent's small PUTs are slow."""
        return self._slow(self._writes, self._writes_of_others())

    def in_doubt(self) -> bool:
        """Whether another agent's PUTs are slower than is allowed here: then this agent measures its own."""
        others = self._writes_of_others()
        bound_s = self._bounds.usual_s([self._writes.typical_s()] * OTHERS_MIN)
        return any(each.usual_s > bound_s for each in others)

    def _writes_of_others(self) -> list[Speed]:
        return [Speed(p.put_us / 1e6, p.put_late_us / 1e6) for p in self._others()]

    def _slow(self, evidence: Evidence, others: Sequence[Speed]) -> Slow | None:
        usual = [each.usual_s for each in others if each.usual_s]
        late = [each.late_s for each in others if each.late_s]
        beside = f", most of the others {_most(usual) * 1000:.0f} ms" if usual else ""
        slow = evidence.slow(self._bounds.usual_s(usual))
        if slow is not None:
            took_s, since = slow
            return Slow(f"slow: half take {took_s * 1000:.0f} ms{beside}", took_s, since)
        late_s = evidence.late_s()
        if late_s > self._bounds.late_s(late):
            reason = f"slow: one of a hundred takes {late_s * 1000:.0f} ms{beside}"
            return Slow(reason, evidence.typical_s(), self._now())
        return None

    def _others(self) -> list[Pace]:
        """What those say to whom clients are sent."""
        own, brokers = self._replica.incarnation, self._replica.state.brokers.values()
        well = [b.incarnation for b in brokers if b.serving and not b.unwell and b.incarnation != own]
        since = self._now() - FRESH_S
        return [
            self._said[number][1]
            for number in well
            if number in self._said and self._said[number][0] >= since
        ]

    # What it does.

    def tell(self, heartbeat_s: float) -> None:
        """Say how fast this agent is, a little sooner than it would say that it is there. One at a time."""
        replica, now = self._replica, self._now()
        self._said = {n: said for n, said in self._said.items() if n in replica.state.live}
        under_way = self._telling is not None and not self._telling.done()
        alone = len(replica.state.brokers) <= 1 or replica.state.feature_level < TOLD_PACE
        if under_way or alone or not replica.ready or now - self._told_at < TOLD_SHARE * heartbeat_s:
            return
        self._told_at = now
        heartbeat = Heartbeat(**dict(zip(Pace._fields, self._own(), strict=True)))
        self._telling = replica.submit([command(heartbeat)], incarnation=replica.incarnation)

    def _own(self) -> list[int]:
        figures = (
            _told_s(self._appends),
            self._appends.late_s(),
            _told_s(self._writes),
            self._writes.late_s(),
        )
        return [min(round(figure * 1e6), 2**32 - 1) for figure in figures]


def _told_s(evidence: Evidence) -> float:
    """The usual duration, or the newest where that is longer, even under way: the others learn soon that all
    become slow."""
    return max(evidence.typical_s(), evidence.newest_s())
