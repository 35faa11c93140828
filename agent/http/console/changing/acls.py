"""ACLs: one added, or taken away, by CreateAcls and DeleteAcls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agent.http.asking import require
from agent.http.console.acls import HERE
from agent.http.console.changing.asked import CREATE_ACLS, DELETE_ACLS, asker
from agent.http.console.changing.plans import BadFields, Errors, Field, Form, Given, Plan, controls
from agent.http.console.offers import fields_of
from agent.http.needs import DESCRIBE_CLUSTER
from agent.http.parts import Parts
from agent.net.wire.generated import create_acls as ca
from agent.net.wire.generated import delete_acls as da
from coordination.state.acl_types import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    spoken,
)

_TYPES: Final = {spoken(each.name): int(each) for each in ResourceType if each is not ResourceType.ANY}
_OPERATIONS: Final = {spoken(each.name): int(each) for each in Operation if each is not Operation.ANY}
_PATTERNS: Final = {spoken(each.name): int(each) for each in (PatternType.LITERAL, PatternType.PREFIXED)}
_PERMISSIONS: Final = {spoken(each.name): int(each) for each in (Permission.ALLOW, Permission.DENY)}
_FIELDS: Final = (
    Field("principal", "Principal", "User:NAME, or User:* for all.", preset="User:"),
    Field("host", "Host", "An address, a network (10.0.0.0/8), or * for all.", preset=WILDCARD),
    Field("permission", "Permission", choices=tuple(_PERMISSIONS)),
    Field("operation", "Operation", choices=tuple(_OPERATIONS)),
    Field("type", "On", choices=tuple(_TYPES)),
    Field("name", "Name", f"Of the resource; * for all; of the cluster {CLUSTER_NAME}."),
    Field("pattern", "Pattern", "Prefixed: all whose names begin with it.", choices=tuple(_PATTERNS)),
)


class AclChange:
    """Both ways: `adds`, or takes away."""

    here = HERE

    def __init__(self, parts: Parts, *, adds: bool) -> None:
        self._parts, self._adds = parts, adds
        self.name = "acl-create" if adds else "acl-delete"
        self._title = "Add an ACL" if adds else "Take an ACL away"

    def form(self, given: Given, errors: Errors) -> Form:
        """As it is given."""
        return Form(self._title, HERE, controls(_FIELDS, given, errors))

    async def plan(self, given: Given) -> Plan:
        """One ACL, exactly."""
        parts = self._parts
        require(parts, DESCRIBE_CLUSTER)
        acl = _acl(given)
        known = acl in parts.replica.state.acls.acls
        if known is self._adds:
            raise BadFields({"": "there is this ACL already" if known else "there is no such ACL"})
        words = "{permission} {operation} on {type} {name} ({pattern}) for {principal} from {host}"
        told = words.format(**fields_of(acl))
        now, then = (None, told) if self._adds else (told, "gone")
        return Plan(
            self._title,
            given,
            [("ACL", now, then)],
            lambda: acl in parts.replica.state.acls.acls,
            known,
            asker(parts, self.name, CREATE_ACLS, lambda: _added(acl))
            if self._adds
            else asker(parts, self.name, DELETE_ACLS, lambda: _gone(acl)),
            ("ACLs", HERE),
        )


def _acl(given: Given) -> Acl:
    """Raises BadFields. What makes one that is none, the rules say (coordination/state/acls.py)."""
    errors: dict[str, str] = {}

    def one(field: str, known: Mapping[str, int]) -> int:
        value = given.get(field, "")
        if value not in known:
            errors[field] = f"{value[:100]!r} is none of {', '.join(known)}"
        return known.get(value, 0)

    acl = Acl(
        one("type", _TYPES),
        one("pattern", _PATTERNS),
        given.get("name", "").strip(),
        given.get("principal", "").strip(),
        given.get("host", "").strip(),
        one("operation", _OPERATIONS),
        one("permission", _PERMISSIONS),
    )
    if not acl.name:
        errors["name"] = "it is missing"
    if not acl.principal.partition(":")[2]:
        errors["principal"] = f"{acl.principal[:100]!r} is not User:NAME"
    if errors:
        raise BadFields(errors)
    return acl


def _added(acl: Acl) -> ca.CreateAclsRequest:
    row = ca.AclCreation(
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
    return ca.CreateAclsRequest([row])


def _gone(acl: Acl) -> da.DeleteAclsRequest:
    row = da.DeleteAclsFilter(
        acl.resource_type,
        acl.name,
        acl.pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )
    return da.DeleteAclsRequest([row])
