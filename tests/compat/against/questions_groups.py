"""Questions about classic consumer groups: membership, what is refused, positions, administration."""

from __future__ import annotations

import asyncio

from agent.net.wire.generated import find_coordinator as fc
from agent.net.wire.generated import join_group as jg
from agent.net.wire.generated import list_groups as ls
from tests.compat.against.side import Answers, Question, Side, code
from tests.compat.against.talk import Talk, talk
from tests.equipment.group_members import assignment


async def refusals(side: Side) -> Answers:
    """Requests of nobody, to nothing, with nonsense."""
    one = await talk(side, "refused")
    metadata = {"range": b"x"}
    found = {
        "join, empty group": one.joined(await one.join(group="")),
        "join, short session": one.joined(await one.join(session_ms=5_999)),
        "join, long session": one.joined(await one.join(session_ms=1_800_001)),
        "join, unknown member": one.joined(await one.join("who")),
        "join, unknown member and static": one.joined(await one.join("who", instance="i")),
        "join, no protocols": one.joined(await one.join(protocols={})),
        "join, no protocol type": one.joined(await one.join(kind="", protocols=metadata)),
        "join, unknown member, no protocols": one.joined(
            await one.join("who", protocols={}, group=f"{one.group}-other")
        ),
    }
    nobody = jg.JoinGroupResponse(generation_id=1, member_id="who")
    for version in (0, 4, 5):
        found[f"sync {version}"] = await one.sync(nobody, version=version)
        found[f"sync {version}, empty group"] = await one.sync(nobody, version=version, group="")
    found["sync, no type"] = await one.sync(nobody, kind=None)
    found["sync, no name"] = await one.sync(nobody, protocol=None)
    for version in (0, 4):
        found[f"heartbeat {version}"] = await one.beat(1, "who", version=version)
        found[f"heartbeat {version}, empty group"] = await one.beat(1, "who", group="", version=version)
    for version in (0, 2, 3, 5):
        found[f"leave {version}"] = await one.leave(("who", None), version=version)
        found[f"leave {version}, empty group"] = await one.leave(("who", None), version=version, group="")
    found["leave, nobody"] = await one.leave()
    found["leave, two"] = await one.leave(("a", "i"), ("", "j"))
    return found


async def life(side: Side) -> Answers:
    """Two members and a third that is late; what each is told at every step."""
    one = await talk(side, "life")
    topic = one.topic
    found: Answers = {"described, never was": await one.describe()}
    first = await one.join(called="first")
    found["id required"] = one.joined(first)
    await asyncio.sleep(0.5)  # Kafka's empty group is seen a moment later
    found["described, pending"] = await one.describe()
    found["pending beats"] = await one.beat(-1, first.member_id)
    leads = await one.join(first.member_id, called="first")
    found["first joins"] = one.joined(leads)
    found["described, completing"] = await one.describe()
    found["commit, completing"] = await one.commit(1, leads.generation_id, leads.member_id)
    found["first, another type"] = await one.sync(leads, kind="connect")
    found["first, another protocol"] = await one.sync(leads, protocol="roundrobin")
    found["first, older"] = await one.sync(leads, generation=0)
    found["first asks again"] = one.joined(await one.join(leads.member_id))
    whole = {leads.member_id: assignment([("t", 0), ("t", 1)])}
    found["first syncs"] = await one.sync(leads, whole)
    found["first syncs again"] = await one.sync(leads)
    found["beat"] = await one.beat(1, leads.member_id)
    found["beat, newer"] = await one.beat(2, leads.member_id)
    found["beat, older"] = await one.beat(0, leads.member_id)
    found["beat, somebody"] = await one.beat(1, "who")
    found["beat, as static"] = await one.beat(1, leads.member_id, "i")
    found["described, stable"] = await one.describe()
    found["other type"] = one.joined(await one.join(kind="connect"))
    found["other protocol"] = one.joined(await one.join(protocols={"other": b""}))
    found["commit"] = await one.commit(7, 1, leads.member_id)
    found["commit, older"] = await one.commit(6, 0, leads.member_id)
    found["commit, somebody"] = await one.commit(6, 1, "who")
    found["commit, from outside"] = await one.commit(6)
    found["commit, as static"] = await one.commit(6, 1, leads.member_id, "i")
    found["commit, no generation"] = await one.commit(6, -1, leads.member_id)
    found["fetch"] = await one.fetch()
    found["delete"] = await one.deleted(one.group)
    found["delete positions"] = await one.offsets_deleted(topic, 0)
    other = await side.topic("elsewhere")
    found["delete others' positions"] = await one.offsets_deleted(other, 0, 3)
    return found | await _second(one, leads)


