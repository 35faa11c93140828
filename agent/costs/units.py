"""Amounts as people write them: `100MiB/s`, `1GB`, `7d`. Strict: a number and a unit, nothing is guessed."""

from __future__ import annotations

import math
import re

_BYTES = {
    "B": 1,
    **{f"{letter}B": 1_000**power for power, letter in enumerate("kMGTP", 1)},
    **{f"{letter}iB": 1_024**power for power, letter in enumerate("KMGTP", 1)},
}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)", re.ASCII)
KIB, MIB, GIB = 1_024, 1_024**2, 1_024**3


def bytes_of(text: str) -> float:
    """Bytes of `16KiB` or `1GB`. Raises ValueError, which says what is understood."""
    return _amount(text, _BYTES)


def rate_of(text: str) -> float:
    """Bytes a second of `100MiB/s`. Raises ValueError."""
    amount, slash, per = text.partition("/")
    if not slash or per != "s":
        raise ValueError(f"{text!r} is no rate: write bytes a second, such as 100MiB/s")
    return _amount(amount, _BYTES)


def seconds_of(text: str) -> float:
    """Seconds of `7d`, `36h` or `250ms`. Raises ValueError."""
    return _amount(text, _SECONDS)


def _amount(text: str, units: dict[str, float] | dict[str, int]) -> float:
    found = _AMOUNT.fullmatch(text)
    if found is None or found[2] not in units:
        raise ValueError(f"{text!r} is not a number and one of {', '.join(units)}")
    amount = float(found[1]) * units[found[2]]
    if not 0 < amount < math.inf:
        raise ValueError(f"{text!r} must be above 0")
    return amount
