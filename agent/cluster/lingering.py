"""Agents that have just gone stay in Metadata's list of brokers for a while; nothing is led by them any more.

librdkafka ends its thread of a broker that an answer of Metadata no longer lists, and
`send_offsets_to_transaction` then waits for ever for a group's coordinator that was that broker (its #5511).
While the broker is listed it tries to connect, fails, and asks who coordinates now. Kafka lists a broker that
was killed for its session's time, 9 s, as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from coordination.state.types import Broker

GONE_MAX = 64  # agents that linger at a time; more of them are left out at once


class Lingering:
    """The brokers that one agent names in Metadata, and since when those that left are gone."""

    def __init__(self, linger_s: float, monotonic: Callable[[], float]) -> None:
        """`linger_s`: how long one that has gone is listed, seconds from the first answer without it."""
        self._linger_s = linger_s
        self._monotonic = monotonic
        self._listed: dict[int, Broker] = {}
        self._gone: dict[int, tuple[float, Broker]] = {}
        self._newest: list[Broker] = []

    def listed(self, serving: Iterable[Broker]) -> list[Broker]:
        """`serving` and those that were listed a moment ago, by node id; never none where there were any."""
        now = self._monotonic()
        here = {broker.node_id: broker for broker in serving}
        for node, broker in self._listed.items():
            if node not in here and node not in self._gone and len(self._gone) < GONE_MAX:
                self._gone[node] = (now + self._linger_s, broker)
        self._gone = {
            node: (end, broker)
            for node, (end, broker) in self._gone.items()
            if node not in here and now < end
        }
        self._listed = here
        found = [here.get(node) or self._gone[node][1] for node in sorted({*here, *self._gone})]
        self._newest = found or self._newest
        return self._newest