async def _second(one: Talk, leads: jg.JoinGroupResponse) -> Answers:
    """A second member comes while the group is stable."""
    found: Answers = {}
    second = asyncio.create_task(one.enter("second", version=5))
    async with asyncio.timeout(10):
        beat = "NONE"
        while beat == "NONE":
            beat = await one.beat(1, leads.member_id)
    found["beat, preparing"] = beat
    found["sync, preparing"] = await one.sync(leads)
    found["commit, preparing"] = await one.commit(8, 1, leads.member_id)
    found["described, preparing"] = await one.describe()
    again = await one.join(leads.member_id)
    late = await second
    found["first again"], found["second"] = one.joined(again), one.joined(late)
    waits = asyncio.create_task(one.sync(late, version=3))
    found["second beats"] = await one.beat(2, late.member_id)
    parts = {again.member_id: assignment([("t", 0)]), late.member_id: assignment([("t", 1)])}
    found["first syncs, two"] = await one.sync(again, parts)
    found["second syncs, two"] = await waits
    found["second joins again"] = one.joined(await one.join(late.member_id, version=5))
    found["second leaves"] = await one.leave((late.member_id, None), version=2)
    found["second leaves twice"] = await one.leave((late.member_id, None))
    found["beat, alone"] = await one.beat(2, again.member_id)
    last = await one.join(again.member_id)
    found["alone"] = one.joined(last)
    found["first leaves"] = await one.leave((last.member_id, None), ("who", None))
    found["described, empty"] = await one.describe()
    found["commit, empty"] = await one.commit(9)
    found["commit, empty, old member"] = await one.commit(9, 4, last.member_id)
    found["beat, empty"] = await one.beat(4, last.member_id)
    found["join, empty, old member"] = one.joined(await one.join(last.member_id))
    found["deleted"] = await one.deleted(one.group)
    found["fetch, deleted"] = await one.fetch()
    found["described, deleted"] = await one.describe()
    return found


async def static(side: Side) -> Answers:
    """Static members: they come back, are fenced, are taken out by their instance id."""
    one = await talk(side, "static")
    first = await one.join(called="first", instance="i")
    found = {"joins": one.joined(first)}
    found["syncs"] = await one.sync(first, {first.member_id: b"all"}, instance="i")
    back = await one.join(called="back", instance="i")
    found["comes back"] = one.joined(back)
    found["old beats"] = await one.beat(1, first.member_id, "i")
    found["old beats as nobody"] = await one.beat(1, first.member_id)
    found["old commits"] = await one.commit(1, 1, first.member_id, "i")
    found["old joins"] = one.joined(await one.join(first.member_id, instance="i"))
    found["old syncs"] = await one.sync(first, instance="i")
    found["old leaves"] = await one.leave((first.member_id, "i"))
    found["new beats"] = await one.beat(1, back.member_id, "i")
    found["new syncs"] = await one.sync(back, instance="i")
    older = await one.join(called="older", instance="i", version=8)
    found["comes back, version 8"] = one.joined(older)
    found["described"] = await one.describe()
    other = asyncio.create_task(one.join(called="other", instance="j"))
    await asyncio.sleep(0.3)
    again = asyncio.create_task(one.join(called="again", instance="j"))
    await asyncio.sleep(0.3)
    led = await one.join(older.member_id, instance="i")
    found["other, overtaken"] = one.joined(await other)
    found["other, again"], found["leads"] = one.joined(await again), one.joined(led)
    changed = asyncio.create_task(
        one.join(called="changed", instance="j", protocols={"range": b"", "extra": b""})
    )
    await asyncio.sleep(0.3)
    found["completing, comes back"] = await one.beat(led.generation_id, led.member_id, "i")
    led = await one.join(led.member_id, instance="i")
    found["with another protocol"] = one.joined(await changed)
    found["taken out"] = await one.leave(("", "j"), ("", "nobody"), ("who", "i"))
    found["beat after"] = await one.beat(led.generation_id, led.member_id, "i")
    found["the last"] = await one.leave(("", "i"))
    found["empty"] = await one.describe()
    return found


async def choices(side: Side) -> Answers:
    """Which protocol is chosen, and who may join with what."""
    one = await talk(side, "choices")
    first = await one.enter("first", protocols={"a": b"1", "b": b"1", "c": b"1"})
    await one.sync(first, {}, protocol="a")
    second = asyncio.create_task(one.enter("second", protocols={"c": b"2", "b": b"2"}))
    await asyncio.sleep(0.5)
    third = asyncio.create_task(one.enter("third", protocols={"d": b"3", "c": b"3", "b": b"3"}))
    await asyncio.sleep(0.5)
    again = await one.join(first.member_id, protocols={"a": b"1", "b": b"1", "c": b"1"})
    found = {"first": one.joined(again)}
    found["second"], found["third"] = one.joined(await second), one.joined(await third)
    found["none in common"] = one.joined(await one.join(protocols={"a": b""}))
    found["without assignments"] = await one.sync(again, {"who": b"x"}, protocol="c")
    return found


