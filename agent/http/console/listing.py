"""Long lists by pages: names in their order behind one that was shown, of which some are wanted.

Nobody sorts all of them at once: the loop serves others after each few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final, NamedTuple

from starlette.requests import Request

from agent.http.answers import Problem
from agent.http.console.markup import Html, link, many, tag, url
from objectstore.turns import Turns, in_turns

ROWS: Final = 100
"""Of a page of a list."""
LOOKED_AT_PER_TURN: Final = 250
"""Names before others may go on; each may be a question to the ACLs."""
TEXT_CHARS_MAX: Final = 4_096
"""Of what somebody looks for."""


class Listed(NamedTuple):
    """A page's names; `after`: behind which the next page begins, empty for none; `total` of all wanted."""

    names: list[str]
    after: str
    total: int


class Asked(NamedTuple):
    """What is looked for, and behind which name the page begins."""

    search: str
    after: str


def asked(request: Request) -> Asked:
    """Of a list's query. Raises Problem 400."""
    return Asked(word(request, "search"), word(request, "after"))


def word(request: Request, name: str) -> str:
    """A text of the query; empty for none. Raises Problem 400."""
    given = request.query_params.get(name, "")
    if len(given) > TEXT_CHARS_MAX:
        raise Problem(
            400, f"{name} has {len(given)} characters, at most {TEXT_CHARS_MAX} are taken", "shorten it"
        )
    return given


async def listed(names: Iterable[str], look: Asked, may: Callable[[str], bool], rows: int = ROWS) -> Listed:
    """One page. `may`: whether whoever asks may see it."""
    return await in_turns(_listed(list(names), look, may, rows))


def _listed(names: list[str], look: Asked, may: Callable[[str], bool], rows: int) -> Turns[Listed]:
    best: list[str] = []
    count = 0
    search = look.search.lower()
    for start in range(0, len(names), LOOKED_AT_PER_TURN):
        some = [
            each for each in names[start : start + LOOKED_AT_PER_TURN] if search in each.lower() and may(each)
        ]
        count += len(some)
        best = nsmallest(rows + 1, [*best, *(each for each in some if each > look.after)])
        yield
    return Listed(best[:rows], best[rows - 1] if len(best) > rows else "", count)


def form(path: str, look: Asked, of: str) -> Html:
    """Where one says what is looked for."""
    field = tag(
        "input", type="search", name="search", value=look.search, id="search", maxlength=TEXT_CHARS_MAX
    )
    return tag(
        "form",
        tag("label", f"Name of a {of} contains ", field),
        tag("button", "Search"),
        action=path,
        role="search",
    )


def ways(path: str, look: Asked, found: Listed, **query: object) -> Html:
    """How many there are, and the way on."""
    first = link("First page", url(path, search=look.search, **query)) if look.after else None
    more = url(path, search=look.search, after=found.after, **query)
    following = link("Next page", more, rel="next") if found.after else None
    return tag("p", many((tag("span", f"{found.total:,} in all"), first, following)), class_="ways")
