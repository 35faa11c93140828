"""Scrubbing with its rules broken: others' bytes are written, segments passed over, a lost id drawn anew."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from agent.background.scrub import walks
from agent.background.scrub.spares import Spares
from objectstore import cluster_id
from tests.sim.controls import Control
from tests.sim.patching import patched
from tests.sim.plan import scrubbed


def _writes_others() -> tuple[tuple[Any, str, Any], ...]:
    """A bit of what is put back is another one."""

    async def put(self: Any, key: str, content: bytes, check: Callable[[bytes], str] | None = None) -> None:
        wrong = bytearray(content)
        wrong[len(wrong) // 2] ^= 1
        await self._store.put(key, [bytes(wrong)])

    return ((Spares, "put", put),)


def _passes_over() -> tuple[tuple[Any, str, Any], ...]:
    """Manifests and segments are not looked at."""

    async def merged(world: Any, after: str, look: Any) -> AsyncIterator[str]:
        return
        yield

    return ((walks, "merged", merged),)


def _draws_another() -> tuple[tuple[Any, str, Any], ...]:
    """An agent that starts where cluster.json is lost does not ask what the bucket says."""

    async def known(store: Any) -> None:
        return None

    return ((cluster_id, "known", known),)


WRONG = frozenset({"scrub-wrote-wrong"})
SCRUB = (
    Control(
        "a-scrubber-writes-other-bytes",
        "scrub: what is put back is what was there",
        WRONG,
        lambda: patched(*_writes_others()),
        told=scrubbed,
    ),
    Control(
        "a-scrubber-passes-segments-over",
        "scrub: damage is found within a round",
        frozenset({"scrub-missed"}),
        lambda: patched(*_passes_over()),
        told=scrubbed,
    ),
    Control(
        "a-lost-fingerprint-makes-another-cluster",
        "scrub: no two scrubbers undo each other",
        WRONG,
        lambda: patched(*_draws_another()),
        told=scrubbed,
    ),
)
