"""ACLs are created and deleted here; a request's are all there at one point of the log (KIP-868)."""

from __future__ import annotations

from ipaddress import ip_network

from coordination.commands import AclBinding, CreateAcls, DeleteAcls
from coordination.kafka_codes import Code
from coordination.state.acl_types import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from coordination.state.data import StateData
from coordination.state.types import At, Done, Refused, Result

ACLS_MAX = 100_000
ACLS_PER_CHANGE_MAX = 10_000  # created or deleted at once, as Kafka's
FILTERS_MAX = 10_000  # of one request
LOOKS_MAX = 200_000  # ACLs that the filters of one request are held against
NAME_LENGTH_MAX = 1_024  # characters of a resource's name
PRINCIPAL_LENGTH_MAX = 512
HOST_LENGTH_MAX = 255
TOO_MANY = "Unable to perform excessively large batch operation."  # Kafka's words
TOO_MANY_DELETED = (
    f"Cannot remove more than {ACLS_PER_CHANGE_MAX} acls in a single delete operation."  # as well
)


def create_acls(state: StateData, message: CreateAcls, at: At) -> Result:
    """Add ACLs; those that are there stay. Done's value: how many are new."""
    wanted = dict.fromkeys(binding_of(each) for each in message.acls)
    refused = next((why for acl in wanted if (why := refusal(acl)) is not None), None)
    if refused is not None:
        return refused
    table = state.acls
    new = [acl for acl in wanted if acl not in table.acls]
    if len(new) > ACLS_PER_CHANGE_MAX:
        return Refused(Code.POLICY_VIOLATION, TOO_MANY)
    if len(table.acls) + len(new) > ACLS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"{ACLS_MAX} ACLs are the most: delete some first")
    for acl in new:
        table.add(acl)
    if new:
        table.revision = at.revision
    return Done(len(new))


def binding_of(message: AclBinding) -> Acl:
    """An ACL out of a command."""
    return Acl(
        message.resource_type,
        message.pattern_type,
        message.name,
        message.principal,
        message.host,
        message.operation,
        message.permission,
    )


def refusal(acl: Acl) -> Refused | None:
    """Why this is no ACL, in Kafka's order; its codes and words where it has them."""
    why = _name_problem(acl) or _kind_problem(acl) or _type_problem(acl.principal)
    why = why or _length_problem(acl) or _host_problem(acl.host)
    return Refused(Code.INVALID_REQUEST, why) if why else None


def _kind_problem(acl: Acl) -> str:
    if acl.resource_type not in _KINDS:
        return f"Invalid resourceType {_name_of(ResourceType, acl.resource_type)}"
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"Invalid patternType {_name_of(PatternType, acl.pattern_type)}"
    if acl.operation not in _OPERATIONS:
        return f"Invalid operation {_name_of(Operation, acl.operation)}"
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        return f"Invalid permissionType {_name_of(Permission, acl.permission)}"
    return ""


_KINDS = frozenset(ResourceType) - {ResourceType.ANY}
_OPERATIONS = frozenset(Operation) - {Operation.ANY}


def _name_of(kind: type[ResourceType | PatternType | Operation | Permission], number: int) -> str:
    return kind(number).name if number in kind._value2member_map_ else "UNKNOWN"


def _name_problem(acl: Acl) -> str:
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    return "" if acl.name else "Invalid empty resource name"


def _type_problem(principal: str) -> str:
    return "" if ":" in principal else NO_TYPE.format(principal[:PRINCIPAL_LENGTH_MAX])


NO_TYPE = (
    "Could not parse principal from `{}` (no colon is present separating the principal type from the "
    "principal name)"
)


def _length_problem(acl: Acl) -> str:
    for what, text, most in (
        ("Resource name", acl.name, NAME_LENGTH_MAX),
        ("Principal", acl.principal, PRINCIPAL_LENGTH_MAX),
        ("Host", acl.host, HOST_LENGTH_MAX),
    ):
        if len(text) > most:
            return f"{what} is longer than {most} characters"
    return ""


def _host_problem(host: str) -> str:
    """Of a network only: what is neither that nor an address is taken, as by Kafka, and is nobody's host."""
    if "/" not in host:
        return ""
    try:
        ip_network(host)
    except ValueError:
        return f"Host {host!r} is no network: write an address without host bits, a slash and a length"
    return ""


def delete_acls(state: StateData, message: DeleteAcls, at: At) -> Result:
    """Delete what the filters match. Done's value: for each filter the ACLs, which were there before."""
    if len(message.filters) > FILTERS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"{FILTERS_MAX} filters are the most in one request")
    table = state.acls
    matched: list[tuple[Acl, ...]] = []
    looks = 0
    for each in message.filters:
        asked = filter_of(each)
        candidates = asked.candidates(table)
        looks += len(candidates)
        if looks > LOOKS_MAX:
            why = (
                f"the filters concern more than {LOOKS_MAX} ACLs: name principals or resources, or use fewer"
            )
            return Refused(Code.POLICY_VIOLATION, why)
        matched.append(tuple(acl for acl in candidates if asked.matches(acl)))
    leaving = dict.fromkeys(acl for acls in matched for acl in acls)
    if len(leaving) > ACLS_PER_CHANGE_MAX:
        return Refused(Code.INVALID_REQUEST, TOO_MANY_DELETED)
    for acl in leaving:
        table.remove(acl)
    if leaving:
        table.revision = at.revision
    return Done(tuple(matched))


def filter_of(message: DeleteAcls.Filter) -> AclFilter:
    """A filter out of a command."""
    return AclFilter(
        message.resource_type,
        message.name if message.HasField("name") else None,
        message.pattern_type,
        message.principal if message.HasField("principal") else None,
        message.host if message.HasField("host") else None,
        message.operation,
        message.permission,
    )
