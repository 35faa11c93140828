"""What shadow mode would have refused: counted by who, what and on which resource, within a bound."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from coordination.clock import Clock
from coordination.state.acl_types import Operation, ResourceType


class Seen(NamedTuple):
    """One kind of request that no ACL allows."""

    principal: str
    operation: Operation
    resource: ResourceType
    name: str


@dataclass(slots=True)
class Times:
    """How often and when, Unix ms; the address that it came from last."""

    count: int
    first_ms: int
    last_ms: int
    host: str


class Shadow:
    """This agent's, since it started. Of more than `rows_max` kinds the one that was longest away goes."""

    def __init__(self, clock: Clock, rows_max: int) -> None:
        self._clock = clock
        self._max = rows_max
        self._rows: OrderedDict[Seen, Times] = OrderedDict()
        self.since_ms = clock.now_ms()
        self.forgotten = 0
        """Kinds that went for others."""

    def note(self, seen: Seen, host: str) -> None:
        """One more of this kind."""
        now_ms = self._clock.now_ms()
        times = self._rows.get(seen)
        if times is None:
            self._rows[seen] = Times(1, now_ms, now_ms, host)
            if len(self._rows) > self._max:
                self._rows.popitem(last=False)
                self.forgotten += 1
            return
        times.count += 1
        times.last_ms, times.host = now_ms, host
        self._rows.move_to_end(seen)

    def rows(self, after_ms: int = 0) -> list[tuple[Seen, Times]]:
        """What came at or after a time, Unix ms."""
        return [(seen, times) for seen, times in self._rows.items() if times.last_ms >= after_ms]
