"""ACLs as they are kept (KIP-11, KIP-290), and how those that apply to a resource are found.

Numbers are those of Kafka's protocol. Nothing here decides: agent/kafka/authority does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

WILDCARD = "*"
WILDCARD_PRINCIPAL = "User:*"
CLUSTER_NAME = "kafka-cluster"


def spoken(name: str) -> str:
    """An operation or a resource as Kafka's tools call it: DESCRIBE_CONFIGS is DescribeConfigs."""
    return "".join(part.capitalize() for part in name.split("_"))


class ResourceType(IntEnum):
    """What an ACL is about (org.apache.kafka.common.resource.ResourceType)."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of an ACL is meant; ANY and MATCH are of filters only."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done (org.apache.kafka.common.acl.AclOperation)."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Whether an ACL allows or denies."""

    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL. `principal` with its type (`User:alice`); `host`: an address, a network (CIDR), or `*`."""

    resource_type: int
    pattern_type: int
    name: str
    principal: str
    host: str
    operation: int
    permission: int


Acls = dict[Acl, None]
Bucket = dict[str, Acls]
"""ACLs of one pattern by their principal."""


@dataclass(slots=True)
class AclTable:
    """All ACLs in the order in which they came, and the same by what one asks for."""

    acls: Acls = field(default_factory=dict)
    revision: int = 0
    """Of the last change; 0: there never was one. Whoever remembers an answer looks at it first."""
    literal: dict[tuple[int, str], Bucket] = field(default_factory=dict)
    """By resource type and name."""
    prefixed: dict[tuple[int, str], Bucket] = field(default_factory=dict)
    """By resource type and the beginning of names."""
    lengths: dict[int, dict[int, int]] = field(default_factory=dict)
    """By resource type: how many prefixes there are of each length."""
    by_principal: Bucket = field(default_factory=dict)

    def add(self, acl: Acl) -> bool:
        """Keep an ACL; False when it was there."""
        if acl in self.acls:
            return False
        self.acls[acl] = None
        self.by_principal.setdefault(acl.principal, {})[acl] = None
        place = (acl.resource_type, acl.name)
        patterns = self.literal if acl.pattern_type == PatternType.LITERAL else self.prefixed
        if place not in patterns:
            patterns[place] = {}
            if patterns is self.prefixed:
                counts = self.lengths.setdefault(acl.resource_type, {})
                counts[len(acl.name)] = counts.get(len(acl.name), 0) + 1
        patterns[place].setdefault(acl.principal, {})[acl] = None
        return True

    def remove(self, acl: Acl) -> None:
        """Forget an ACL that is there."""
        del self.acls[acl]
        _take_out(self.by_principal, acl)
        place = (acl.resource_type, acl.name)
        patterns = self.literal if acl.pattern_type == PatternType.LITERAL else self.prefixed
        _take_out(patterns[place], acl)
        if not patterns[place]:
            del patterns[place]
            if patterns is self.prefixed:
                counts = self.lengths[acl.resource_type]
                counts[len(acl.name)] -= 1
                if not counts[len(acl.name)]:
                    del counts[len(acl.name)]
                if not counts:
                    del self.lengths[acl.resource_type]

    def buckets(self, resource_type: int, name: str) -> Iterator[Bucket]:
        """What applies to a resource: by its own name, by `*`, and by every prefix of its name."""
        bucket = self.literal.get((resource_type, name))
        if bucket is not None:
            yield bucket
        if name != WILDCARD:
            bucket = self.literal.get((resource_type, WILDCARD))
            if bucket is not None:
                yield bucket
        for length in self.lengths.get(resource_type, ()):
            if length <= len(name):
                bucket = self.prefixed.get((resource_type, name[:length]))
                if bucket is not None:
                    yield bucket


def _take_out(bucket: Bucket, acl: Acl) -> None:
    acls = bucket[acl.principal]
    del acls[acl]
    if not acls:
        del bucket[acl.principal]


class AclFilter(NamedTuple):
    """Which ACLs are meant; a text that is None stands for any (KIP-140, KIP-290)."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Whether the ACL is one of those."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        kind = self.pattern_type
        if kind not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.name is None:
            return True
        if kind != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern_type == PatternType.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)

    @property
    def one(self) -> Acl | None:
        """The only ACL that it can match; None where it can match several."""
        exact = (
            self.resource_type != ResourceType.ANY
            and self.pattern_type in (PatternType.LITERAL, PatternType.PREFIXED)
            and self.operation != Operation.ANY
            and self.permission != Permission.ANY
        )
        if not exact or self.name is None or self.principal is None or self.host is None:
            return None
        return Acl(
            self.resource_type,
            self.pattern_type,
            self.name,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )

    def candidates(self, table: AclTable) -> Acls:
        """ACLs among which are all that it matches: as few as can be told without a look at each."""
        one = self.one
        if one is not None:
            return {one: None} if one in table.acls else {}
        if self.principal is not None:
            return table.by_principal.get(self.principal, {})
        if self.name is not None and self.resource_type != ResourceType.ANY:
            return self._of_name(table, self.name)
        return table.acls

    def _of_name(self, table: AclTable, name: str) -> Acls:
        place = (self.resource_type, name)
        if self.pattern_type == PatternType.MATCH:
            found = list(table.buckets(self.resource_type, name))
        else:
            found = [patterns[place] for patterns in (table.literal, table.prefixed) if place in patterns]
        return {acl: None for bucket in found for acls in bucket.values() for acl in acls}
