"""Regular expressions of subscriptions: RE2, so no expression takes more than linear time. Off the loop.

An expression matches whole names. What it costs is bounded: its length, the memory of its program, how
many are remembered. Results are remembered until topics change, or others need the room: whoever needs one
later takes it along.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import re2

from agent.kafka.groups.consumer.errors import GroupError
from coordination.kafka_codes import Code

REGEX_LENGTH_MAX = 10_000  # characters
PROGRAM_BYTES_MAX = 4 * 1024 * 1024  # memory of one compiled expression and of its matching
REMEMBERED_MAX = 1_000  # expressions
RENEWAL_S_MIN = 1.0  # between two evaluations of one expression while topics keep changing

Stamp = tuple[int, int]  # differs whenever a topic came, went or grew


Names = tuple[str, ...]  # sorted


@dataclass(frozen=True, slots=True)
class _Resolved:
    stamp: Stamp
    at: float
    names: Names


class Patterns:
    """What each expression matches, as of the topics when it was last evaluated."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Resolved] = OrderedDict()

    def __contains__(self, regex: str) -> bool:
        """Whether a result of the expression is remembered: then it is one."""
        return regex in self._known

    async def resolve(
        self, regexes: Iterable[str], topics: Iterable[str], stamp: Stamp, now: float
    ) -> tuple[dict[str, Names], bool]:
        """What each expression matches among `topics`, and whether all results are those of `stamp`.

        Those not remembered are evaluated. The results are the caller's: while it waits for one, others may
        push any out of what is remembered here. Raises GroupError (INVALID_REGULAR_EXPRESSION). `now`:
        seconds of a clock that never goes back.
        """
        found: dict[str, Names] = {}
        missing: list[str] = []
        fresh = True
        for regex in regexes:  # what is there is taken first, before the others push it out
            known = self._known.get(regex)
            if known is None or (known.stamp != stamp and now - known.at >= RENEWAL_S_MIN):
                missing.append(regex)
                continue
            self._known.move_to_end(regex)
            found[regex] = known.names
            fresh = fresh and known.stamp == stamp
        among = list(topics) if missing else []
        for regex in missing:
            found[regex] = await asyncio.to_thread(matching, regex, among)
            self._remember(regex, _Resolved(stamp, now, found[regex]))
        return found, fresh

    def _remember(self, regex: str, resolved: _Resolved) -> None:
        self._known[regex] = resolved
        self._known.move_to_end(regex)
        while len(self._known) > REMEMBERED_MAX:
            self._known.popitem(last=False)


def check_regex(regex: str) -> None:
    """Refuse what is no expression, or too large a one. Raises GroupError."""
    _compiled(regex)


def matching(regex: str, topics: Iterable[str]) -> Names:
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
