"""Questions about TxnOffsetCommit by members of groups: of this generation, of another, of nobody."""

from __future__ import annotations

import asyncio

from agent.net.wire.generated import txn_offset_commit as to
from tests.compat.against.questions_consumer import member_of
from tests.compat.against.questions_transactions import Ask, client, coordinated, settled, taken
from tests.compat.against.side import Answers, Question, Side
from tests.compat.against.talk import talk
from tests.equipment.group_members import coordinator_of
from tests.equipment.transactional_client import V1, V2, TransactionalClient

VERSIONS = {"v1": V1, "v2": V2}
Claim = tuple[int, str, str | None]  # generation or epoch, member id, instance id
NEITHER: Claim = (-1, "", None)


def _commit(x: TransactionalClient, group: str, topic: str, claim: Claim) -> Ask:
    """TxnOffsetCommit by whoever claims to be this."""
    rows = [to.TxnOffsetCommitRequestTopic(topic, [to.TxnOffsetCommitRequestPartition(0, 5)])]
    request = to.TxnOffsetCommitRequest(x.name, group, *x.pair, *claim, rows)

    async def ask() -> int:
        answer = await x.call("TxnOffsetCommit", request)
        return int(answer.topics[0].partitions[0].error_code)

    return ask


async def _ask(found: Answers, side: Side, group: str, topic: str, claims: dict[str, Claim]) -> None:
    """Let a producer of each protocol commit positions in a transaction, under every claim."""
    where = Side(await coordinator_of([side.bootstrap], group), side.prefix)
    for name, versions in VERSIONS.items():
        async with client(where, f"{group}-{name}", **versions) as x:
            await settled(x.init)
            if versions is V1:
                await settled(lambda x=x: x.add_group(group))
            steps = {f"{name}: {what}": _commit(x, group, topic, claim) for what, claim in claims.items()}
            await taken(found, steps)
            await settled(lambda x=x: x.end(commit=True))


async def of_members(side: Side) -> Answers:
    """A classic group with its one member, without it, and one that never was."""
    await coordinated(side)
    found: Answers = {}
    one = await talk(side, "fenced")
    first = await one.enter("A")
    await one.sync(first, {first.member_id: b"all"})
    generation, member_id = first.generation_id, first.member_id
    of_it: dict[str, Claim] = {
        "generation and member": (generation, member_id, None),
        "an old generation": (generation - 1, member_id, None),
        "a generation to come": (generation + 1, member_id, None),
        "an unknown member": (generation, "somebody", None),
        "no member": (generation, "", None),
        "no generation": (-1, member_id, None),
        "neither": NEITHER,
        "an instance that nobody has": (generation, member_id, "other"),
        "an instance alone": (-1, "", "other"),
    }
    await _ask(found, side, one.group, one.topic, of_it)
    await one.leave((member_id, None))
    left: dict[str, Claim] = {
        "left: generation and member": (generation, member_id, None),
        "left: an old generation": (generation - 1, member_id, None),
        "left: the group's generation alone": (generation + 1, "", None),
        "left: neither": NEITHER,
    }
    await _ask(found, side, one.group, one.topic, left)
    never: dict[str, Claim] = {
        "no group: a generation": (3, "somebody", None),
        "no group: a member": (-1, "somebody", None),
        "no group: neither": NEITHER,
    }
    await _ask(found, side, f"{side.prefix}nobody", one.topic, never)
    return found


async def in_rebalances(side: Side) -> Answers:
    """A group that shares anew, before and after its members know of the new generation."""
    await coordinated(side)
    found: Answers = {}
    one = await talk(side, "sharing")
    first = await one.enter("A")
    await one.sync(first, {first.member_id: b"all"})

    async def ask(when: str, generation: int) -> None:
        claims: dict[str, Claim] = {
            f"{when}: its generation": (generation, first.member_id, None),
            f"{when}: the one before": (generation - 1, first.member_id, None),
            f"{when}: neither": NEITHER,
        }
        await _ask(found, side, one.group, one.topic, claims)

    second = asyncio.create_task(one.enter("B"))
    told = ""
    while told != "REBALANCE_IN_PROGRESS":
        told = await one.beat(first.generation_id, first.member_id)
    await ask("preparing", first.generation_id)
    again, _ = await asyncio.gather(one.join(first.member_id, called="A"), second)
    await ask("completing", again.generation_id)
    return found


async def of_static_members(side: Side) -> Answers:
    """A static member, and the one whose place it took (KIP-345)."""
    await coordinated(side)
    found: Answers = {}
    one = await talk(side, "static")
    old = await one.enter("old", instance="i")
    await one.sync(old, {old.member_id: b"all"}, instance="i")
    new = await one.enter("new", instance="i")
    generation = new.generation_id
    claims: dict[str, Claim] = {
        "the new one": (generation, new.member_id, "i"),
        "the new one without its instance": (generation, new.member_id, None),
        "the old one": (generation, old.member_id, "i"),
        "the old one without its instance": (generation, old.member_id, None),
        "the old one of an old generation": (generation - 1, old.member_id, "i"),
        "the instance alone": (-1, "", "i"),
        "the instance and the generation": (generation, "", "i"),
    }
    await _ask(found, side, one.group, one.topic, claims)
    return found


async def of_consumers(side: Side) -> Answers:
    """A group of KIP-848: the member's epoch has the generation's place."""
    await coordinated(side)
    found: Answers = {}
    member = await member_of(side, "m", "consumers")
    await member.join()
    claims: dict[str, Claim] = {
        "epoch and member": (member.epoch, member.member_id, None),
        "an old epoch": (member.epoch - 1, member.member_id, None),
        "an epoch to come": (member.epoch + 1, member.member_id, None),
        "an unknown member": (member.epoch, "somebody", None),
        "no member": (member.epoch, "", None),
        "neither": NEITHER,
    }
    await _ask(found, side, member.group, member.topic, claims)
    return found


async def deleted_while_pending(side: Side) -> Answers:
    """DeleteGroups and OffsetDelete while a transaction holds positions of the group, then its commit."""
    await coordinated(side)
    found: Answers = {}
    for kind, versions in VERSIONS.items():
        for before in ("nothing", "a position"):
            for what in ("group", "positions"):
                name = f"{kind}, {before} committed, {what} deleted"
                one = await talk(side, f"{kind}-{before.split()[-1]}-{what}")
                if before != "nothing":
                    await one.commit(3)
                async with client(one.side, one.group.removeprefix(side.prefix), **versions) as x:
                    await settled(x.init)
                    if versions is V1:
                        await settled(lambda x=x, one=one: x.add_group(one.group))
                    await settled(lambda x=x, one=one: x.offsets(one.group, one.topic, 5))
                    if what == "group":
                        found[name] = await one.deleted(one.group)
                    else:
                        found[name] = await one.offsets_deleted(one.topic, 0)
                    found[f"{name}: then"] = await one.fetch()
                    found[f"{name}: commit"] = await settled(lambda x=x: x.end(commit=True))
                    await settled(x.init)  # answered when Kafka's markers are written
                    found[f"{name}: in the end"] = await one.fetch()
    return found


QUESTIONS: dict[str, Question] = {
    "Positions.members": of_members,
    "Positions.rebalances": in_rebalances,
    "Positions.static": of_static_members,
    "Positions.consumers": of_consumers,
    "Positions.deleted-pending": deleted_while_pending,
}
