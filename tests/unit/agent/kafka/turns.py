"""How often others have their turn while something is done: what a test asks instead of how long it took."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    """How many turns others had."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def turns() -> AsyncIterator[Turns]:
    counted = Turns()
    task = asyncio.ensure_future(counted.run())
    yield counted
    task.cancel()
