"""Rule 16 broken for damage: one offset too many is passed over, or a sound partition said to be damaged."""

from __future__ import annotations

from typing import Any

from agent.kafka.fetch import pieces
from agent.kafka.fetch.driver import FetchDriver
from agent.kafka.fetch.sessions import Session
from coordination.kafka_codes import Code
from objectstore.batch import empty_batch
from tests.sim.controls import Control
from tests.sim.patching import patched


def _one_too_many() -> tuple[tuple[Any, str, Any], ...]:
    """A hole takes the offset behind the damage along, where a sound record is."""
    return ((pieces, "empty_batch", lambda start, end: empty_batch(start, end + 1)),)


def _damage_spreads() -> tuple[tuple[Any, str, Any], ...]:
    """One damaged partition is the answer for all partitions of its Fetch."""
    usual = FetchDriver._answers

    def answers(self: Any, *arguments: Any) -> Any:
        fetched, damages = usual(self, *arguments)
        for each in fetched if damages else ():
            each.planned.code, each.records = Code.CORRUPT_MESSAGE, []
        return fetched, damages

    return ((FetchDriver, "_answers", answers),)


def _touches_missed() -> tuple[tuple[Any, str, Any], ...]:
    """What the log brings to a partition of a fetch session is not noticed."""

    def due(self: Session) -> list[Any]:
        self.watch.take()
        return sorted(self._loud, key=lambda row: row.turn)

    return ((Session, "due", due), (Session, "look", lambda *_: None))


DAMAGE = (
    Control(
        "a-session-misses-what-the-log-brings",
        "6: what was acknowledged is read",
        frozenset({"session-left-out"}),
        lambda: patched(*_touches_missed()),
        lambda plan: plan.hurt,
    ),
    Control(
        "one-offset-too-many-is-passed-over",
        "16: a damaged object concerns its offsets",
        frozenset({"passed-over", "lost"}),
        lambda: patched(*_one_too_many()),
        lambda plan: plan.hurt,
    ),
    Control(
        "damage-spreads",
        "16: a damaged object concerns its offsets",
        frozenset({"damage-spread"}),
        lambda: patched(*_damage_spreads()),
        lambda plan: plan.hurt,
    ),
)
