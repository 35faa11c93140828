"""HTML out of values: the one place where text becomes markup, and so the one where it is escaped.

Whatever is not `Html` is text of somebody else's: records, names, errors. It is escaped for content and
attributes alike. In what people read, what does not print (marks of direction, control characters) is written
out; what a browser sends back, as the value of a field, stays what it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Final
from urllib.parse import quote, urlencode

from agent.telemetry.printable import printable
from objectstore.turns import Turns

VOID: Final = frozenset({"input", "meta", "link", "br"})
"""Elements without content (HTML, 13.1.2)."""
PIECE_CHARS: Final = 4_096
"""Made markup of before others may go on."""
READ: Final = frozenset({"title", "aria-label", "placeholder"})
"""Attributes that are shown; others are data."""
LINES: Final = "\n\t"
"""What is kept of what does not print."""


class Html(str):
    """Markup made here."""

    __slots__ = ()


Content = Html | str | int | float | None
Attribute = str | int | bool | None


def text(value: object) -> Html:
    """Text as markup that shows it; None shows as that."""
    if isinstance(value, Html):
        return value
    return Html(escape(printable("none" if value is None else str(value), LINES)))


def data(value: object) -> Html:
    """What a browser is to take as it is: of carriage returns it would make newlines."""
    return Html(escape(str(value)).replace("\r", "&#13;"))


def in_pieces(value: str) -> Turns[Html]:
    """The same as `text`, of a long one: where each letter has to be looked at it takes a microsecond."""
    pieces = [text(value[:PIECE_CHARS])]
    for at in range(PIECE_CHARS, len(value), PIECE_CHARS):
        yield
        pieces.append(text(value[at : at + PIECE_CHARS]))
    return Html("".join(pieces))


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Html:
    """An element. Names of attributes: `class_` is class, `aria_label` is aria-label.

    None and False: without the attribute, True: without a value.
    """
    told = "".join(_attribute(each, value) for each, value in attributes.items())
    head = f"<{name}{told}>"
    return Html(head if name in VOID else f"{head}{many(content)}</{name}>")


def many(content: Iterable[Content]) -> Html:
    """One behind the other."""
    return Html("".join(text("" if each is None else each) for each in content))


def url(path: str, /, *names: str, **query: object) -> str:
    """A path of the console's own: `names` stand for each {}, `query` behind it without what is empty."""
    asked = {key: str(value) for key, value in query.items() if value not in ("", None)}
    filled = path.format(*(quote(each, safe="", errors="replace") for each in names))
    return f"{filled}?{urlencode(asked, errors='replace')}" if asked else filled


def link(shown: str, to: str, **attributes: Attribute) -> Html:
    """`to` is of `url`."""
    return tag("a", shown, href=to, **attributes)


def table(heads: Iterable[str], rows: Iterable[Iterable[Content]], nothing: str = "none") -> Html:
    """Heads that end in # are of numbers. Without rows: a line that says `nothing`."""
    named = [(each.rstrip("#"), "number" if each.endswith("#") else None) for each in heads]
    body = [
        tag("tr", *(tag("td", cell, class_=kind) for cell, (_, kind) in zip(row, named, strict=True)))
        for row in rows
    ]
    if not body:
        return tag("p", nothing, class_="nothing")
    head = tag("tr", *(tag("th", name, class_=kind, scope="col") for name, kind in named))
    # Wide tables scroll by themselves, by keyboard too.
    return tag(
        "div",
        tag("table", tag("thead", head), tag("tbody", *body)),
        class_="wide",
        tabindex="0",
        role="region",
    )


def pairs(rows: Mapping[str, Content]) -> Html:
    """Names with their values."""
    return tag("dl", *(many((tag("dt", name), tag("dd", text(value)))) for name, value in rows.items()))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    called = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {called}"
    return f' {called}="{text(value) if called in READ else data(value)}"'
