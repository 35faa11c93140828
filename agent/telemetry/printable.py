"""What clients named themselves, shown to people: in a log for people, in what a command prints."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """The text with everything that does not print written as an escape, but for the characters in `keep`.

    Escape sequences move a cursor, a line's end begins a line of somebody else's, and marks of direction
    turn around what stands beside them.
    """
    rest = text
    for one in keep:  # most of what is shown needs nothing but what is kept
        rest = rest.replace(one, "")
    if rest.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode() for one in text
    )
