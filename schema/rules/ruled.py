"""Which messages the records of a batch are, as far as rules are to be evaluated: what a worker must know.

The records themselves stay in their batch, and a worker decodes it again: what a batch decodes to is then
held by one process at a time, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schema.descriptors import MessageType

RUNS_MAX = 10_000
"""Changes from one schema or framing to another within one batch; each costs memory."""


class Run(NamedTuple):
    """From record `first` on, messages of kind `kind` begin at byte `start`. Nulls belong to no run."""

    first: int
    kind: int
    start: int


class TooMixed(ValueError):
    """The records change from one schema or framing to another more than RUNS_MAX times."""


class Ruled:
    """Of which kinds the messages of one batch are. `roles`: whose rules are to be evaluated (key, value)."""

    def __init__(self, roles: Iterable[str]) -> None:
        self.roles = frozenset(roles)
        self.kinds: list[MessageType] = []
        self.runs: dict[str, list[Run]] = {}
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether any record has a message with rules."""
        return any(kind.has_rules for kind in self.kinds)

    def note(self, role: str, index: int, kind: MessageType, start: int) -> None:
        """Record `index` of the batch has a message of that kind, from byte `start` on. Raises TooMixed."""
        runs = self.runs.get(role)
        number = self._numbers.get(id(kind))
        if runs and runs[-1].kind == number and runs[-1].start == start:
            return
        if number is None:
            number = self._numbers[id(kind)] = len(self.kinds)
            self.kinds.append(kind)
        if runs is None:
            runs = self.runs[role] = []
        if len(runs) == RUNS_MAX:
            raise TooMixed(
                f"{role}: the batch's records change from one schema or framing to another more than "
                f"{RUNS_MAX} times; send records of one schema together"
            )
        runs.append(Run(index, number, start))
