"""Where a look at records begins, as somebody asks for it: of the page, and of the file."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.http.answers import Problem
from agent.http.answers import number as whole
from agent.http.console.listing import word
from agent.http.console.searching import Budget, Filter, Look
from agent.http.console.words import at_ms

if TYPE_CHECKING:
    from starlette.requests import Request

    from agent.http.parts import KafkaShown
    from coordination.state.types import Topic

STARTS: Final = ("newest", "oldest", "offset", "time")
ROWS: Final = 50
ROWS_MAX: Final = 200
DIGITS_MAX: Final = 19
"""An offset has fewer."""


class Asked(NamedTuple):
    """`partition` None: all, so many at once from `first` on. `at`: the offset, or Unix ms, it starts at."""

    partition: int | None
    start: str
    at: int
    rows: int
    tail: bool
    wanted: Filter
    given: str
    first: int = 0


async def begin(
    kafka: KafkaShown, topic: Topic, index: int, look: Asked, budget: Budget, left_s: float
) -> int | Look:
    """The first offset to look at; a Look that says why there is none."""
    partition = topic.partitions[index]
    if look.start == "offset":
        return look.at
    if look.start == "newest":
        filtered = look.wanted.key or look.wanted.contains
        back = budget.records if filtered else min(budget.records, look.rows)
        return max(partition.log_start, partition.last_stable - back)
    if look.start == "oldest":
        return partition.log_start
    try:
        async with asyncio.timeout(left_s):
            found = await kafka.offset_at(topic.name, index, look.at)
    except (OSError, TimeoutError) as error:
        return Look(index, 0, problems=[str(error) or "the time cannot be looked up in time"])
    # What an open transaction keeps back is not shown: nothing is, from there on.
    return partition.last_stable if found is None else min(found, partition.last_stable)


def asked(request: Request) -> Asked:
    """Raises Problem 400."""
    start = word(request, "start") or "newest"
    if start not in STARTS:
        raise Problem(400, f"start={start!r} is none of {', '.join(STARTS)}", "?start=newest")
    given = word(request, "at").strip()
    at = at_ms(given) if start == "time" else _offset(given)
    if at is None:
        raise Problem(400, f"at={given!r} is no time", "?at=2026-01-31T12:00 or Unix ms")
    named = word(request, "partition")
    partition = whole(request, "partition") if named else None
    rows = min(max(whole(request, "rows", ROWS), 1), ROWS_MAX)
    tail = request.query_params.get("tail") == "1"
    wanted = Filter(word(request, "key"), word(request, "search"))
    return Asked(partition, start, at, rows, tail, wanted, given, whole(request, "first", 0))


def _offset(given: str) -> int:
    """0 for what is no offset."""
    return int(given) if given.isascii() and given.isdigit() and len(given) < DIGITS_MAX else 0
