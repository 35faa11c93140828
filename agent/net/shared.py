"""What all connections of a server have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from agent.net.admission import Admission
from agent.net.connection import SCRATCH_BYTES, Budget, Limits
from agent.net.listening import Dispatch
from agent.net.pacing import Pacing
from agent.net.strangers import Strangers
from agent.net.wire.errors import WireError
from agent.telemetry.metrics import Metrics


class Live(Protocol):
    """A connection as its server sees it."""

    def abort(self, reason: str) -> None:
        """Cut it."""
        ...

    def doom(self, why: WireError) -> None:
        """Close it once all that has come is answered."""
        ...

    def drain(self) -> None:
        """Read no more; close when everything is answered and sent."""
        ...

    def sweep(self, now: float) -> None:
        """Close it when it was idle or stalled for too long."""
        ...


@dataclass(slots=True)
class Shared:
    """Of one server."""

    dispatch: Dispatch
    limits: Limits
    metrics: Metrics
    budget: Budget
    scratch: memoryview
    reads: Collection[int]
    strangers: Strangers
    admission: Admission | None
    pacing: Pacing
    encrypted: memoryview = field(default_factory=lambda: memoryview(bytearray(SCRATCH_BYTES)))
    live: dict[int, Live] = field(default_factory=dict)
    tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    last_id: int = 0
    draining: bool = False
    empty: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever the last connection is gone."""