async def positions(side: Side) -> Answers:
    """Committing and fetching from outside, in every version."""
    one = await talk(side, "positions")
    topic = one.topic
    found: Answers = {}
    for version in range(2, 11):
        found[f"commit {version}"] = await one.commit(version, version=version)
        found[f"fetch {version}"] = await one.fetch(version=version)
        found[f"unknown group {version}"] = await one.fetch(version=version, group="not-there")
        found[f"commit {version}, unknown topic"] = await one.commit(1, version=version, topic="not-there")
        found[f"fetch {version}, unknown topic"] = await one.fetch(version=version, topic="not-there")
        found[f"commit {version}, generation"] = await one.commit(
            1, 3, "who", version=version, group="nobody-here"
        )
    found["fetch 1"] = await one.fetch(version=1)
    found["partitions"] = await one.commit(1, partitions=(0, 1, 2, -1))
    found["metadata"] = await one.commit(2, metadata="m" * 4096)
    found["too much metadata"] = await one.commit(3, metadata="m" * 4097)
    found["wide metadata"] = await one.commit(3, metadata="\u20ac" * 4096)
    found["no metadata"] = await one.commit(4, metadata=None)
    for offset in (-1, -2, 1 << 62):
        found[f"offset {offset}"] = await one.commit(offset)
        found[f"fetch offset {offset}"] = await one.fetch()
    found["all"] = await one.fetch(partitions=None)
    found["all, unknown group"] = await one.fetch(partitions=None, group="not-there")
    found["partitions that are not"] = await one.fetch(partitions=(0, 1, 7))
    found["empty group id, commit"] = await one.commit(5, group="")
    found["empty group id, fetch"] = await one.fetch(group="")
    found["by a member"] = await one.commit(5, -1, "who")
    found["by a static member"] = await one.commit(5, -1, "who", "i")
    found["generation"] = await one.commit(5, 0, "")
    found["offset delete"] = await one.offsets_deleted(topic, 0, 9)
    found["offset delete, gone"] = await one.fetch()
    found["offset delete, unknown topic"] = await one.offsets_deleted("not-there", 0)
    found["offset delete, unknown group"] = await one.offsets_deleted(topic, 0, group="not-there")
    found["offset delete, both"] = await one.offsets_deleted("not-there", 0, group="not-there")
    found["described"] = await one.describe()
    return found


async def administration(side: Side) -> Answers:
    """Listing, describing and deleting what is and what is not."""
    one = await talk(side, "admin")
    await one.commit(1)
    two = await talk(side, "admin-two", topic=False)
    two.topic = one.topic
    member = await two.enter("member", kind="other", protocols={"p": b"m"})
    found: Answers = {}
    for version in range(7):
        found[f"describe unknown {version}"] = await one.describe("not-there", version)
        found[f"describe empty {version}"] = await one.describe(version=version)
    found["describe, empty name"] = await one.describe("", 6)
    found["another type, completing"] = await two.describe()
    found["another type"] = await two.sync(member, {member.member_id: b"x"}, kind="other", protocol="p")
    found["another type, described"] = await two.describe()
    found["another type, offset delete"] = await two.offsets_deleted(one.topic, 0)
    filters: dict[str, tuple[list[str], list[str]]] = {
        "all": ([], []),
        "stable": (["Stable"], []),
        "lower case": (["stable"], []),
        "empty or dead": (["Empty", "Dead"], []),
        "classic": ([], ["classic"]),
        "Classic": ([], ["Classic"]),
        "consumer": ([], ["consumer"]),
        "nonsense": (["nonsense"], []),
        "type nonsense": ([], ["nonsense"]),
    }
    for name, (states, kinds) in filters.items():
        listed = [await _listed(each, states, kinds) for each in (one, two)]
        found[f"list, {name}"] = f"{listed}"
    for version in (0, 3, 4):
        found[f"list {version}"] = await _listed(two, [], [], version)
    found["delete"] = await one.deleted(one.group)
    found["delete twice"] = await one.deleted(one.group)
    found["delete, empty name"] = await one.deleted("")
    found["delete, members"] = await two.deleted(two.group)
    return found


async def _listed(one: Talk, states: list[str], kinds: list[str], version: int = 5) -> str:
    answer = await one.ask("ListGroups", ls.ListGroupsRequest(states, kinds), version)
    if answer is None:
        return "no answer"
    mine = [g for g in answer.groups if g.group_id == one.group]
    return f"{code(answer.error_code)} {[f'{g.protocol_type} {g.group_state} {g.group_type}' for g in mine]}"


async def finding(side: Side) -> Answers:
    """FindCoordinator of groups in every version; whether there is a node and an address."""
    found: Answers = {}
    for version in range(7):
        for name, key in (("a group", "some-group"), ("no name", "")):
            request = fc.FindCoordinatorRequest(key=key, key_type=0, coordinator_keys=[key, "other"])
            answer = await side.ask("FindCoordinator", request, version)
            told = [answer] if version < 4 else answer.coordinators
            found[f"{version}, {name}"] = "; ".join(
                f"{code(each.error_code)} {each.node_id >= 0} {each.port > 0}" for each in told
            )
    return found


QUESTIONS: dict[str, Question] = {
    "Groups.refusals": refusals,
    "Groups.life": life,
    "Groups.static": static,
    "Groups.choices": choices,
    "Groups.positions": positions,
    "Groups.administration": administration,
    "Groups.finding": finding,
}
