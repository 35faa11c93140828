"""Bad input to groups: ids without an end, nonsense in place of subscriptions, patterns that explode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from agent.net.wire.generated import consumer_group_describe as cd
from agent.net.wire.generated import consumer_group_heartbeat as ch
from agent.net.wire.generated import delete_groups as dg
from agent.net.wire.generated import describe_groups as de
from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import heartbeat as hb
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import leave_group as lg
from agent.net.wire.generated import offset_commit as oc
from agent.net.wire.generated import offset_delete as od
from agent.net.wire.generated import offset_fetch as of
from agent.net.wire.generated import sync_group as sg
from tests.compat.against.questions_consumer import member_of, said
from tests.compat.against.side import Answers, Question, Side, told
from tests.compat.against.talk import Talk, talk
from tests.equipment.group_members import coordinator_of

LONGEST = "g" * 32_767  # bytes that Kafka's wire allows
MEGABYTE = "g" * 1_000_000
EVERYWHERE = b"\xff" * 64


def errors(answer: Any) -> str:
    """Every error of an answer with its message, in order."""
    return "no answer" if answer is None else "; ".join(_errors(answer))


def _errors(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for each in part:
            yield from _errors(each)
    elif is_dataclass(part):
        number = getattr(part, "error_code", None)
        if number is not None:
            yield told(number, getattr(part, "error_message", None))
        for each in fields(part):
            yield from _errors(getattr(part, each.name))


Asked = Callable[[str, str], tuple[str, Any, int]]

PROTOCOLS = [jg.JoinGroupRequestProtocol("range", b"")]


def _commit(group: str, topic: str) -> oc.OffsetCommitRequest:
    rows = [oc.OffsetCommitRequestPartition(0, 1)]
    return oc.OffsetCommitRequest(
        group, -1, "", None, topics=[oc.OffsetCommitRequestTopic(topic, partitions=rows)]
    )


def _fetch(group: str, topic: str) -> of.OffsetFetchRequest:
    asked = [of.OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    return of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group, topics=asked)])


def _offset_delete(group: str, topic: str) -> od.OffsetDeleteRequest:
    rows = [od.OffsetDeleteRequestPartition(0)]
    return od.OffsetDeleteRequest(group, [od.OffsetDeleteRequestTopic(topic, rows)])


def _consumer(group: str, topic: str) -> ch.ConsumerGroupHeartbeatRequest:
    return ch.ConsumerGroupHeartbeatRequest(group, "m", 0, None, None, 9_000, [topic], None, None, [])


def _leave(group: str, member: str) -> lg.LeaveGroupRequest:
    return lg.LeaveGroupRequest(group, members=[lg.MemberIdentity(member)])


ASKED: dict[str, Asked] = {  # of a group and a topic
    "find": lambda g, _: ("FindCoordinator", fc.FindCoordinatorRequest(key_type=0, coordinator_keys=[g]), 6),
    "join": lambda g, _: (
        "JoinGroup",
        jg.JoinGroupRequest(g, 10_000, 5_000, "", None, "consumer", PROTOCOLS),
        9,
    ),
    "sync": lambda g, _: ("SyncGroup", sg.SyncGroupRequest(g, 1, "m", None, "consumer", "range", []), 5),
    "heartbeat": lambda g, _: ("Heartbeat", hb.HeartbeatRequest(g, 1, "m", None), 4),
    "leave": lambda g, _: ("LeaveGroup", _leave(g, "m"), 5),
    "commit": lambda g, t: ("OffsetCommit", _commit(g, t), 9),
    "fetch": lambda g, t: ("OffsetFetch", _fetch(g, t), 9),
    "delete positions": lambda g, t: ("OffsetDelete", _offset_delete(g, t), 0),
    "describe": lambda g, _: ("DescribeGroups", de.DescribeGroupsRequest([g], True), 6),
    "delete": lambda g, _: ("DeleteGroups", dg.DeleteGroupsRequest([g]), 2),
    "consumer": lambda g, t: ("ConsumerGroupHeartbeat", _consumer(g, t), 1),
    "consumer describe": lambda g, _: ("ConsumerGroupDescribe", cd.ConsumerGroupDescribeRequest([g]), 1),
}


async def group_ids(side: Side) -> Answers:
    """Every API of groups asked of no id, of blanks, of the longest that there is, and of a longer one."""
    topic = await side.topic("known")
    one = await talk(side, "ids")
    found: Answers = {}
    for label, group in (("empty", ""), ("blank", " "), ("newline", "a\nb"), ("longest", LONGEST)):
        there = Side(await coordinator_of([side.bootstrap], group), side.prefix)
        for name, asked in ASKED.items():
            found[f"{label}: {name}"] = errors(await there.ask(*asked(group, topic)))
    for name, asked in ASKED.items():
        if name != "delete positions":  # the one without compact strings: it cannot say so many
            found[f"a megabyte: {name}"] = errors(await one.side.ask(*asked(MEGABYTE, topic)))
    return found


async def member_ids(side: Side) -> Answers:
    """Member ids, instance ids and names of protocols as long as can be, and longer."""
    one = await talk(side, "members")
    join = jg.JoinGroupRequest(one.group, 10_000, 5_000, "", None, "consumer", PROTOCOLS)
    found: Answers = {}
    for label, text in (("longest", LONGEST), ("a megabyte", MEGABYTE)):
        named = [jg.JoinGroupRequestProtocol(text, b"")]
        cases: dict[str, tuple[str, Any, int]] = {
            "join as member": ("JoinGroup", replace(join, member_id=text), 9),
            "join with protocol type": ("JoinGroup", replace(join, protocol_type=text), 9),
            "join with protocol": ("JoinGroup", replace(join, protocols=named), 9),
            "heartbeat": ("Heartbeat", hb.HeartbeatRequest(one.group, 1, text, None), 4),
            "leave": ("LeaveGroup", _leave(one.group, text), 5),
            "sync": ("SyncGroup", sg.SyncGroupRequest(one.group, 1, text, None, "consumer", "range", []), 5),
            "consumer": (
                "ConsumerGroupHeartbeat",
                replace(_consumer(f"{one.group}-{label}", one.topic), server_assignor=text),
                1,
            ),
        }
        for name, case in cases.items():
            found[f"{label}: {name}"] = errors(await one.side.ask(*case))
    return found


async def nonsense(side: Side) -> Answers:
    """Subscriptions and assignments that do not parse go through; what must read them says so."""
    found: Answers = {}
    for label, raw in (
        ("empty", b""),
        ("short", b"\x00"),
        ("ones", EVERYWHERE),
        ("version", b"\x00\x63" + bytes(64)),
    ):
        one = await talk(side, f"nonsense-{label}")
        joined = await one.enter("first", protocols={"range": raw})
        found[f"{label}: join"] = one.joined(joined)
        if joined is None:
            continue
        found[f"{label}: sync"] = await one.sync(joined, {joined.member_id: raw, "nobody": b"x"})
        found[f"{label}: beat"] = await one.beat(joined.generation_id, joined.member_id)
        found[f"{label}: described"] = await one.describe()
        found[f"{label}: commit"] = await one.commit(5, joined.generation_id, joined.member_id)
        found[f"{label}: delete positions"] = await one.offsets_deleted(one.topic, 0)
        found[f"{label}: new protocol"] = await _arrives(one)
        found[f"{label}: leave"] = await one.leave((joined.member_id, None))
    return found


async def _arrives(one: Talk) -> str:
    """A member of the consumer protocol comes into the classic group."""
    return errors(await one.side.ask("ConsumerGroupHeartbeat", _consumer(one.group, one.topic), 1))


PATTERNS = {
    "backtracks": "(a+)+$",
    "alternatives that overlap": "(a|a|aa)*b",
    "repeated repeats": "((a{1,100}){1,100}){1,100}",
    "a thousand at once": "a{1001}",
    "a thousand brackets": "(" * 1000 + ")" * 1000,
    "open": "(",
    "open class": "[a",
    "nothing to repeat": "*",
    "looks ahead": "a(?=b)",
    "looks behind": "(?<=a)b",
    "possessive": "a++",
    "long": "a" * 30_000,
    "longest": "a" * 32_767,
    "longer": "a" * 40_000,
    "only blanks": " ",
}


async def patterns(side: Side) -> Answers:
    """Patterns that explode, or that no engine of RE2's kind knows; a sound member goes on meanwhile."""
    sound = await member_of(side, "sound", "sound")
    found: Answers = {}
    await sound.join()
    for name, pattern in PATTERNS.items():
        one = await member_of(side, "one", "patterns")
        answer = await one.beat(
            **one.whole() | {"subscribed_topic_regex": pattern, "subscribed_topic_names": None}
        )
        found[name] = (
            said(answer).partition(" is not")[0].partition("expression:")[0].partition(", epoch")[0][:300]
        )
        if answer is not None and not answer.error_code:
            await one.beat(member_epoch=-1)
    found["the sound one"] = said(await sound.beat()).partition(",")[0]
    return found


