"""Connections that have not shown who they are: TLS handshakes under way, and logins not yet done.

Anybody can open them, so they are few and short. When one too many comes, the oldest is cut: whoever shakes
hands as clients do is through long before that, whatever somebody else leaves half open.
"""

from __future__ import annotations

from collections.abc import Callable

Cut = Callable[[str], None]


class Strangers:
    """Of one server, oldest first. Times are the event loop's, seconds."""

    def __init__(self, count_max: int, seconds_max: float) -> None:
        self.count_max = count_max
        self.seconds_max = seconds_max
        self._since: dict[object, tuple[float, Cut]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, one: object, now: float, cut: Cut) -> None:
        """Somebody came. `cut` ends the connection for a reason; `leave` may be called within."""
        self._since[one] = (now, cut)
        while len(self._since) > self.count_max:
            oldest = next(iter(self._since))
            self._end(
                oldest, f"limits.stranger_connections_max: {self.count_max} others came before its login"
            )

    def leave(self, one: object) -> None:
        """It is known by now, or gone."""
        self._since.pop(one, None)

    def sweep(self, now: float) -> None:
        """Cut those that took too long."""
        for one, (since, _) in list(self._since.items()):
            if now - since <= self.seconds_max:
                return
            self._end(one, f"no handshake or login within {self.seconds_max:g} s (limits.login_ms_max)")

    def _end(self, one: object, reason: str) -> None:
        _, cut = self._since.pop(one)
        cut(reason)
