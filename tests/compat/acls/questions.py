"""What is asked of both: each API until it is allowed, and ACLs and filters of every kind, good and bad."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from agent.net.wire.generated import consumer_group_heartbeat as cgh
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import create_topics as ct
from agent.net.wire.generated import delete_acls as da
from agent.net.wire.generated import delete_topics as dt
from agent.net.wire.generated import describe_acls as de
from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, ResourceType
from tests.compat.acls.secured import ALICE, User, cleared, known
from tests.unit.agent.kafka.guard_cases import CASES, REFUSALS, Case

Answers = dict[str, str]
SEEN_S_MAX = 20
LOOK_S = 0.02
PATTERN_BEATS = 20  # of a member that has partitions
TOLD_MAX = 160  # characters of a message


def told(code: int, message: str | None) -> str:
    """An error by name with its message, where there is one."""
    return Code(code).name if not code or not message else f"{Code(code).name}: {message[:TOLD_MAX]}"


async def create(root: User, *rows: ca.AclCreation) -> list[str]:
    """What became of each; the connection's end where it was closed."""
    answer = await root.ask("CreateAcls", ca.CreateAclsRequest(list(rows)), 3)
    if answer is None:
        return ["closed"]
    return [told(row.error_code, row.error_message) for row in answer.results]


async def allow(root: User, operation: Operation, resource: ResourceType, name: str) -> None:
    """One ACL of Alice's, there when this returns."""
    row = ca.AclCreation(resource, name, 3, f"User:{ALICE}", "*", operation, 3)
    assert await create(root, row) == ["NONE"]


def refusals(case: Case, answer: Any) -> str:
    """Errors of authorization in an answer, by name."""
    if answer is None:
        return "closed"
    return ", ".join(sorted(Code(code).name for code in REFUSALS & set(case.codes(answer)))) or "none"


async def ask_until_allowed(case: Case, bootstrap: str) -> Answers:
    """The refusals before anything is allowed, and after each ACL, which Kafka's broker hears of later."""
    root = await cleared(bootstrap)
    alice = User(bootstrap, ALICE)
    answers, before = {}, ""
    for step in range(len(case.needs) + 1):
        if step:
            await allow(root, *case.needs[step - 1][0])
        found = before
        async with asyncio.timeout(SEEN_S_MAX):
            while found == before:
                await asyncio.sleep(LOOK_S if step else 0)
                found = refusals(case, await alice.ask(case.api, case.request(), case.version))
        answers[f"allowed {step}"] = before = found
    await root.ask("DeleteTopics", dt.DeleteTopicsRequest([], ["new"], 5_000), 5)
    return answers


def acl(**fields: Any) -> ca.AclCreation:
    """One that is sound, but for these fields."""
    sound: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:eve",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return ca.AclCreation(**{**sound, **fields})


