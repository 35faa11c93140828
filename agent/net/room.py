"""Room for another large answer on a connection: requests whose turn has come wait until there is some."""

from __future__ import annotations

import asyncio


class Room:
    """Of one connection, in its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wanted: asyncio.Future[None] | None = None

    @property
    def waited_for(self) -> bool:
        """Whether somebody asked for room since it was there last."""
        return self._wanted is not None

    def wanted(self) -> asyncio.Future[None]:
        """Done once there is room, or nobody left to answer."""
        if self._wanted is None or self._wanted.done():
            self._wanted = self._loop.create_future()
        return self._wanted

    def let_in(self) -> None:
        """Whoever waits has it."""
        wanted, self._wanted = self._wanted, None
        if wanted is not None and not wanted.done():
            wanted.set_result(None)
