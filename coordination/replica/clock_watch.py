"""Whether this agent's clock is right, by what it applies (coordination/state/agreed_time.py).

`off` says that it is apart from what most agents say. That must have lasted for a while, and another agent
must have written an entry in that time: right after an outage the newest stamps of all agents are old, and
a clock that is right seems to be ahead.
"""

from __future__ import annotations

import logging

from coordination.state import State
from coordination.state.agreed_time import APART_MS, agreed_ms, apart_ms, witnesses
from coordination.state.levels import AGREED_TIME

_logger = logging.getLogger("floe.coordination.clock")


class ClockWatch:
    """One agent's view of its own clock. `skew_ms`: below 0 where it is behind; 0 when it is alone."""

    def __init__(self, patience_s: float) -> None:
        """`patience_s`: for how long the clock has to be apart before it is said to be off."""
        self.skew_ms = 0
        self.agreed_ms = 0
        """What time it is at least, by most agents, Unix ms."""
        self.off = False
        self._patience_s = patience_s
        self._apart_since: tuple[float, int] | None = None  # loop time, revision

    def look(self, state: State, incarnation: int, now_s: float) -> None:
        """Look at the state's stamps, at event loop time `now_s`."""
        self.skew_ms = apart_ms(state, incarnation) if state.feature_level >= AGREED_TIME else 0
        self.agreed_ms = agreed_ms(state) if state.feature_level >= AGREED_TIME else 0
        if abs(self.skew_ms) <= APART_MS:
            self._apart_since = None
            if self.off:
                _logger.warning("this agent's clock is right again")
            self.off = False
        elif self._apart_since is None:
            self._apart_since = now_s, state.revision
        elif not self.off and self._others_said(state, incarnation, now_s, *self._apart_since):
            self.off = True
            _logger.error("%s: set it right; until then others work", self.reason)

    def _others_said(
        self, state: State, incarnation: int, now_s: float, since_s: float, revision: int
    ) -> bool:
        counting, _ = witnesses(state)
        heard = (one.last_revision > revision for one in counting if one.incarnation != incarnation)
        return now_s - since_s >= self._patience_s and any(heard)

    @property
    def reason(self) -> str:
        """What is wrong, for whoever sets it right; empty when nothing is."""
        if abs(self.skew_ms) <= APART_MS:
            return ""
        side = "ahead of" if self.skew_ms > 0 else "behind"
        return f"this agent's clock is {abs(self.skew_ms)} ms {side} what most agents say"


def deletion_ms(state: State, now_ms: int) -> int:
    """By which time what is too old may be deleted: this agent's clock, or less where the agents say less."""
    return now_ms if state.feature_level < AGREED_TIME else min(now_ms, agreed_ms(state))