async def wrong_positions(side: Side) -> Answers:
    """Commits and heartbeats of old generations and for what is not there."""
    one = await talk(side, "wrong")
    joined = await one.enter("first")
    generation, member = joined.generation_id, joined.member_id
    await one.sync(joined, {member: b"x"})
    return {
        "partitions that are not": await one.commit(5, generation, member, partitions=(0, 7, -1, 2**31 - 1)),
        "topic that is not": await one.commit(5, generation, member, topic="not-there", version=9),
        "topic of no name": await one.commit(5, generation, member, topic="", version=9),
        "invalid topic": await one.commit(5, generation, member, topic="a/b", version=9),
        "topic id that is not": await one.commit(5, generation, member, topic="x", version=10),
        "older generation": await one.commit(5, generation - 1, member),
        "newer generation": await one.commit(5, generation + 1, member),
        "generation -2": await one.commit(5, -2, member),
        "beat, generation -1": await one.beat(-1, member),
        "beat, newer": await one.beat(generation + 1, member),
        "sync, older": await one.sync(joined, generation=generation - 1),
        "sync, newer": await one.sync(joined, generation=generation + 1),
        "sync, other type": await one.sync(joined, kind="other"),
        "sync, other protocol": await one.sync(joined, protocol="other"),
        "leave, no member": await one.leave(("", None)),
        "leave, nobody": await one.leave(),
        "deleted": await one.deleted(one.group, one.group, ""),
        "still there": await one.beat(generation, member),
        "kept": await one.fetch(),
    }


QUESTIONS: dict[str, Question] = {
    "Bad.group-ids": group_ids,
    "Bad.member-ids": member_ids,
    "Bad.nonsense": nonsense,
    "Bad.patterns": patterns,
    "Bad.positions": wrong_positions,
}
