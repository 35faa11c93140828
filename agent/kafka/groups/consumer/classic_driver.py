"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup in groups of KIP-848: members that have not moved over yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import cast

from agent.kafka.groups.consumer import classic_members
from agent.kafka.groups.consumer.classic_members import HandOver
from agent.kafka.groups.consumer.draft import Draft
from agent.kafka.groups.consumer.driver import ConsumerGroups
from agent.kafka.groups.consumer.errors import GroupError
from agent.kafka.groups.consumer.sessions import Timer
from agent.kafka.groups.consumer.work import Work
from agent.kafka.groups.members import Join, Joined, Synced
from coordination.kafka_codes import Code
from coordination.state.consumer_types import ConsumerGroupData


class ClassicMembers:
    """The classic requests of one agent's groups of KIP-848."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups

    def holds(self, group_id: str) -> bool:
        """Whether the group is one of KIP-848 with members."""
        data = self._groups.data(group_id)
        return data is not None and bool(data.members)

    async def join(self, group_id: str, join: Join) -> Joined | HandOver:
        """JoinGroup. HandOver: the group is, or just became, one for the classic coordinator."""
        work = Work(partial(_join, join), topics=classic_members.named(join))
        try:
            joined = cast("Joined | HandOver", await self._groups.ask(group_id, work))
        except GroupError as error:
            if error.code in (Code.GROUP_ID_NOT_FOUND, Code.REBALANCE_IN_PROGRESS):
                return HandOver()
            return Joined(error.code, join.member_id)
        if not isinstance(joined, Joined) or joined.code is not Code.NONE:
            return joined
        sessions = self._groups.sessions_of(group_id, joined.member_id)
        if sessions is not None:
            now = asyncio.get_running_loop().time()
            sessions.clear(joined.member_id, Timer.JOIN)
            sessions.heard(joined.member_id, join.session_s, now)
            sessions.set(joined.member_id, Timer.SYNC, now + join.rebalance_s)
        return joined

    def sync(
        self,
        group_id: str,
        member: tuple[str, str | None],
        generation: int,
        protocols: tuple[str | None, str | None],
    ) -> Synced:
        """SyncGroup of `member` (member id, instance id)."""
        try:
            data = self._data(group_id)
            topics = self._groups.topics()
            synced = classic_members.sync(data, topics, *member, generation, protocols, group_id)
        except GroupError as error:
            if error.code is Code.REBALANCE_IN_PROGRESS:
                self._await_join(group_id, member[0])
            return Synced(error.code)
        self._groups.runner(group_id).sessions.clear(member[0], Timer.SYNC)
        self._heard(group_id, data, member[0])
        return synced

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> Code:
        """Heartbeat."""
        try:
            data = self._data(group_id)
            code = classic_members.heartbeat(data, group_id, member_id, instance_id, generation)
        except GroupError as error:
            return error.code
        self._heard(group_id, data, member_id)
        if code is Code.REBALANCE_IN_PROGRESS:
            self._await_join(group_id, member_id)
        return code

    async def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> list[Code] | Code:
        """LeaveGroup of (member id, instance id); a code for each, or one for all."""
        work = Work(partial(_leave, leaving))
        try:
            return cast("list[Code]", await self._groups.ask(group_id, work))
        except GroupError as error:
            return error.code

    def _data(self, group_id: str) -> ConsumerGroupData:
        self._groups.check_coordinator(group_id)
        data = self._groups.data(group_id)
        if data is None:
            raise GroupError(Code.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return data

    def _heard(self, group_id: str, data: ConsumerGroupData, member_id: str) -> None:
        classic = data.members[member_id].classic
        assert classic is not None, f"{member_id!r} does not speak the classic protocol"
        now = asyncio.get_running_loop().time()
        self._groups.runner(group_id).sessions.heard(member_id, classic.session_timeout_ms / 1000, now)

    def _await_join(self, group_id: str, member_id: str) -> None:
        """The member was told to join again: it has its rebalance timeout for that."""
        data = self._groups.data(group_id)
        member = data.members.get(member_id) if data is not None else None
        if member is not None:
            at = asyncio.get_running_loop().time() + member.rebalance_timeout_ms / 1000
            self._groups.runner(group_id).sessions.set_if_absent(member_id, Timer.JOIN, at)


def _join(join: Join, draft: Draft) -> Joined | HandOver:
    return classic_members.join(draft, join)


def _leave(leaving: Sequence[tuple[str, str | None]], draft: Draft) -> list[Code]:
    codes: list[Code] = []
    for member_id, instance_id in leaving:
        try:
            classic_members.leave(draft, member_id, instance_id)
        except GroupError as error:
            codes.append(error.code)
        else:
            codes.append(Code.NONE)
    return codes
