"""Histories at random, in which most goes right and much may go wrong."""

from __future__ import annotations

import random

from tests.checker.operations import History, Operation, Outcome, Poll, Send

KEYS = ("x", "y")
SECOND = 1_000_000_000
MEANINGS = ("send", "txn", "txn", "poll", "poll", "assign", "subscribe", "crash")
OUTCOMES: tuple[Outcome, ...] = ("ok", "ok", "ok", "ok", "ok", "info", "fail")
GONE_OF = 0.05
"""Of polls: those behind which one of their records is never seen again."""


class _Draw:
    """The logs and consumers behind one history."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._log: dict[str, list[int]] = {key: [] for key in KEYS}
        self._gone: set[int] = set()
        self._place: dict[tuple[int, str], int] = {}
        self._value = 0

    def send(self, key: str) -> Send:
        draw = self.random
        self._value += 1
        if draw.random() < 0.9:
            self._log[key].append(self._value)
        offset = max(0, len(self._log[key]) - 1 - (draw.random() < 0.05))
        return Send(key, self._value, offset if draw.random() < 0.8 else None)

    def poll(self, process: int, key: str) -> Poll:
        draw = self.random
        start = max(0, self._place.get((process, key), 0) + draw.choice((0, 0, 0, 0, 0, 1, -1)))
        rows = [(o, v) for o, v in enumerate(self._log[key]) if o >= start and v not in self._gone]
        rows = rows[: draw.randint(0, 4)]
        if rows and draw.random() < GONE_OF:
            self._gone.add(draw.choice(rows)[1])
        if rows and draw.random() < 0.06:
            rows[-1] = (rows[-1][0], draw.choice((self._value + 1000, rows[0][1])))
        if len(rows) > 2 and draw.random() < 0.06:
            del rows[1]
        self._place[process, key] = rows[-1][0] + 1 if rows else start
        return Poll({key: rows})


def made(seed: int) -> History:
    """A short history; the same seed makes the same."""
    drawn = _Draw(seed)
    draw = drawn.random
    history = History()
    for index in range(draw.randint(3, 25)):
        process, f = draw.randrange(3), draw.choice(MEANINGS)
        micro: list[Send | Poll] = []
        for _ in range(draw.randint(1, 3) if f in ("send", "txn", "poll") else 0):
            key = draw.choice(KEYS)
            sends = f == "send" or (f == "txn" and draw.random() < 0.5)
            micro.append(drawn.send(key) if sends else drawn.poll(process, key))
        named = tuple(k for k in KEYS if draw.random() < 0.8) if f in ("assign", "subscribe") else ()
        moved = frozenset(k for k in KEYS if draw.random() < 0.1)
        outcome = draw.choice(OUTCOMES)
        at = index * draw.choice((1, 2)) * SECOND
        history.operations.append(
            Operation(index, process, f, outcome, tuple(micro), named, moved, at, at + SECOND // 2)
        )
    return history
