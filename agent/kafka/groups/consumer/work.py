"""What can be asked of a group of KIP-848, as planners take it from a group's queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.heartbeat import fence
from agent.kafka.groups.consumer.sights import Viewer
from coordination.kafka_codes import Code
from coordination.state.consumer_types import MemberState


@dataclass(slots=True, eq=False)
class Work:
    """One request or timer of a group. `plan` applies it to the draft and returns its answer.

    `creates`: the group is made when it does not exist. `outcome` is that answer, which counts once the log
    has taken the draft's change; `future` then hands it to the sender.
    """

    plan: Callable[[Draft], Any]
    creates: bool = False
    kind: str = "Group"  # what it would not find, in Kafka's words
    topics: tuple[str, ...] = ()  # whose partitions its sender wants, as it says in the request
    regex: str | None = None  # to be resolved before it is planned
    member_id: str = ""  # whose sender `viewer` is
    viewer: Viewer | None = None  # None: everything is seen, or nobody new was heard
    future: asyncio.Future[Any] | None = None
    outcome: Any = field(default=None, repr=False)

    @property
    def refused(self) -> bool:
        """Whether it took no effect."""
        return isinstance(self.outcome, GroupError)

    def settle(self) -> None:
        """Tell the sender."""
        if self.future is None or self.future.done():
            return
        if isinstance(self.outcome, GroupError):
            self.future.set_exception(self.outcome)
        else:
            self.future.set_result(self.outcome)


def refuse(works: Iterable[Work], code: Code, message: str) -> None:
    """Tell the senders that nothing happened, or that it is not known."""
    for work in works:
        work.outcome = GroupError(code, message)
        work.settle()


def plan_all(draft: Draft, works: list[Work], exists: bool) -> int:
    """Take works into the draft, in order, until the group has become classic; how many were taken."""
    for taken, work in enumerate(works):
        if draft.downgraded:
            return taken
        if not exists and not work.creates:
            work.outcome = GroupError(Code.GROUP_ID_NOT_FOUND, f"{work.kind} {draft.group_id} not found.")
            continue
        try:
            work.outcome = work.plan(draft)
            exists = True
        except GroupError as error:
            work.outcome = error
    return len(works)


def fencing(
    member_id: str, still_late: Callable[[], bool], gives_back_at: int | None = None
) -> Callable[[Draft], None]:
    """Work that takes a member out if it is still late.

    With `gives_back_at`: only if it still has partitions to give back that it was asked for in that epoch.
    """

    def plan(draft: Draft) -> None:
        member = draft.data.members.get(member_id)
        if member is None or not still_late():
            return
        giving = member.epoch == gives_back_at and member.state == MemberState.UNREVOKED_PARTITIONS
        if gives_back_at is None or giving:
            fence(draft, member_id)

    return plan
