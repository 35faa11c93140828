"""Questions about groups of KIP-848: what is refused and how, epochs, static members, positions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from agent.net.wire.generated import consumer_group_describe as cd
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_fetch as of
from tests.compat.against.side import Answers, Question, Side, code
from tests.compat.raw import topic_id
from tests.equipment.group_members import coordinator_of

TIMEOUT_MS = 60_000
STEP_S, STEPS_MAX = 0.25, 40  # heartbeats until a member has what it shall have
PARTITIONS = 4
Reply = ch.ConsumerGroupHeartbeatResponse


@dataclass
class Member:
    """One member on one side, asked where its group is coordinated."""

    side: Side
    group: str
    topic: str
    topic_id: bytes
    member_id: str
    epoch: int = 0
    instance: str | None = None
    owned: frozenset[int] = frozenset()

    async def beat(self, version: int = 1, **said: Any) -> Reply:
        """One heartbeat as it is."""
        fields: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
        }
        request = ch.ConsumerGroupHeartbeatRequest(**{**fields, **said})
        answer: Reply = await self.side.ask("ConsumerGroupHeartbeat", request, version)
        return answer

    def whole(self) -> dict[str, Any]:
        """What a member says when it joins."""
        return {
            "rebalance_timeout_ms": TIMEOUT_MS,
            "subscribed_topic_names": [self.topic],
            "topic_partitions": self.rows(),
        }

    def rows(self) -> list[ch.TopicPartitions]:
        """What it owns, as it says it."""
        return [ch.TopicPartitions(self.topic_id, sorted(self.owned))] if self.owned else []

    async def step(self, **said: Any) -> Reply:
        """One heartbeat, followed."""
        answer = await self.beat(topic_partitions=self.rows(), **said)
        if not answer.error_code:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                rows = answer.assignment.topic_partitions
                self.owned = frozenset(number for row in rows for number in row.partitions)
        return answer

    async def join(self, **said: Any) -> Reply:
        """The first heartbeat, followed."""
        self.epoch, self.owned = 0, frozenset()
        return await self.step(
            **{**{k: v for k, v in self.whole().items() if k != "topic_partitions"}, **said}
        )


async def member_of(side: Side, name: str, group: str = "group") -> Member:
    """A member that has not joined."""
    topic = await side.topic("consumed", PARTITIONS)
    full = f"{side.prefix}{group}"
    return await placed(Member(side, full, topic, await topic_id(side.bootstrap, topic), name))


async def placed(member: Member) -> Member:
    """The member at its group's coordinator, once that answers for the group."""
    there = Side(await coordinator_of([member.side.bootstrap], member.group), member.side.prefix)
    member = replace(member, side=there)
    for _ in range(STEPS_MAX):
        request = cd.ConsumerGroupDescribeRequest([member.group])
        (group,) = (await there.ask("ConsumerGroupDescribe", request, 1)).groups
        if code(group.error_code) in ("NONE", "GROUP_ID_NOT_FOUND"):
            break
        await asyncio.sleep(STEP_S)
    return member


async def settle(members: list[Member], sizes: list[int]) -> str:
    """Heartbeats until all have so many partitions; who never gets there is told."""
    for _ in range(STEPS_MAX):
        for member in members:
            await member.step()
        if [len(member.owned) for member in members] == sizes and len({m.epoch for m in members}) == 1:
            return f"{sizes}, epochs alike"
        await asyncio.sleep(STEP_S)
    return f"{[(member.epoch, sorted(member.owned)) for member in members]}"


def said(answer: Reply | None, names: dict[str, str] | None = None) -> str:
    """An answer as text: an error with its message, else what is always so."""
    if answer is None:
        return "no answer"
    if answer.error_code:
        return f"{code(answer.error_code)}: {answer.error_message}"
    return f"{'an id' if answer.member_id else 'no id'}, epoch {answer.member_epoch}"


