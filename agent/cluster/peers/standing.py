"""Which peers are asked: one that failed is left alone, for longer each time, and tried by one request then.

A peer that fails is one episode of the log: told when it is left alone, again each minute, and when it is
asked again, however many requests meet it in between.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from agent.telemetry.episodes import Episodes
from agent.telemetry.logs import logger

_log = logger("peers")

REST_S = 3.0  # how long a peer that failed is not asked, seconds
REST_S_MAX = 60.0  # the same for one that failed at each try since, seconds
PEERS_MAX = 1024  # peers remembered as failing


@dataclass(slots=True)
class _Failing:
    """A peer that failed. `trying`: one request finds out whether it is well again."""

    until: float
    rest_s: float = REST_S
    trying: bool = False


class Standings:
    """The peers that fail, by address. `now` gives seconds of a clock that only goes on."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._told = Episodes(
            _log, now, begins="a peer is left alone", ends="a peer is asked again", level="info"
        )
        self._failing: OrderedDict[str, _Failing] = OrderedDict()

    def may_ask(self, address: str) -> bool:
        """Whether to ask this peer. Yes for one whose rest is over is a try: `well`, `failed` or
        `gave_up` must follow."""
        known = self._failing.get(address)
        if known is None:
            return True
        if known.trying or self._now() < known.until:
            return False
        known.trying = True
        return True

    def resting(self, address: str) -> bool:
        """Whether the peer is left alone now."""
        known = self._failing.get(address)
        return known is not None and self._now() < known.until

    def rests_first(self, address: str) -> bool:
        """Whether it failed, and not at a try since."""
        known = self._failing.get(address)
        return known is not None and known.rest_s == REST_S

    def stirred(self, address: str) -> None:
        """The peer showed life: its rest is over, and the next request is a try."""
        known = self._failing.get(address)
        if known is not None:
            known.until = min(known.until, self._now())

    def failed(self, address: str, error: object) -> None:
        """The peer could not be used. Of many requests that fail together only the first one matters."""
        now, known = self._now(), self._failing.get(address)
        if known is None:
            known = self._failing[address] = _Failing(now + REST_S)
            while len(self._failing) > PEERS_MAX:
                self._failing.popitem(last=False)
        elif known.trying or now >= known.until:
            known.rest_s = min(2 * known.rest_s, REST_S_MAX)
            known.until, known.trying = now + known.rest_s, False
        self._told.met(address, peer=address, error=repr(error))

    def well(self, address: str) -> None:
        """The peer answered as it should."""
        if self._failing.pop(address, None) is not None:
            self._told.over(address, peer=address)

    def gave_up(self, address: str) -> None:
        """The request was cancelled before its answer: it says nothing about the peer."""
        known = self._failing.get(address)
        if known is not None:
            known.trying = False
