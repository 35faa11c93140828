"""Figures as people read them."""

from __future__ import annotations

from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: float) -> str:
    """Bytes."""
    for unit in _UNITS[:-1]:
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def number(count: float | None) -> str | None:
    """With marks between thousands; None stays."""
    return None if count is None else f"{count:,.0f}"


def moment(at_ms: int) -> str | None:
    """Unix ms as ISO 8601, UTC; None for no time, and for one that no calendar has."""
    if at_ms < 0:
        return None
    try:
        return (
            datetime.fromtimestamp(at_ms / 1000, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def at_ms(given: str) -> int | None:
    """Unix ms of what somebody wrote: a number of ms, or ISO 8601 (UTC unless it says otherwise)."""
    if given.isascii() and given.isdigit():
        return int(given) if len(given) < 16 else None
    try:
        found = datetime.fromisoformat(given)
    except ValueError:
        return None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