BAD: dict[str, dict[str, Any]] = {
    "resource type any": {"resource_type": 1},
    "resource type 0": {"resource_type": 0},
    "resource type 99": {"resource_type": 99},
    "pattern any": {"resource_pattern_type": 1},
    "pattern match": {"resource_pattern_type": 2},
    "pattern 99": {"resource_pattern_type": 99},
    "operation any": {"operation": 1},
    "operation 0": {"operation": 0},
    "operation 99": {"operation": 99},
    "permission any": {"permission_type": 1},
    "permission 99": {"permission_type": 99},
    "no name": {"resource_name": ""},
    "another cluster": {"resource_type": 4, "resource_name": "mine"},
    "cluster by prefix": {"resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 4},
    "no type of principal": {"principal": "eve"},
    "no principal": {"principal": ""},
    "no name of principal": {"principal": "User:"},
    "no type but a colon": {"principal": ":eve"},
    "group as principal": {"principal": "Group:eve"},
    "no host": {"host": ""},
    "host by name": {"host": "somewhere"},
    "create on a group": {"resource_type": 3, "operation": 5},
    "two-phase commit": {"resource_type": 5, "operation": 15},
    "control characters": {"resource_name": "a\n\x00\x1b[31m"},
    "right to left": {"principal": "User:\u202eeve"},
    "every resource's cluster action": {"operation": 9, "resource_name": "*"},
}


async def bad_acls(bootstrap: str) -> Answers:
    """Each alone, and with a sound one beside it."""
    root = await cleared(bootstrap)
    answers = {name: " | ".join(await create(root, acl(**fields))) for name, fields in BAD.items()}
    mixed = await create(root, acl(), acl(resource_name=""), acl(), acl(operation=4))
    answers["sound ones beside"] = " | ".join(mixed)
    return answers


KEPT = (
    acl(),
    acl(resource_name="*"),
    acl(resource_pattern_type=4, resource_name="te"),
    acl(resource_pattern_type=4, resource_name="t"),
    acl(resource_name="test", principal="User:bob", host="10.0.0.1", operation=4, permission_type=2),
    acl(resource_type=3, resource_name="test"),
    acl(resource_type=4, resource_name="kafka-cluster", operation=2),
)
FILTERS: dict[str, tuple[int, str | None, int, str | None, str | None, int, int]] = {
    "everything": (1, None, 1, None, None, 1, 1),
    "nothing": (2, "nowhere", 1, None, None, 1, 1),
    "a topic": (2, "test", 3, None, None, 1, 1),
    "a topic in any way": (2, "test", 1, None, None, 1, 1),
    "what applies to a topic": (2, "test", 2, None, None, 1, 1),
    "what applies to a shorter one": (2, "t", 2, None, None, 1, 1),
    "what applies to anything of that name": (1, "test", 2, None, None, 1, 1),
    "what applies to the wildcard": (2, "*", 2, None, None, 1, 1),
    "matching without a name": (2, None, 2, None, None, 1, 1),
    "prefixes": (1, None, 4, None, None, 1, 1),
    "a prefix": (2, "te", 4, None, None, 1, 1),
    "somebody's": (1, None, 1, "User:bob", None, 1, 1),
    "a wildcard's": (1, None, 1, "User:*", None, 1, 1),
    "from somewhere": (1, None, 1, None, "10.0.0.1", 1, 1),
    "all operations": (1, None, 1, None, None, 2, 1),
    "denials": (1, None, 1, None, None, 1, 2),
    "no name": (2, "", 1, None, None, 1, 1),
    "no host": (1, None, 1, None, "", 1, 1),
    "type 99": (99, None, 1, None, None, 1, 1),
    "pattern 99": (1, None, 99, None, None, 1, 1),
    "operation 99": (1, None, 1, None, None, 99, 1),
    "type 0": (0, None, 1, None, None, 1, 1),
    "permission 0": (1, None, 1, None, None, 1, 0),
}


async def described(bootstrap: str) -> Answers:
    """What each filter finds, by DescribeAcls."""
    root = await cleared(bootstrap)
    await create(root, *KEPT)
    await known(root, len(KEPT))
    answers = {}
    for name, each in FILTERS.items():
        answer = await root.ask("DescribeAcls", de.DescribeAclsRequest(*each), 3)
        answers[name] = "closed" if answer is None else _resources(answer)
    return answers


def _resources(answer: de.DescribeAclsResponse) -> str:
    rows = sorted(
        f"{row.resource_type}/{row.pattern_type}/{row.resource_name}: {each.principal} {each.host} "
        f"{each.operation} {each.permission_type}"
        for row in answer.resources
        for each in row.acls
    )
    return "; ".join([told(answer.error_code, answer.error_message), *rows])


async def deleted(bootstrap: str) -> Answers:
    """What each filter deletes, from the same ACLs each time."""
    answers = {}
    for name, each in FILTERS.items():
        root = await cleared(bootstrap)
        await create(root, *KEPT)
        answer = await root.ask("DeleteAcls", da.DeleteAclsRequest([da.DeleteAclsFilter(*each)]), 3)
        answers[name] = "closed" if answer is None else _matched(answer.filter_results)
    root = await cleared(bootstrap)
    await create(root, *KEPT)
    both = [da.DeleteAclsFilter(*FILTERS[name]) for name in ("a topic", "everything", "type 99")]
    answer = await root.ask("DeleteAcls", da.DeleteAclsRequest(both), 3)
    answers["three at once"] = " || ".join(_matched([each]) for each in answer.filter_results)
    return answers


def _matched(results: list[da.DeleteAclsFilterResult]) -> str:
    rows = sorted(
        f"{each.resource_type}/{each.pattern_type}/{each.resource_name}: {each.principal} {each.host} "
        f"{each.operation} {each.permission_type} {told(each.error_code, each.error_message)}"
        for result in results
        for each in result.matching_acls
    )
    return "; ".join([*(told(each.error_code, each.error_message) for each in results), *rows])


async def too_many(bootstrap: str) -> Answers:
    """Ten thousand are taken, one more is not."""
    root = await cleared(bootstrap)
    rows = [acl(resource_name=f"t{number}") for number in range(10_001)]
    refused = set(await create(root, *rows))
    taken = set(await create(root, *rows[1:]))
    again = set(await create(root, *rows[1:]))
    await create(root, rows[0])
    everything = da.DeleteAclsRequest([da.DeleteAclsFilter(*FILTERS["everything"])])
    kept = await root.ask("DeleteAcls", everything, 3)
    one = da.DeleteAclsRequest([da.DeleteAclsFilter(2, "t1", 3, None, None, 1, 1)])
    await root.ask("DeleteAcls", one, 3)
    gone = await root.ask("DeleteAcls", everything, 3)
    return {
        "10,001": ", ".join(sorted(refused)),
        "10,000": ", ".join(sorted(taken)),
        "again": ", ".join(sorted(again)),
        "delete 10,001": told(kept.filter_results[0].error_code, kept.filter_results[0].error_message),
        "delete 10,000": f"{len(gone.filter_results[0].matching_acls)}",
    }


async def patterns(bootstrap: str) -> Answers:
    """What a member of KIP-848 is given by a pattern that matches a topic which it may not describe."""
    root, alice = await cleared(bootstrap), User(bootstrap, ALICE)
    group = f"patterns-{uuid.uuid4()}"
    made = [ct.CreatableTopic(name, 2, 1) for name in ("pattern.seen", "pattern.hidden")]
    created = await root.ask("CreateTopics", ct.CreateTopicsRequest(made, 10_000), 7)
    names = {row.topic_id: row.name for row in created.topics}
    await allow(root, Operation.READ, ResourceType.GROUP, group)
    await allow(root, Operation.DESCRIBE, ResourceType.TOPIC, "pattern.seen")
    await known(root, 2)
    answers, epoch, owned = {}, 0, []
    by_name = cgh.ConsumerGroupHeartbeatRequest(
        group, "m", 0, None, None, 60_000, ["pattern.seen", "pattern.hidden"], None, None, []
    )
    refused = await alice.ask("ConsumerGroupHeartbeat", by_name, 1)
    answers["by name"] = told(refused.error_code, refused.error_message)
    beats = 0
    async with asyncio.timeout(SEEN_S_MAX):
        while beats < PATTERN_BEATS:  # Kafka evaluates a pattern after its first answer
            pattern = "pattern\\..*" if epoch == 0 else None
            heartbeat = cgh.ConsumerGroupHeartbeatRequest(
                group, "m", epoch, None, None, 60_000, None, pattern, None, owned
            )
            answer = await alice.ask("ConsumerGroupHeartbeat", heartbeat, 1)
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            if answer.assignment is not None:
                owned = answer.assignment.topic_partitions
            beats += bool(owned)
            await asyncio.sleep(LOOK_S)
    answers["by pattern"] = ", ".join(
        sorted(f"{names[row.topic_id]} {sorted(row.partitions)}" for row in owned)
    )
    await root.ask("DeleteTopics", dt.DeleteTopicsRequest([], [each.name for each in made], 5_000), 5)
    return answers


def _of(case: Case) -> Callable[[str], Awaitable[Answers]]:
    return lambda bootstrap: ask_until_allowed(case, bootstrap)


QUESTIONS: dict[str, Callable[[str], Awaitable[Answers]]] = {
    "acls that are none": bad_acls,
    "filters, described": described,
    "filters, deleted": deleted,
    "too many": too_many,
    "patterns": patterns,
    **{f"{number} {case.api}": _of(case) for number, case in enumerate(CASES)},
}
