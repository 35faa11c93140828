"""Regular expressions of subscriptions: RE2, so no expression takes more than linear time. Off the loop.

An expression matches whole names. What it costs is bounded: its length, the memory of its program, how
many are remembered. Results are remembered until topics change.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import re2

from agent.kafka.groups.consumer.errors import GroupError
from coordination.kafka_codes import Code

REGEX_LENGTH_MAX = 10_000  # characters
PROGRAM_BYTES_MAX = 4 * 1024 * 1024  # memory of one compiled expression and of its matching
REMEMBERED_MAX = 1_000  # expressions
RENEWAL_S_MIN = 1.0  # between two evaluations of one expression while topics keep changing

Stamp = tuple[int, int]  # differs whenever a topic came, went or grew


@dataclass(frozen=True, slots=True)
class _Resolved:
    stamp: Stamp
    at: float
    names: tuple[str, ...]


class Patterns:
    """What each expression matches, as of the topics when it was last evaluated."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Resolved] = OrderedDict()

    def names(self, regex: str) -> tuple[str, ...]:
        """The topics that it matches, sorted; none when it was not resolved."""
        found = self._known.get(regex)
        return found.names if found is not None else ()

    async def resolve(self, regex: str, topics: Sequence[str], stamp: Stamp, now: float) -> bool:
        """Evaluate an expression, unless it was; whether the result is that of `stamp`.

        Raises GroupError (INVALID_REGULAR_EXPRESSION). `now`: seconds of a clock that never goes back.
        """
        known = self._known.get(regex)
        if known is not None:
            self._known.move_to_end(regex)
            if known.stamp == stamp:
                return True
            if now - known.at < RENEWAL_S_MIN:
                return False
        names = await asyncio.to_thread(matching, regex, topics)
        self._known[regex] = _Resolved(stamp, now, names)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)
        return True


def check_regex(regex: str) -> None:
    """Refuse what is no expression, or too large a one. Raises GroupError."""
    _compiled(regex)


def matching(regex: str, topics: Sequence[str]) -> tuple[str, ...]:
    """The names that the expression matches from their first to their last character, sorted."""
    compiled = _compiled(regex)
    return tuple(sorted(name for name in topics if compiled.fullmatch(name)))


def _compiled(regex: str) -> re2._Regexp:
    if len(regex) > REGEX_LENGTH_MAX:
        raise _refusal(f"{regex[:40]}…", f"more than {REGEX_LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = PROGRAM_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(regex, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0]
        raise _refusal(regex, reason.decode() if isinstance(reason, bytes) else str(reason)) from error


def _refusal(regex: str, why: str) -> GroupError:
    return GroupError(
        Code.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {why}.",
    )
