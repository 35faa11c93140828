"""The decision as Kafka's StandardAuthorizer makes it: deny wins, what implies what, patterns, hosts."""

from __future__ import annotations

import pytest

from agent.kafka.authority.decide import canonical, decide, decide_any, is_from
from coordination.state.acl_types import Acl, AclTable, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    name: str = "orders",
    pattern: PatternType = LITERAL,
    who: str = "User:alice",
    host: str = "*",
    resource: ResourceType = TOPIC,
) -> Acl:
    return Acl(resource, pattern, name, who, host, operation, permission)


def table(*acls: Acl) -> AclTable:
    made = AclTable()
    for each in acls:
        made.add(each)
    return made


def may(
    *acls: Acl,
    operation: Operation = Operation.READ,
    name: str = "orders",
    who: str = "User:alice",
    host: str = "10.1.2.3",
    resource: ResourceType = TOPIC,
    unlisted: bool = False,
) -> bool:
    return decide(table(*acls), who, host, operation, resource, name, unlisted=unlisted)


def test_what_no_acl_allows_is_refused() -> None:
    assert may(acl())
    assert not may()
    assert not may(acl(), operation=Operation.WRITE)
    assert not may(acl(), name="orders2")
    assert not may(acl(), who="User:bob")
    assert not may(acl(), resource=GROUP)


@pytest.mark.parametrize(
    "denied", [acl(permission=DENY), acl(Operation.ALL, DENY), acl(permission=DENY, name="*")]
)
def test_deny_wins_however_much_is_allowed(denied: Acl) -> None:
    allowed = (acl(), acl(name="*"), acl(Operation.ALL, name="ord", pattern=PREFIXED))
    assert may(*allowed)
    assert not may(denied, *allowed)
    assert not may(*allowed, denied)
    assert may(*allowed, denied, operation=Operation.WRITE) == (denied.operation != Operation.ALL)


@pytest.mark.parametrize("given", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_reading_writing_deleting_and_altering_imply_describe(given: Operation) -> None:
    assert may(acl(given), operation=Operation.DESCRIBE)
    assert not may(acl(given), operation=Operation.DESCRIBE_CONFIGS)
    assert may(acl(given, DENY), acl(Operation.DESCRIBE), operation=Operation.DESCRIBE), (
        "a denial implies nothing"
    )


def test_altering_configs_implies_describing_them() -> None:
    assert may(acl(Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS)
    assert not may(acl(Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE)
    assert not may(acl(Operation.CREATE), operation=Operation.DESCRIBE)


def test_patterns() -> None:
    assert may(acl(name="*"))
    assert may(acl(name="ord", pattern=PREFIXED))
    assert may(acl(name="orders", pattern=PREFIXED))
    assert not may(acl(name="ord"))
    assert not may(acl(name="orders.", pattern=PREFIXED))
    assert not may(acl(name="*", pattern=PREFIXED)), "the beginning of a name, not any name"
    assert may(acl(name="*", pattern=PREFIXED), name="*x")


def test_everybody_and_nobody_else() -> None:
    assert may(acl(who="User:*"), who="User:bob")
    assert not may(acl(who="Group:*"), who="User:bob")
    assert not may(acl(who="user:alice"))
    assert not may(acl(who="User:al*"))
    assert not may(acl(who="User:\u0430lice")), "a Cyrillic letter that looks the same"
    assert not may(acl(name="orders\u200b"))


def test_whom_no_acl_is_about() -> None:
    assert may(unlisted=True)
    assert not may(acl(who="User:bob"), unlisted=True), "there is one about the topic"
    assert may(acl(name="other"), unlisted=True)


@pytest.mark.parametrize(
    ("given", "host", "fits"),
    [
        ("*", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.4", "10.1.2.3", False),
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.2.0.0/16", "10.1.2.3", False),
        ("0.0.0.0/0", "10.1.2.3", True),
        ("0.0.0.0/0", "2001:db8::1", False),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("2001:db8::/32", "2001:db8::1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("10.1.2.3/99", "10.1.2.3", False),
        ("somewhere", "10.1.2.3", False),
        ("somewhere", "somewhere", True),
        ("", "10.1.2.3", False),
    ],
)
def test_hosts(given: str, host: str, fits: bool) -> None:
    assert is_from(given, canonical(host)) is fits


@pytest.mark.parametrize(
    ("acls", "any_topic"),
    [
        ([], False),
        ([acl(Operation.WRITE)], True),
        ([acl(Operation.ALL, name="a", pattern=PREFIXED)], True),
        ([acl(Operation.READ)], False),
        ([acl(Operation.WRITE), acl(Operation.WRITE, DENY)], False),
        ([acl(Operation.WRITE), acl(Operation.WRITE, DENY, name="ord", pattern=PREFIXED)], False),
        ([acl(Operation.WRITE), acl(Operation.ALL, DENY, name="*")], False),
        ([acl(Operation.WRITE, name="*"), acl(Operation.WRITE, DENY, name="ord", pattern=PREFIXED)], True),
        ([acl(Operation.WRITE, name="o", pattern=PREFIXED), acl(Operation.WRITE, DENY)], True),
        ([acl(Operation.WRITE, host="10.9.9.9")], False),
        ([acl(Operation.WRITE, who="User:*")], True),
    ],
)
def test_any_topic(acls: list[Acl], any_topic: bool) -> None:
    found = decide_any(table(*acls), "User:alice", "10.1.2.3", Operation.WRITE, TOPIC, unlisted=False)
    assert found is any_topic
