"""Who hears that a transaction is committed asks for the group's positions at once.

Any agent may end a transaction; the group's positions are told by the one that coordinates it, and that one
may come to the end's entry later than the client hears of it. So without a read barrier it would tell what
was over when it was asked (positions.py judges that).
"""

from __future__ import annotations

import asyncio

from agent.net.wire.generated.offset_fetch import OffsetFetchRequest
from tests.equipment.transactional_client import Connection
from tests.sim.clients import Surroundings

ANSWER_S_MAX = 2.0
FETCH_VERSION = 5
ERRORS = (OSError, EOFError, TimeoutError)


class Onlooker:
    """One client's second window, with a connection to each agent that is kept open."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._connections: dict[str, Connection] = {}
        self._asking: set[str] = set()

    def committed(self, group: str, bootstrap: str) -> None:
        """Ask who took the transaction's positions; nobody waits for the answer."""
        if bootstrap not in self._asking:
            self._asking.add(bootstrap)
            self._around.loop.create_task(self._ask(bootstrap, group))

    async def _ask(self, bootstrap: str, group: str) -> None:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = self._connections.pop(bootstrap, None) or await Connection.open(bootstrap)
                await connection.call("OffsetFetch", OffsetFetchRequest(group, None), FETCH_VERSION)
            self._connections[bootstrap] = connection
        except ERRORS:
            pass  # the next look opens another one
        finally:
            self._asking.discard(bootstrap)
