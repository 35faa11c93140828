"""How long what failed is left alone, and how often that is told: less and less while nothing changes."""

from __future__ import annotations

PUT_OFF_S = 30.0  # after the first failure …
PUT_OFF_S_MAX = 600.0  # … and in the end


def patience_s(failures: int) -> float:
    """For how long, seconds, after so many failures in a row."""
    return min(PUT_OFF_S * 2.0 ** min(max(failures, 1) - 1, 10), PUT_OFF_S_MAX)


def is_told(failures: int) -> bool:
    """Whether this failure of a row is worth a line in the log: the first, the second, the fourth …"""
    return failures & (failures - 1) == 0
