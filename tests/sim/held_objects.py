"""Objects that the store keeps, whoever deletes them: under a hold, by a policy, for no reason given.

They take up room and no more: what else nothing refers to goes as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from agent.app import App
from objectstore.naming import ChunkId, chunk_key
from tests.checker.findings import Finding
from tests.sim.clients import Surroundings

GONE_S_MAX = 60.0
"""Within which chunks go that nothing refers to, when all is whole again."""


async def judged(around: Surroundings, app: App, held: Collection[str]) -> list[Finding]:
    """Of chunks that nothing refers to only those stay that the store keeps. Asked where there are such."""
    if not held:
        return []

    def left(chunks: Sequence[ChunkId]) -> list[str]:
        garbage = app.replica.state.chunks.garbage
        return [key for each in chunks if each in garbage and (key := chunk_key(each)) not in held]

    due = list(app.replica.state.chunks.garbage)
    around.counts["held objects of no use"] += sum(chunk_key(each) in held for each in due)
    try:
        async with asyncio.timeout(GONE_S_MAX):
            while left(due):  # noqa: ASYNC110 - polls a state
                await asyncio.sleep(0.2)
    except TimeoutError:
        stays = left(due)
        return [Finding("garbage-stays", "", f"{len(stays)} chunks beside {sorted(held)}", ())]
    return []
