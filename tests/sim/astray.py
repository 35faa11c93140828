"""States that are not the cluster's: their agents applied an entry as only one member of the log has it.

Nobody may be served from such a state, and what it does is no truth to judge others by. Agents make it anew
(decision 0043); what is watched while entries are applied has to pass it over, and states of another cluster.
"""

from __future__ import annotations

from coordination.state.data import StateData
from tests.sim.loop import NODE

ELSEWHERE = ("a6", "a7")
"""How names of agents begin that are of another cluster (second.py)."""


class Astray:
    """Those states, by identity: an agent that makes its state anew has another one."""

    def __init__(self) -> None:
        self._states: list[StateData] = []

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, state: StateData) -> bool:
        return NODE.get().startswith(ELSEWHERE) or any(each is state for each in self._states)

    def add(self, state: StateData) -> None:
        """From now on; again has no effect."""
        if not any(each is state for each in self._states):
            self._states.append(state)
