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
BEHIND_POSITIONS_S = (0.0, 0.04)
"""Likewise after its own TxnOffsetCommit, before its end."""
LATE_END = "end a transaction late"
LATE_POSITIONS = "positions a transaction late"


@dataclass(slots=True)
class _Held:
    """A connection, from a request of which kind on, and whether its client has sent that again."""

    source: VirtualTransport
    kind: int
    again: bool = False
    ended: bool = False
    """Whether the transaction was ended after that."""

    def due(self, kind: int, *, positions: bool) -> bool:
        """Whether it is to arrive now that its client writes a request of this kind."""
        return (kind == TXN_OFFSET_COMMIT and self.ended) if positions else (kind == PRODUCE and self.again)


class LateEnds:
    """Watches what clients write while `on`; one request of each client is held at a time."""

    def __init__(self, network: Network) -> None:
        self.on = False
        self.positions = False
        """Whether it is TxnOffsetCommit only, which arrives behind that of the next transaction."""
        self._network = network
        self._held: dict[str, _Held] = {}

    def written(self, end: VirtualTransport, frame: bytes) -> None:
        """A client's request leaves it."""
        kind = int.from_bytes(frame[4:6], "big")
        held = self._held.get(end.node)
        if held is not None and held.source.held is None:  # its time was over
            del self._held[end.node]
            held = None
        if held is not None and held.due(kind, positions=self.positions):
            del self._held[end.node]
            low, high = BEHIND_POSITIONS_S if self.positions else INTO_THE_NEXT_S
            self._network.events[LATE_POSITIONS if self.positions else LATE_END] += 1
            self._network.release_later(held.source, low + self._network.drawn() * (high - low))
        elif held is not None:
            held.ended = held.ended or (held.again and kind == END_TXN)
            held.again = held.again or kind == held.kind
        elif self._may_hold(kind) and end.held is None and self._network.drawn() < HELD_OF:
            self._hold(end, kind)

    def _may_hold(self, kind: int) -> bool:
        return self.on and (kind == TXN_OFFSET_COMMIT or (kind == END_TXN and not self.positions))

    def _hold(self, source: VirtualTransport, kind: int) -> None:
        self._network.hold(source, f"hold {source.node} until its next transaction", kind)
        self._network.release_later(source, HELD_S_MAX)
        self._held[source.node] = _Held(source, kind)
