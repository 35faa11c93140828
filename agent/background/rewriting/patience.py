"""How long what failed is left alone, and how often that is told: less and less while nothing changes."""

from __future__ import annotations

from coordination.state import State

PUT_OFF_S = 30.0  # after the first failure …
PUT_OFF_S_MAX = 600.0  # … and in the end


def patience_s(failures: int) -> float:
    """For how long, seconds, after so many failures in a row."""
    return min(PUT_OFF_S * 2.0 ** min(max(failures, 1) - 1, 10), PUT_OFF_S_MAX)


def is_told(failures: int) -> bool:
    """Whether this failure of a row is worth a line in the log: the first, the second, the fourth …"""
    return failures & (failures - 1) == 0


def names_of(state: State, handle: int) -> dict[str, object]:
    """A partition in a line of the log: by `topic` and `partition`, as everywhere, or by nothing."""
    found = state.partitions[handle]
    return {} if found is None else {"topic": found.topic.name, "partition": found.index}
