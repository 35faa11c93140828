"""Connections that have not shown who they are: TLS handshakes under way, and logins not yet done.

Anybody can open them, so they are few and short. When one too many comes, the oldest is cut: whoever shakes
hands as clients do is through long before that, whatever somebody else leaves half open.

When many come at once, as after a restart, they take turns: a handshake is 0.4 to 1 ms of the event loop,
which a thousand of them in one of its rounds would hold for as long, and everybody else with them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from objectstore.rounds import Rounds

if TYPE_CHECKING:
    from agent.net.listening import ConnectionInfo, Dispatch, RequestContext
    from agent.net.wire.frame import RequestHeader
    from agent.net.wire.primitives import Buffer

Cut = Callable[[str], None]
Untaken = Callable[[], int]
"""Bytes of answers that the client has not taken yet."""
STEPS_MAX: Final = 4
"""Steps of handshakes and requests before a login that are taken in one round of the event loop."""


class _One(NamedTuple):
    since: float
    cut: Cut
    untaken: Untaken
    before: int
    """What was not taken when it came, or was looked at."""

    @property
    def moves(self) -> bool:
        """Whether its client has taken something since."""
        return self.untaken() < self.before


class Strangers:
    """Of one server, oldest first. Times are the event loop's, seconds."""

    def __init__(self, count_max: int, seconds_max: float) -> None:
        self.count_max = count_max
        self.seconds_max = seconds_max
        self._since: dict[object, _One] = {}
        self._steps = Rounds[Callable[[], object]](_do, STEPS_MAX)

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, one: object, now: float, cut: Cut, untaken: Untaken = lambda: 0) -> None:
        """Somebody came. `cut` ends the connection for a reason; `leave` may be called within.

        Whoever goes on taking what he was answered, however slowly, is not cut for his time.
        """
        self._since[one] = _One(now, cut, untaken, untaken())
        while len(self._since) > self.count_max:
            self._end(
                self._standing(),
                f"limits.stranger_connections_max: {self.count_max} others came before its login",
            )

    def leave(self, one: object) -> None:
        """It is known by now, or gone."""
        self._since.pop(one, None)

    def sweep(self, now: float) -> None:
        """Cut those that took too long."""
        for one, each in list(self._since.items()):
            if now - each.since <= self.seconds_max:
                return
            if each.moves:
                del self._since[one]
                self.enter(one, now, each.cut, each.untaken)
            else:
                self._end(one, f"no handshake or login within {self.seconds_max:g} s (limits.login_ms_max)")

    def _standing(self) -> object:
        """The oldest that takes nothing. Among the older half only: who came just now has his time, also
        where all others take a little every now and then."""
        older = islice(self._since.items(), (len(self._since) + 1) // 2)
        return next((one for one, each in older if not each.moves), next(iter(self._since)))

    def _end(self, one: object, reason: str) -> None:
        self._since.pop(one).cut(reason)

    # Turns.

    def step(self, do: Callable[[], object]) -> None:
        """Do it now, or where others were before in this round of the loop, behind them.

        Of each connection there is one step of its handshake, or the requests that one read before its login
        has brought.
        """
        self._steps.come(do)

    def in_turn(self, dispatch: Dispatch) -> Dispatch:
        """The same, but requests before a login wait for their turns. A connection's keep their order."""

        async def late(
            context: RequestContext, header: RequestHeader, body: memoryview
        ) -> list[Buffer] | None:
            await self._turn(context.connection)
            return await dispatch(context, header, body)

        def turned(
            context: RequestContext, header: RequestHeader, body: memoryview
        ) -> Awaitable[list[Buffer] | None]:
            connection = context.connection
            waits = connection.stranger or connection.queued
            return (late if waits else dispatch)(context, header, body)

        return turned

    async def _turn(self, connection: ConnectionInfo) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        connection.queued += 1
        self.step(partial(_let, turn))
        try:
            if turn.done() and connection.queued > 1:  # those before it were let, but did not wake up yet
                await asyncio.sleep(0)
            await turn
        finally:
            connection.queued -= 1


def _do(step: Callable[[], object]) -> None:
    step()


def _let(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # whoever waited may have been cancelled
        turn.set_result(None)
