"""What this package needs of a clock. coordination.clock.Clock is one; lint keeps real ones out of here."""

from __future__ import annotations

import asyncio
import struct
from typing import Protocol

from crc32c import crc32c


class Pace(Protocol):
    """Waiting, measuring and spreading."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1). For jitter."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Suspend this task."""
        ...


class LoopPace:
    """The running event loop's own time; jitter from its digits. For callers that have no Clock."""

    def monotonic(self) -> float:
        """See Pace."""
        return asyncio.get_running_loop().time()

    def random(self) -> float:
        """See Pace."""
        digest: int = crc32c(struct.pack(">d", self.monotonic()))
        return digest / 4_294_967_296

    async def sleep(self, seconds: float) -> None:
        """See Pace."""
        await asyncio.sleep(seconds)