async def refusals(side: Side) -> Answers:
    """Requests to no group, of nobody, with nonsense."""
    one = await member_of(side, "one", "refused")
    join = one.whole()
    asked: dict[str, dict[str, Any]] = {
        "empty group": {**join, "group_id": ""},
        "blank group": {**join, "group_id": " "},
        "no member id": {**join, "member_id": ""},
        "empty instance": {**join, "instance_id": ""},
        "empty rack": {**join, "rack_id": ""},
        "epoch -3": {**join, "member_epoch": -3},
        "no timeout": {**join, "rebalance_timeout_ms": -1},
        "no partitions": {**join, "topic_partitions": None},
        "partitions": {**join, "topic_partitions": [ch.TopicPartitions(one.topic_id, [0])]},
        "no topics": {**join, "subscribed_topic_names": None},
        "empty assignor": {**join, "server_assignor": ""},
        "unknown assignor": {**join, "server_assignor": "sticky"},
        "bad pattern": {**join, "subscribed_topic_regex": "[", "subscribed_topic_names": None},
        "pattern that looks back": {**join, "subscribed_topic_regex": "(a)\\1"},
        "unknown group": {"member_epoch": 5},
        "unknown group, leaves": {"member_epoch": -1},
        "unknown group, leaves for a while": {"member_epoch": -2, "instance_id": "i"},
        "leaves for a while without an instance": {"member_epoch": -2},
    }
    found = {name: said(await one.beat(**fields)) for name, fields in asked.items()}
    pattern = (
        found["bad pattern"].partition("expression:")[0],
        found["pattern that looks back"].partition("expression:")[0],
    )
    found["bad pattern"], found["pattern that looks back"] = pattern
    return found


async def life(side: Side) -> Answers:
    """A member alone, then two; retries, wrong epochs, what each has in the end; leaving."""
    one = await member_of(side, "first", "life")
    found: Answers = {"joins": said(await one.join())}
    found["alone"] = await settle([one], [PARTITIONS])
    found["nothing new"] = said(await one.beat())
    told = await one.beat()
    found["nothing new, assignment"] = str(told.assignment)
    found["interval"] = str(told.heartbeat_interval_ms)
    found["greater epoch"] = said(await one.beat(member_epoch=one.epoch + 1)).partition("(")[0]
    full = await one.beat(**one.whole())
    found["everything again"] = str(full.assignment is not None)
    found["somebody"] = said(await one.beat(member_id="who"))
    found["somebody leaves"] = said(await one.beat(member_id="who", member_epoch=-1))
    found["as static"] = said(await one.beat(instance_id="i"))
    two = replace(one, member_id="second", epoch=0, owned=frozenset())
    await two.join()
    before = one.epoch
    found["two"] = await settle([one, two], [2, 2])
    found["nobody shares"] = str(not one.owned & two.owned)
    found["older epoch"] = said(await one.beat(member_epoch=before - 1)).partition("(")[0]
    found["joins again"] = said(await one.beat(**{**one.whole(), "member_epoch": 0, "topic_partitions": []}))[
        :40
    ]
    found |= await _positions(one)
    found["described"] = await described(one)
    found["leaves"] = said(await two.beat(member_epoch=-1))
    found["left"] = said(await two.beat())
    found["alone again"] = await settle([one], [PARTITIONS])
    found["the last leaves"] = said(await one.beat(member_epoch=-1))
    found["described, empty"] = await described(one)
    found["empty"] = said(await one.beat())
    return found


async def described(member: Member) -> str:
    """ConsumerGroupDescribe as text, without numbers that depend on how often a target was made."""
    request = cd.ConsumerGroupDescribeRequest([member.group])
    (group,) = (await member.side.ask("ConsumerGroupDescribe", request, 1)).groups
    if group.error_code:
        return f"{code(group.error_code)}: {group.error_message}"
    members = sorted(
        f"{m.member_id} {m.instance_id} {m.rack_id} {m.client_host} {len(m.subscribed_topic_names)} "
        f"{m.subscribed_topic_regex!r} {m.member_type} "
        f"{sum(len(row.partitions) for row in m.assignment.topic_partitions)} of "
        f"{sum(len(row.partitions) for row in m.target_assignment.topic_partitions)}"
        for m in group.members
    )
    return f"{group.group_state} {group.assignor_name} {members}"


async def commit(member: Member, epoch: int, version: int = 9, member_id: str | None = None) -> str:
    """OffsetCommit of partition 0 as text."""
    row = oc.OffsetCommitRequestPartition(min(member.owned, default=0), 5)
    topic = oc.OffsetCommitRequestTopic(name=member.topic, partitions=[row])
    request = oc.OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=epoch,
        member_id=member.member_id if member_id is None else member_id,
        topics=[topic],
    )
    answer = await member.side.ask("OffsetCommit", request, version)
    return code(answer.topics[0].partitions[0].error_code)


