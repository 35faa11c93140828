"""What a proxy does to the requests of one transactional client, at random: hold, drop, repeat, reset.

A request that is held is delivered late: an EndTxn when its client has given it up, has ended its transaction
by another try and writes the next one; any other when its client has written a few times more. What comes a
second time comes by another connection, since its client sends it again, or right behind the first: no
network delivers late and twice by one connection. Produce, which has numbers for it, is copied so as well.
Or (`behind_positions`) it is delivered into a later transaction right behind that one's own positions, before
its client knows that they are taken and ends it: where nothing refuses it, the older ones then count.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.equipment.proxy import Action, Proxy

PRODUCE, ADD_PARTITIONS, ADD_OFFSETS, END_TXN, TXN_OFFSET_COMMIT = 0, 24, 25, 26, 28
NAMES = {
    PRODUCE: "Produce", ADD_PARTITIONS: "AddPartitionsToTxn", ADD_OFFSETS: "AddOffsetsToTxn",
    END_TXN: "EndTxn", TXN_OFFSET_COMMIT: "TxnOffsetCommit",
}  # fmt: skip
HELD_MAX = 2  # of a client at a time, so that a second try may be held as well
WRITES_MAX = 4  # of its client after which a held request is delivered
LATER_S_MAX = 0.05

Odds = Mapping[str, float]
HELD: Odds = {"hold": 0.4}
OFTEN: Odds = {"hold": 0.2, "drop": 0.03, "lose": 0.06, "double": 0.04, "reset": 0.02}
SELDOM: Odds = {"hold": 0.01, "drop": 0.004, "lose": 0.006, "double": 0.006, "reset": 0.003}
COPIED: Odds = {**SELDOM, "copy": 0.006}
ACTIONS = {
    "hold": Action.HOLD, "drop": Action.DROP, "lose": Action.PASS, "double": Action.DOUBLE,
    "copy": Action.COPY, "reset": Action.RESET,
}  # fmt: skip
"""`lose`: the request passes and its answer is dropped."""


def _all_with(often: int) -> dict[int, Odds]:
    return {**dict.fromkeys(NAMES, SELDOM), PRODUCE: COPIED, often: OFTEN}


MIXES: Mapping[str, tuple[Mapping[int, Odds], ...]] = {
    "all": (_all_with(END_TXN), _all_with(TXN_OFFSET_COMMIT)),
    "positions": ({TXN_OFFSET_COMMIT: OFTEN},),
    "hold": ({END_TXN: HELD},),
    "hold-positions": ({TXN_OFFSET_COMMIT: HELD},),
}
"""What may happen to a request, by its API key; of several, one after the other."""


@dataclass
class Mischief:
    """One client. All of its proxies ask this one; everything here runs on the links' loop."""

    draw: random.Random
    odds: Mapping[int, Odds]
    done: Counter[str] = field(default_factory=Counter)
    """How often what was done: "EndTxn hold", …; "EndTxn late": delivered into a later transaction."""
    over: bool = False
    """Set it, and nothing more is done; what is held is delivered as its client writes, or never."""
    behind_positions: bool = False
    _proxies: list[Proxy] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)  # API keys
    _writes: int = 0  # of the client until what is held is delivered
    _ended: bool = False  # the transaction of what is held; the client is in a later one
    _awaited: set[bytes] = field(default_factory=set)  # correlation ids of a later one's positions

    def take(self, proxy: Proxy) -> None:
        """Rule this link."""
        lost: set[bytes] = set()
        proxy.requests.rule = lambda frame: self._request(frame, lost)

        def answer(frame: bytes) -> Action:
            if frame[4:8] in self._awaited:
                self._awaited.clear()
                self._deliver()
            if frame[4:8] in lost:
                lost.discard(frame[4:8])
                return Action.DROP
            return Action.PASS

        proxy.answers.rule = answer
        self._proxies.append(proxy)

    def _request(self, frame: bytes, lost: set[bytes]) -> Action:
        key = int.from_bytes(frame[4:6], "big")
        what = self._drawn(key)
        if self.behind_positions:
            self._seen(key, frame[8:12], passes=not what)
        if what in ("hold", "copy"):
            if not self._held:
                self._writes = self.draw.randint(1, WRITES_MAX)
            self._held.append(key)
        elif what == "lose":
            lost.add(frame[8:12])
        if key == PRODUCE and what != "hold" and not self.behind_positions:
            self._written()
        if what:
            self.done[f"{NAMES[key]} {what}"] += 1
        return ACTIONS[what] if what else Action.PASS

    def _drawn(self, key: int) -> str:
        if self.behind_positions and self._ended:
            return ""  # what is held waits for the next positions to pass
        dice = self.draw.random()
        for what, odds in self.odds.get(key, {}).items():
            dice -= odds
            if dice < 0 and not self.over:
                return "" if what in ("hold", "copy") and len(self._held) >= HELD_MAX else what
        return ""

    def _seen(self, key: int, correlation: bytes, *, passes: bool) -> None:
        """Notice that a transaction is over, and the positions of the next while something is held."""
        if not self._held:
            self._ended = False
        elif key == END_TXN and passes:
            self._ended = True
        elif key == TXN_OFFSET_COMMIT and self._ended and passes:
            self._awaited.add(correlation)

    def _written(self) -> None:
        """The client writes: of a held EndTxn's client that means that it has gone on."""
        if not self._held:
            return
        self._writes -= 1
        if self._writes <= 0:
            self._writes = 1 << 30
            later = self.draw.uniform(0, LATER_S_MAX)
            asyncio.get_running_loop().call_later(later, self._deliver)

    def _deliver(self) -> None:
        self._held.clear()
        for proxy in self._proxies:
            for frame in proxy.requests.release():
                self.done[f"{NAMES[int.from_bytes(frame[4:6], 'big')]} late"] += 1
