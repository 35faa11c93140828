"""Talking with the coordinator of one classic group, and its answers as text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import leave_group as lg
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import sync_group as sg
from tests.compat.against.side import Side, code
from tests.compat.raw import set_broker_config, topic_id
from tests.equipment.group_members import coordinator_of, subscription

SESSION_MS, REBALANCE_MS = 10_000, 5_000
JOIN, SYNC, HEARTBEAT, LEAVE = 9, 5, 4, 5  # newest versions


@dataclass
class Talk:
    """One group on one side, asked where it is coordinated. Member ids become names in the answers."""

    side: Side
    group: str
    topic: str = ""
    names: dict[str, str] = field(default_factory=dict)

    def name(self, member_id: str | None) -> str:
        """The name of a member in answers; its id when it has none."""
        return self.names.get(member_id or "", repr(member_id))

    async def ask(self, api: str, request: Any, version: int, group: str | None = None) -> Any:
        """The answer, from the broker of this group or of another one."""
        side = self.side
        if group is not None and group != self.group:
            side = Side(await coordinator_of([side.bootstrap], group), side.prefix)
        return await side.ask(api, request, version)

    async def join(
        self,
        member_id: str = "",
        *,
        called: str = "",
        version: int = JOIN,
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        kind: str = "consumer",
        session_ms: int = SESSION_MS,
        group: str | None = None,
    ) -> jg.JoinGroupResponse:
        """JoinGroup; remembers the id that the member gets under the name `called`."""
        if protocols is None:
            protocols = {"range": subscription([self.topic])}
        known = [jg.JoinGroupRequestProtocol(name, metadata) for name, metadata in protocols.items()]
        request = jg.JoinGroupRequest(
            self.group if group is None else group, session_ms, REBALANCE_MS, member_id, instance, kind, known
        )
        answer: jg.JoinGroupResponse = await self.ask("JoinGroup", request, version, group)
        if called and answer is not None and answer.member_id:
            self.names.setdefault(answer.member_id, called)
        return answer

    async def enter(self, called: str, **more: Any) -> jg.JoinGroupResponse:
        """Join as a new member, by the way over MEMBER_ID_REQUIRED where that is the way."""
        answer = await self.join(called=called, **more)
        if answer is not None and code(answer.error_code) == "MEMBER_ID_REQUIRED":
            answer = await self.join(answer.member_id, called=called, **more)
        return answer

    async def sync(
        self,
        joined: jg.JoinGroupResponse,
        shares: dict[str, bytes] | None = None,
        *,
        version: int = SYNC,
        generation: int | None = None,
        member_id: str | None = None,
        instance: str | None = None,
        kind: str | None = "consumer",
        protocol: str | None = "range",
        group: str | None = None,
    ) -> str:
        """SyncGroup as text."""
        given = [sg.SyncGroupRequestAssignment(name, part) for name, part in (shares or {}).items()]
        request = sg.SyncGroupRequest(
            self.group if group is None else group,
            joined.generation_id if generation is None else generation,
            joined.member_id if member_id is None else member_id,
            instance,
            kind,
            protocol,
            given,
        )
        answer = await self.ask("SyncGroup", request, version, group)
        if answer is None:
            return "no answer"
        told = f"{answer.protocol_type} {answer.protocol_name}" if version >= 5 else ""
        return f"{code(answer.error_code)} {told} {bytes(answer.assignment)!r}"

    async def beat(
        self,
        generation: int,
        member_id: str,
        instance: str | None = None,
        group: str | None = None,
        version: int = HEARTBEAT,
    ) -> str:
        """Heartbeat as text."""
        name = self.group if group is None else group
        answer = await self.ask(
            "Heartbeat", hb.HeartbeatRequest(name, generation, member_id, instance), version, group
        )
        return "no answer" if answer is None else code(answer.error_code)

    async def leave(
        self, *members: tuple[str, str | None], version: int = LEAVE, group: str | None = None
    ) -> str:
        """LeaveGroup as text."""
        name = self.group if group is None else group
        leaving = [lg.MemberIdentity(member_id, instance) for member_id, instance in members]
        one = members[0][0] if members else ""
        request = lg.LeaveGroupRequest(name, one if version < 3 else "", leaving if version >= 3 else [])
        answer = await self.ask("LeaveGroup", request, version, group)
        if answer is None:
            return "no answer"
        each = [
            f"{self.name(m.member_id)}/{m.group_instance_id}: {code(m.error_code)}" for m in answer.members
        ]
        return f"{code(answer.error_code)} {each}"

    async def commit(
        self,
        offset: int = 5,
        generation: int = -1,
        member_id: str = "",
        instance: str | None = None,
        *,
        version: int = 8,
        topic: str | None = None,
        partitions: tuple[int, ...] = (0,),
        metadata: str | None = "",
        group: str | None = None,
    ) -> str:
        """OffsetCommit as text."""
        rows = [
            oc.OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
            for index in partitions
        ]
        named = oc.OffsetCommitRequestTopic(self.topic if topic is None else topic, partitions=rows)
        if version >= 10:
            named.topic_id = await topic_id(self.side.bootstrap, self.topic) if topic is None else b"?" * 16
        request = oc.OffsetCommitRequest(
            self.group if group is None else group, generation, member_id, instance, topics=[named]
        )
        answer = await self.ask("OffsetCommit", request, version, group)
        if answer is None:
            return "no answer"
        each = sorted((part.partition_index, code(part.error_code)) for part in answer.topics[0].partitions)
        return "; ".join(name for _, name in each)

    async def fetch(
        self,
        *,
        version: int = 8,
        topic: str | None = None,
        partitions: tuple[int, ...] | None = (0,),
        group: str | None = None,
    ) -> str:
        """OffsetFetch as text."""
        name = self.group if group is None else group
        wanted = self.topic if topic is None else topic
        if version >= 8:
            asked = of.OffsetFetchRequestTopics(name=wanted, partition_indexes=list(partitions or ()))
            if version >= 10:
                asked.topic_id = (
                    await topic_id(self.side.bootstrap, self.topic) if topic is None else b"?" * 16
                )
            topics = None if partitions is None else [asked]
            request = of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(name, topics=topics)])
        else:
            old = [of.OffsetFetchRequestTopic(wanted, list(partitions or ()))]
            request = of.OffsetFetchRequest(name, None if partitions is None else old)
        answer = await self.ask("OffsetFetch", request, version, group)
        if answer is None:
            return "no answer"
        found = answer.groups[0] if version >= 8 else answer
        rows = [
            f"{p.partition_index}: {p.committed_offset} {p.committed_leader_epoch} {p.metadata!r} "
            f"{code(p.error_code)}"
            for t in found.topics
            for p in sorted(t.partitions, key=lambda row: row.partition_index)
        ]
        return f"{code(found.error_code)} {rows}"

    async def describe(self, group: str | None = None, version: int = 6) -> str:
        """DescribeGroups as text."""
        name = self.group if group is None else group
        request = de.DescribeGroupsRequest([name], True)
        answer = (await self.ask("DescribeGroups", request, version, group)).groups[0]
        members = [
            f"{self.name(m.member_id)} {m.group_instance_id} {m.client_id} {m.client_host} "
            f"{bytes(m.member_metadata)!r} {bytes(m.member_assignment)!r}"
            for m in sorted(answer.members, key=lambda each: self.name(each.member_id))
        ]
        told = "" if answer.error_message is None else answer.error_message
        text = (
            f"{code(answer.error_code)} {told} {answer.group_state} {answer.protocol_type} "
            f"{answer.protocol_data} {members} {answer.authorized_operations}"
        )
        return text.replace(self.side.prefix, "")

    async def deleted(self, *groups: str) -> str:
        """DeleteGroups as text, asked of the first group's broker."""
        answer = await self.ask("DeleteGroups", dg.DeleteGroupsRequest(list(groups)), 2, groups[0])
        if answer is None:
            return "no answer"
        return "; ".join(
            code(each.error_code) for each in sorted(answer.results, key=lambda row: row.group_id)
        )

    async def offsets_deleted(self, topic: str, *partitions: int, group: str | None = None) -> str:
        """OffsetDelete as text."""
        name = self.group if group is None else group
        rows = [od.OffsetDeleteRequestPartition(index) for index in partitions]
        request = od.OffsetDeleteRequest(name, [od.OffsetDeleteRequestTopic(topic, rows)])
        answer = await self.ask("OffsetDelete", request, 0, group)
        if answer is None:
            return "no answer"
        each = {p.partition_index: code(p.error_code) for t in answer.topics for p in t.partitions}
        return f"{code(answer.error_code)} {sorted(each.items())}"

    def joined(self, answer: jg.JoinGroupResponse | None) -> str:
        """JoinGroup's answer as text."""
        if answer is None:
            return "no answer"
        members = sorted(
            f"{self.name(m.member_id)}/{m.group_instance_id}/{bytes(m.metadata)!r}" for m in answer.members
        )
        text = (
            f"{code(answer.error_code)} generation {answer.generation_id} {answer.protocol_type} "
            f"{answer.protocol_name} leader {self.name(answer.leader)} skip {answer.skip_assignment} "
            f"me {self.name(answer.member_id)} {members}"
        )
        return text.replace(self.side.prefix, "")


async def talk(side: Side, group: str, *, topic: bool = True) -> Talk:
    """The group, on the broker that coordinates it; the first rebalance of a group waits for nobody."""
    # Kafka takes this one from its file only, where it is set; its refusal is nothing.
    await set_broker_config(side.bootstrap, "group.initial.rebalance.delay.ms", "0")
    name = f"{side.prefix}{group}"
    made = await side.topic(f"{group}-topic", 2) if topic else ""
    one = Talk(Side(await coordinator_of([side.bootstrap], name), side.prefix), name, made)
    async with asyncio.timeout(20):  # the first group of a new Kafka waits for its coordinator
        told = "NOT_COORDINATOR"
        while told in ("NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"):
            told = await one.beat(1, "who")
    return one
