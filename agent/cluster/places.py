"""Since when each agent is where it is: whether a client that is sent there finds it.

A client that is sent to a broker it knows goes to the address that its newest Metadata named. An agent that
came back elsewhere since, as a pod does with every restart, is not there: librdkafka tries that address until
it asks for Metadata again, and as it then learns of the new one it may lose its way for 10 to 20 s (its
leader and the replica that it was sent to change at once).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordination.state.types import Broker, Endpoint

KNOWN_AFTER_S = 330.0
"""By then every client has asked for Metadata again, seconds: of itself each does every five minutes."""
ALWAYS = float("-inf")
PLACES_MAX = 1_024  # agents, those that have gone too; of more the ones seen first are forgotten


class Places:
    """Of one agent's view of the others. Times are of the monotonic clock, seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._since: dict[int, tuple[tuple[Endpoint, ...], float]] = {}

    def see(self, brokers: Iterable[Broker]) -> None:
        """Take note of who is where. Who is seen for the first time has always been there: a client that does
        not know him asks for Metadata, and one that came to this agent found it by an answer that had him."""
        for broker in brokers:
            known = self._since.get(broker.node_id)
            if known is None or known[0] != broker.listeners:
                self._since.pop(broker.node_id, None)
                since = ALWAYS if known is None else self._now()
                self._since[broker.node_id] = (broker.listeners, since)
        while len(self._since) > PLACES_MAX:
            del self._since[next(iter(self._since))]

    def found(self, node: int, told: float) -> bool:
        """Whether a client that heard last at `told` from this agent where all are, finds this one."""
        known = self._since.get(node)
        return known is not None and (known[1] <= told or self._now() - known[1] >= KNOWN_AFTER_S)
