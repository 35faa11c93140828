"""The decision: whether ACLs allow an operation, as Kafka's StandardAuthorizer answers. Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from coordination.state.acl_types import (
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclTable,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}
"""Operations that allow another one as well. To deny one denies nothing else."""
HOSTS_REMEMBERED = 4_096
SOME_NAME = "hardcode"  # the name that Kafka tries for "any resource"


def decide(
    table: AclTable,
    principal: str,
    host: str,
    operation: Operation,
    resource: ResourceType,
    name: str,
    *,
    unlisted: bool,
) -> bool:
    """Whether `principal` (with its type) at `host` may.

    `unlisted`: the answer where no ACL is about the name.
    """
    allowed, listed = False, False
    for bucket in table.buckets(resource, name):
        listed = True
        for who in (principal, WILDCARD_PRINCIPAL):
            for acl in bucket.get(who, ()):
                if not is_from(acl.host, host):
                    continue
                if acl.permission == Permission.DENY:
                    if acl.operation in (Operation.ALL, operation):
                        return False
                elif not allowed:
                    allowed = _allows(acl, operation)
    return allowed or (unlisted and not listed)


def _allows(acl: Acl, operation: Operation) -> bool:
    return acl.operation in (Operation.ALL, operation) or acl.operation in IMPLIED_BY.get(operation, ())


def decide_any(
    table: AclTable,
    principal: str,
    host: str,
    operation: Operation,
    resource: ResourceType,
    *,
    unlisted: bool,
) -> bool:
    """Whether there is a name on which `principal` may (Kafka's authorizeByResourceType)."""
    if decide(table, principal, host, operation, resource, SOME_NAME, unlisted=unlisted):
        return True
    mine = [
        acl
        for who in dict.fromkeys((principal, WILDCARD_PRINCIPAL))
        for acl in table.by_principal.get(who, ())
        if acl.resource_type == resource
        and acl.operation in (Operation.ALL, operation)
        and is_from(acl.host, host)
    ]
    denied = {(acl.pattern_type, acl.name) for acl in mine if acl.permission == Permission.DENY}
    if (PatternType.LITERAL, WILDCARD) in denied:
        return False
    return any(acl.permission == Permission.ALLOW and not _is_denied(acl, denied) for acl in mine)


def _is_denied(acl: Acl, denied: set[tuple[int, str]]) -> bool:
    """Whether what an ACL allows is denied whole."""
    if acl.pattern_type == PatternType.LITERAL:
        if acl.name == WILDCARD:
            return False
        if (PatternType.LITERAL, acl.name) in denied:
            return True
    return any((PatternType.PREFIXED, acl.name[:end]) in denied for end in range(1, len(acl.name) + 1))


def is_from(given: str, host: str) -> bool:
    """Whether an ACL's host (`*`, an address, a network) is the client's, which is in `canonical` form."""
    if given in (WILDCARD, host):
        return True
    meant, client = _meant(given), _address(host)
    if meant is None or client is None:
        return False
    return client in meant if isinstance(meant, IPv4Network | IPv6Network) else client == meant


@lru_cache(HOSTS_REMEMBERED)
def canonical(host: str) -> str:
    """A client's address as it is compared: IPv4 over IPv6 is IPv4."""
    found = _address(host)
    return host if found is None else str(found)


@lru_cache(HOSTS_REMEMBERED)
def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(host)
    except ValueError:
        return None
    return (found.ipv4_mapped or found) if isinstance(found, IPv6Address) else found


@lru_cache(HOSTS_REMEMBERED)
def _meant(given: str) -> IPv4Address | IPv6Address | IPv4Network | IPv6Network | None:
    if "/" not in given:
        return _address(given)
    try:
        return ip_network(given)
    except ValueError:
        return None
