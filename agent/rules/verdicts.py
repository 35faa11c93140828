"""What the library found of messages, by their signatures: of others with the same it would find the same.

A signature says exactly which rules a message breaks (schema/rules/sure/signature.py). So bad records of a
kind that was seen before cost no worker's turn; the words are the library's own.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

from agent.rules.messages import Bad, Findings
from schema.rules.ruled import Signed

VERDICTS_MAX = 2_048
"""Verdicts that are known; the one that is known for longest goes first."""

VERDICT_CHARS_MAX = 4_000
"""Characters of one; a longer one is asked for each time."""

_Key = tuple[str, bytes, tuple[bool, ...]]
_Verdict = tuple[str, Sequence[tuple[str, str, str]]]
"""The reason, and the violations one by one, as in Bad."""


class Verdicts:
    """Those of one agent. What is known is at most 2,048 times 4,000 characters."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, _Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def findings(self, signed: Sequence[Signed], bad_max: int) -> Findings | None:
        """What a worker would answer, where that is known of all of them."""
        found, broken = Findings(records=len(signed)), Counter[tuple[str, str]]()
        places: set[int] = set()
        for place, role, digest, signature in signed:
            known = self._known.get((role, digest, signature))
            if known is None:
                return None
            places.add(place)
            found.bad.append(Bad(place, role, *known))
            broken.update((role, rule) for _, rule, _ in known[1])
        found.bad.sort(key=lambda each: each.index)
        del found.bad[bad_max:]
        found.bad_records, found.broken = len(places), dict(broken)
        return found

    def learn(self, signed: Sequence[Signed], found: Findings, violations_max: int) -> None:
        """Remember what a worker answered; of each bad one it was to tell so many violations."""
        told = {(each.index, each.role): each for each in found.bad}
        for place, role, digest, signature in signed:
            bad = told.get((place, role))
            if bad is None or not 0 < len(bad.violations) < violations_max:
                continue  # it obeys, or nobody knows what else it breaks
            if len(bad.reason) + sum(map(len, (text for each in bad.violations for text in each))) > (
                VERDICT_CHARS_MAX
            ):
                continue
            self._known[role, digest, signature] = bad.reason, bad.violations
            if len(self._known) > VERDICTS_MAX:
                self._known.popitem(last=False)
