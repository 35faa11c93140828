"""When the members of one group are late, and with what. Seconds of the event loop's clock.

Nothing here decides anything: that a member is late is a proposal. A member that is heard of before the
proposal is planned stays in the group. Whoever keeps time looks when `next` has come; `sooner` tells it of a
deadline before that, so that a group in which nothing is due costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum

from coordination.state.consumer_types import ConsumerGroupData, ConsumerMember, MemberState

NEVER = float("inf")
AGAIN_S = 5.0  # after a proposal that did not get through


class Timer(Enum):
    """What a member may be late with."""

    SESSION = "the member session expired"
    REBALANCE = "the member did not give partitions back within the rebalance timeout"
    JOIN = "the classic member failed to join within the rebalance timeout"
    SYNC = "the member failed to sync within the rebalance timeout"


Key = tuple[str, Timer]


class Sessions:
    """Deadlines by member and kind, and what was proposed because of them."""

    def __init__(self, sooner: Callable[[float], object] = lambda at: None) -> None:
        self._sooner = sooner
        self._at: dict[Key, float] = {}
        self._next = NEVER  # no deadline is before; most only move away
        self._proposed: set[Key] = set()
        self._giving_back: dict[str, int] = {}  # member → its epoch when it was asked to

    @property
    def busy(self) -> bool:
        """Whether any member is watched."""
        return bool(self._at)

    @property
    def next(self) -> float:
        """Nothing is due before; NEVER when nothing ever is."""
        return self._next

    def restart(self, data: ConsumerGroupData, session_s: float, now: float) -> None:
        """Count from now on for every member: nothing was heard because nobody listened here."""
        self.end()
        self.watch(data.members.values(), session_s, now)

    def watch(self, members: Iterable[ConsumerMember], session_s: float, now: float) -> None:
        """Begin to count for those of these members that nobody counts for yet."""
        for member in members:
            own_s = member.classic.session_timeout_ms / 1000 if member.classic is not None else session_s
            self.set_if_absent(member.member_id, Timer.SESSION, now + own_s)
            self.stands(member, now)

    def end(self) -> None:
        """Forget every member."""
        self._at.clear()
        self._proposed.clear()
        self._giving_back.clear()
        self._next = NEVER

    def heard(self, member_id: str, session_s: float, now: float) -> None:
        """The member lives."""
        self.set(member_id, Timer.SESSION, now + session_s)

    def ends(self, member_id: str) -> float:
        """When a member's session ends: the earlier, the sooner its next heartbeat is due. 0: not known."""
        return self._at.get((member_id, Timer.SESSION), 0.0)

    def stands(self, member: ConsumerMember, now: float) -> None:
        """After a change of the member: begin to wait for what it must give back, or stop waiting."""
        if member.state != MemberState.UNREVOKED_PARTITIONS or member.classic is not None:
            self._giving_back.pop(member.member_id, None)
            self.clear(member.member_id, Timer.REBALANCE)
        elif self._giving_back.get(member.member_id) != member.epoch:
            self._giving_back[member.member_id] = member.epoch
            self.set(member.member_id, Timer.REBALANCE, now + member.rebalance_timeout_ms / 1000)

    def asked_to_revoke_at(self, member_id: str) -> int | None:
        """The epoch in which a member was asked to give partitions back; None when it was not."""
        return self._giving_back.get(member_id)

    def set(self, member_id: str, timer: Timer, at: float) -> None:
        """Set a deadline, or move it."""
        self._at[member_id, timer] = at
        self._proposed.discard((member_id, timer))
        if at < self._next:
            self._next = at
            self._sooner(at)

    def set_if_absent(self, member_id: str, timer: Timer, at: float) -> None:
        """Set a deadline unless there is one."""
        if (member_id, timer) not in self._at:
            self.set(member_id, timer, at)

    def clear(self, member_id: str, timer: Timer) -> None:
        """Forget one deadline."""
        self._at.pop((member_id, timer), None)
        self._proposed.discard((member_id, timer))

    def forget(self, member_id: str) -> None:
        """Forget a member."""
        for timer in Timer:
            self.clear(member_id, timer)
        self._giving_back.pop(member_id, None)

    def delay(self, seconds: float) -> None:
        """Move every deadline: nobody could be heard for so long."""
        self._at = {key: at + seconds for key, at in self._at.items()}
        self._next += seconds

    def take_due(self, now: float) -> list[Key]:
        """What is due, and to be proposed now; it is due again a while later unless it was settled."""
        if now < self._next:
            return []
        due = [key for key, at in self._at.items() if at <= now]
        for key in due:
            self._at[key] = now + AGAIN_S
        self._proposed.update(due)
        self._next = min(self._at.values(), default=NEVER)
        return due

    def still_late(self, key: Key) -> bool:
        """Whether what was proposed is still so."""
        return key in self._proposed
