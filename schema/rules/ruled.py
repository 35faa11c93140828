"""Which messages the records of a batch are, as far as rules are to be evaluated: what a worker must know.

The records themselves stay in their batch, and a worker decodes it again: what a batch decodes to is then
held by one process at a time, and no more. Where few of them are to be evaluated, these alone are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from objectstore.batch import Record
from schema.descriptors import MessageType

RUNS_MAX = 100_000
"""Changes from one schema or framing to another within one batch; each costs some hundred bytes."""

NO_RULES = -1
"""The kind of messages that have none."""

FEW = 8
"""Messages that may break rules are named one by one where they are less than one in so many of those looked
at; else all of them are evaluated."""

RECORD = "record"
"""Beside key and value: what has a topic's own rules, of which each record is one."""

OwnRule = tuple[str, str, str]
"""A topic's own rule: id, expression and message (coordination/record_rules.py RecordRule)."""


class Places(Protocol):
    """Keys or values by their places."""

    def __getitem__(self, at: int, /) -> bytes | None: ...


class Run(NamedTuple):
    """From record `first` on, messages of kind `kind` begin at byte `start`. Nulls belong to no run.

    `kind`: NO_RULES, or a place in Ruled.kinds.
    """

    first: int
    kind: int
    start: int


class Signed(NamedTuple):
    """A message that may break its rules: messages of one type and signature break the same ones."""

    place: int
    """Of its record in the batch that is sent to be evaluated."""
    role: str
    digest: bytes
    """Of its type (schema/descriptors.py MessageType)."""
    signature: tuple[bool, ...]
    """By schema/rules/sure/signature.py."""


class Apart(NamedTuple):
    """The few records of a batch that may break rules, in a batch of their own (schema/rules/apart.py)."""

    places: Sequence[int]
    """In the batch that they are of, in order."""
    records: Sequence[Record]
    batch: bytes
    runs: Mapping[str, Sequence[Run]]
    """By role, counted in the batch of their own."""
    left: bytes | None
    """The batch that they are of without them, as far as it was asked for."""
    signed: Sequence[Signed] | None = None
    """All that is to be evaluated, as far as it was asked for; None also where a message has no signature."""


class TooMixed(ValueError):
    """The records change from one schema or framing to another more than RUNS_MAX times."""


class Ruled:
    """Of which kinds with rules the messages of one batch are.

    `roles`: whose rules are to be evaluated (key, value, RECORD). `own`: the topic's own rules; where it has
    some it is noted of which kinds all messages are, with rules or without.
    """

    def __init__(self, roles: Iterable[str], own: Sequence[OwnRule] = ()) -> None:
        self.roles = frozenset(roles)
        self.own = own
        self.kinds: list[MessageType] = []
        self.runs: dict[str, list[Run]] = {}
        self.left: int | None = None
        """How many messages are to be evaluated; None: all that there are."""
        self.seen = False
        """Whether there were messages with rules, which may all surely obey them."""
        self.settled: set[str] = set()
        """Roles of which all messages surely obey their rules."""
        self.apart: Apart | None = None
        """What is to be evaluated, where that is little of the batch."""
        self._numbers: dict[int, int] = {}

    def __bool__(self) -> bool:
        """Whether there is anything to evaluate."""
        return bool(self.kinds or self.own)

    def chosen(self, role: str, doubts: Sequence[int], records: int) -> list[range]:
        """Which of so many messages are to be noted, in order; `doubts`: those that may break rules."""
        if doubts:
            self.settled.discard(role)
        if self.own:
            return [range(records)]
        few = len(doubts) * FEW <= records and len(self.runs.get(role, ())) < RUNS_MAX // 2
        chosen = _stretches(doubts) if few else [range(records)]
        self.left = (self.left or 0) + sum(map(len, chosen))
        return chosen

    def pass_over(self, role: str, index: int) -> None:
        """From record `index` on messages need not be evaluated."""
        self.note(role, index, None, 0)

    def note(self, role: str, index: int, kind: MessageType | None, start: int) -> None:
        """Record `index` of the batch has a message of that kind, from byte `start` on; None: it has none.

        Raises TooMixed.
        """
        runs = self.runs.get(role)
        number: int | None = NO_RULES
        if kind is not None and (kind.has_rules or self.own):
            number = self._numbers.get(id(kind))
        if runs and runs[-1].kind == number and runs[-1].start == start:
            return
        if number is None:
            assert kind is not None
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


def _stretches(places: Sequence[int]) -> list[range]:
    """Places, in order, as runs of those that follow one another."""
    found: list[range] = []
    for place in places:
        if found and found[-1].stop == place:
            found[-1] = range(found[-1].start, place + 1)
        else:
            found.append(range(place, place + 1))
    return found
