"""Which messages the records of a batch are, as far as rules are to be evaluated: what a worker must know.

The records themselves stay in their batch, and a worker decodes it again: what a batch decodes to is then
held by one process at a time, and no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from schema.descriptors import MessageType

RUNS_MAX = 100_000
"""Changes from one schema or framing to another within one batch; each costs some hundred bytes."""

NO_RULES = -1
"""The kind of messages that have none."""


class Run(NamedTuple):
    """From record `first` on, messages of kind `kind` begin at byte `start`. Nulls belong to no run.

    `kind`: NO_RULES, or a place in Ruled.kinds.
    """

    first: int
    kind: int
    start: int


class TooMixed(ValueError):
    """The records change from one schema or framing to another more than RUNS_MAX times."""


class Ruled:
    """Of which kinds with rules the messages of one batch are.

    `roles`: whose rules are to be evaluated (key, value).
    """

    def __init__(self, roles: Iterable[str]) -> None:
        self.roles = frozenset(roles)
        self.kinds: list[MessageType] = []
        self.runs: dict[str, list[Run]] = {}
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether any record has a message with rules."""
        return bool(self.kinds)

    def note(self, role: str, index: int, kind: MessageType, start: int) -> None:
        """Record `index` of the batch has a message of that kind, from byte `start` on. Raises TooMixed."""
        runs = self.runs.get(role)
        number = self._numbers.get(id(kind)) if kind.has_rules else NO_RULES
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