async def fetch(member: Member, epoch: int, member_id: str | None) -> str:
    """OffsetFetch 9 as text."""
    topics = [of.OffsetFetchRequestTopics(name=member.topic, partition_indexes=[0])]
    asked = of.OffsetFetchRequestGroup(
        group_id=member.group, member_id=member_id, member_epoch=epoch, topics=topics
    )
    answer = await member.side.ask("OffsetFetch", of.OffsetFetchRequest(groups=[asked]), 9)
    return code(answer.groups[0].error_code)


async def _positions(one: Member) -> Answers:
    """Who may commit and ask for positions."""
    return {
        "commit": await commit(one, one.epoch),
        "commit 8": await commit(one, one.epoch, 8),
        "commit 8, somebody": await commit(one, one.epoch, 8, "who"),
        "commit, newer": await commit(one, one.epoch + 1),
        "commit, long ago": await commit(one, 0),
        "commit, somebody": await commit(one, one.epoch, 9, "who"),
        "commit, from outside": await commit(one, -1, 9, ""),
        "fetch": await fetch(one, one.epoch, one.member_id),
        "fetch, newer": await fetch(one, one.epoch + 1, one.member_id),
        "fetch, older": await fetch(one, one.epoch - 1, one.member_id),
        "fetch, somebody": await fetch(one, one.epoch, "who"),
        "fetch, from outside": await fetch(one, -1, None),
    }


async def static(side: Side) -> Answers:
    """A static member leaves for a while, comes back under another id, is held up by a stranger."""
    one = await member_of(side, "first", "static")
    one.instance = "i"
    await one.join()
    found: Answers = {"alone": await settle([one], [PARTITIONS])}
    retry = await one.beat(**one.whole() | {"member_epoch": 0, "topic_partitions": []})
    found["joins again"] = said(retry)
    one.epoch = retry.member_epoch or one.epoch
    found["has it all"] = await settle([one], [PARTITIONS])
    stranger = replace(one, member_id="stranger", epoch=0, owned=frozenset())
    found["taken"] = said(await stranger.join())
    found["stranger beats"] = said(await stranger.beat(member_epoch=one.epoch))
    found["stranger leaves"] = said(await stranger.beat(member_epoch=-1))
    found["unknown instance"] = said(await stranger.beat(member_epoch=one.epoch, instance_id="j"))
    found["goes for a while"] = said(await one.beat(member_epoch=-2))
    found["beats while away"] = said(await one.beat()).partition("(")[0]
    again = replace(one, member_id="again", epoch=0, owned=frozenset())
    await again.join()
    found["back"] = await settle([again], [PARTITIONS])
    found["the old one"] = said(await one.beat())
    found["described"] = await described(again)
    found["leaves"] = said(await again.beat(member_epoch=-1))
    return found


async def subscriptions(side: Side) -> Answers:
    """Patterns and names; nothing at all; both assignors."""
    one = await member_of(side, "first", "patterns")
    pattern = f"{one.topic[:-3]}.*"
    found: Answers = {
        "joins": said(await one.join(subscribed_topic_names=None, subscribed_topic_regex=pattern)).partition(
            ","
        )[0]
    }
    found["by pattern"] = await settle([one], [PARTITIONS])
    found["described"] = (await described(one)).replace(one.topic[:-3], "")
    await one.step(subscribed_topic_regex="")
    found["nothing"] = await settle([one], [0])
    await one.step(subscribed_topic_names=[one.topic], server_assignor="range")
    found["by name"] = await settle([one], [PARTITIONS])
    found["described, range"] = await described(one)
    found["bad pattern"] = said(await one.beat(subscribed_topic_regex="(")).partition(" is not")[0]
    found["leaves"] = said(await one.beat(member_epoch=-1))
    found["described, unknown"] = await described(await placed(replace(one, group=f"{one.group}-not")))
    return found


QUESTIONS: dict[str, Question] = {
    "ConsumerGroups.refusals": refusals,
    "ConsumerGroups.life": life,
    "ConsumerGroups.static": static,
    "ConsumerGroups.subscriptions": subscriptions,
}
