"""When what is due in one group. Seconds of the event loop's clock; nothing here decides anything."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

NEVER = float("inf")


class Timer(Enum):
    """What a member may be late with."""

    SESSION = "the member session expired."
    REBALANCE = "it failed to give partitions back in time."
    JOIN = "the classic member failed to join within the rebalance timeout."
    SYNC = "the member failed to sync within timeout."


class Timers:
    """Deadlines by member and kind. `next_due` is a lower bound: deadlines mostly move away."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, Timer], float] = {}
        self.next_due = NEVER

    def set(self, member_id: str, timer: Timer, at: float) -> None:
        """Set a deadline, or move it."""
        self._at[member_id, timer] = at
        self.next_due = min(self.next_due, at)

    def set_if_absent(self, member_id: str, timer: Timer, at: float) -> None:
        """Set a deadline unless there is one."""
        if (member_id, timer) not in self._at:
            self.set(member_id, timer, at)

    def clear(self, member_id: str, timer: Timer) -> None:
        """Forget one deadline."""
        self._at.pop((member_id, timer), None)

    def forget(self, member_id: str) -> None:
        """Forget a member."""
        for timer in Timer:
            self._at.pop((member_id, timer), None)

    def is_due(self, member_id: str, timer: Timer, now: float) -> bool:
        """Whether the deadline is there and has passed."""
        return self._at.get((member_id, timer), NEVER) <= now

    def delay(self, seconds: float) -> None:
        """Move every deadline: nobody could be heard for so long."""
        self._at = {key: at + seconds for key, at in self._at.items()}
        self.next_due += seconds

    def due(self, now: float) -> Iterator[tuple[str, Timer]]:
        """What is due; it is asked for again until it is cleared or moved."""
        if now < self.next_due:
            return
        yield from [key for key, at in self._at.items() if at <= now]
        self.next_due = min((at for at in self._at.values() if at > now), default=NEVER)
