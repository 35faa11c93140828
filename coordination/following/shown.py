"""The replicated state as a replica of a bucket shows it: with itself as the only broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coordination.state import State
    from coordination.state.types import Broker, Incarnation


class ShownState:
    """Another state, whose agents are not for this one's clients: the broker is `own`. To be looked at."""

    def __init__(self, state: State, own: Broker, run: Incarnation) -> None:
        self._state, self._run = state, run
        self.brokers: Mapping[int, Broker] = {own.node_id: own}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    @property
    def incarnations(self) -> Mapping[int, Incarnation]:
        """Those of the cluster, and this process."""
        return {**self._state.incarnations, self._run.incarnation: self._run}

    @property
    def live(self) -> Mapping[int, Incarnation]:
        """As `incarnations`."""
        return {**self._state.live, self._run.incarnation: self._run}

    def is_live(self, incarnation: int) -> bool:
        """See StateData."""
        return incarnation == self._run.incarnation or self._state.is_live(incarnation)
