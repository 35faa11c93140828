"""EndTxn and TxnOffsetCommit that arrive a transaction late (KAFKA-17754).

A client's connection is held from one of these on. The client gives it up, sends the same by another
connection, ends its transaction and writes the next one; then what was held arrives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.net.wire.api import BY_NAME

if TYPE_CHECKING:
    from tests.sim.network import Network, VirtualTransport

PRODUCE, END_TXN = BY_NAME["Produce"].key, BY_NAME["EndTxn"].key
TXN_OFFSET_COMMIT = BY_NAME["TxnOffsetCommit"].key
HELD_OF = 0.3
HELD_S_MAX = 15.0
INTO_THE_NEXT_S = (0.02, 0.4)
"""How long after the next transaction's first Produce."""
LATE_END = "end a transaction late"


@dataclass(slots=True)
class _Held:
    """A connection, from a request of which kind on, and whether its client has sent that again."""

    source: VirtualTransport
    kind: int
    again: bool = False


class LateEnds:
    """Watches what clients write while `on`; one request of each client is held at a time."""

    def __init__(self, network: Network) -> None:
        self.on = False
        self._network = network
        self._held: dict[str, _Held] = {}

    def written(self, end: VirtualTransport, frame: bytes) -> None:
        """A client's request leaves it."""
        kind = int.from_bytes(frame[4:6], "big")
        held = self._held.get(end.node)
        if held is not None and held.source.held is None:  # its time was over
            del self._held[end.node]
            held = None
        if kind in (END_TXN, TXN_OFFSET_COMMIT):
            if held is not None:
                held.again = held.again or kind == held.kind
            elif self.on and end.held is None and self._network.drawn() < HELD_OF:
                self._hold(end, kind)
        elif kind == PRODUCE and held is not None and held.again:
            del self._held[end.node]
            low, high = INTO_THE_NEXT_S
            self._network.events[LATE_END] += 1
            self._network.release_later(held.source, low + self._network.drawn() * (high - low))

    def _hold(self, source: VirtualTransport, kind: int) -> None:
        self._network.hold(source, f"hold {source.node} until its next transaction", kind)
        self._network.release_later(source, HELD_S_MAX)
        self._held[source.node] = _Held(source, kind)
