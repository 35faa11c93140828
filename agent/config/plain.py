"""Whether a text is a number or a URL at all, before anybody makes one of it, which may raise."""

from __future__ import annotations

from urllib.parse import urlsplit

DIGITS_MAX = 18
"""More of them are a number that no setting takes, and Python refuses to read some thousand."""


def is_whole(text: str) -> bool:
    """Whether it is a whole number from 0 on. What is not is refused when the whole is looked at."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def url_problem(name: str, url: str) -> str | None:
    """Why nobody can read the URL of a setting; None when all can. A password in it is not told."""
    try:
        if urlsplit(url).port != 0:
            return None
    except ValueError:
        pass
    shown = "" if "@" in url else f" {url!r}"
    return f"{name}{shown} is no URL: its brackets do not match, or its port is none from 1 to 65535"
