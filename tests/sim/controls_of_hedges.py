"""Controls of hedged PUTs: what is acknowledged has to be under the name that the log has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from objectstore.flush import ChunkPutter
from objectstore.store import CREATE, Buffer
from tests.sim.controls import LOST, Control
from tests.sim.patching import patched
from tests.sim.plan import Plan


def _hedges_have_names_of_their_own() -> Any:
    """A hedge is sent under another name, and the chunk is taken for stored when it is there."""

    async def race(self: Any, key: str, parts: Sequence[Buffer]) -> int:
        first = asyncio.ensure_future(self._store.put(key, parts, CREATE))
        await asyncio.wait([first], timeout=self.lateness.delay_s)
        if first.done():
            first.result()
            return 0
        await self._store.put(key.replace(".chunk", ".hedge.chunk"), parts, CREATE)
        first.cancel()
        return 1

    return patched((ChunkPutter, "_race", race))


def puts_hang(plan: Plan) -> Plan:
    """All agents' PUTs hang by chance, and land behind their hedges or never; nothing else goes wrong."""
    return replace(plan, faults=((1.0, 15.0, "late-puts", tuple(range(plan.agents))),))


HEDGES: tuple[Control, ...] = (
    Control(
        "hedge-has-another-name",
        "1: an ack means durable, under the name that the log has",
        LOST,
        _hedges_have_names_of_their_own,
        told=puts_hang,
    ),
)
