"""ACLs in the replicated state: what is taken, what filters match, what is refused, what snapshots keep."""

from __future__ import annotations

from typing import Any

import pytest

from coordination.commands import AclBinding, CreateAcls, DeleteAcls
from coordination.kafka_codes import Code
from coordination.state import Done, Refused, acls
from coordination.state.acl_types import Acl, AclFilter, AclTable
from coordination.state.levels import ACLS
from tests.unit.coordination.kit import A, Script

FIELDS: dict[str, Any] = {
    "resource_type": 2,
    "pattern_type": 3,
    "name": "orders",
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission": 3,
}
ANY: dict[str, Any] = {"resource_type": 1, "pattern_type": 1, "operation": 1, "permission": 1}


@pytest.fixture
def script() -> Script:
    script = Script()
    script.register(A)
    return script


def binding(**fields: Any) -> AclBinding:
    return AclBinding(**{**FIELDS, **fields})


def acl(**fields: Any) -> Acl:
    return Acl(**{**FIELDS, **fields})


def create(script: Script, *bindings: AclBinding) -> Any:
    return script.one(A, CreateAcls(acls=bindings))


def delete(script: Script, *filters: dict[str, Any]) -> Any:
    return script.one(A, DeleteAcls(filters=[DeleteAcls.Filter(**{**ANY, **each}) for each in filters]))


def test_acls_come_once_and_go(script: Script) -> None:
    assert create(script, binding(), binding(operation=4), binding()) == Done(2)
    changed = script.state.acls.revision
    assert changed == script.state.revision
    assert create(script, binding()) == Done(0)
    assert script.state.acls.revision == changed, "nothing changed, so nobody has to decide anew"
    script.through_snapshot()
    assert list(script.state.acls.acls) == [acl(), acl(operation=4)]
    assert script.state.acls.revision == changed
    assert delete(script, {"operation": 4}, {"name": "nothing"}) == Done(((acl(operation=4),), ()))
    assert delete(script, {}) == Done(((acl(),),))
    assert delete(script, {}) == Done(((),))
    script.through_snapshot()
    assert script.state.acls.revision > changed
    table = script.state.acls
    assert not any([table.acls, table.literal, table.prefixed, table.lengths, table.by_principal])


def test_filters_are_all_held_against_what_was_there_before(script: Script) -> None:
    create(script, binding())
    assert delete(script, {"name": "orders"}, {"principal": "User:alice"}) == Done(((acl(),), (acl(),)))


KEPT = {
    "literal": acl(),
    "wildcard": acl(name="*"),
    "prefix": acl(pattern_type=4, name="ord"),
    "other": acl(name="other", principal="User:bob", host="10.0.0.1", operation=4, permission=2),
    "group": acl(resource_type=3),
}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, {"literal", "wildcard", "prefix", "other", "group"}),
        ({"resource_type": 2}, {"literal", "wildcard", "prefix", "other"}),
        ({"resource_type": 2, "name": "orders"}, {"literal"}),
        ({"name": "orders"}, {"literal", "group"}),
        ({"resource_type": 2, "name": "orders", "pattern_type": 2}, {"literal", "wildcard", "prefix"}),
        ({"name": "orders", "pattern_type": 2}, {"literal", "wildcard", "prefix", "group"}),
        ({"resource_type": 2, "name": "order", "pattern_type": 2}, {"wildcard", "prefix"}),
        ({"resource_type": 2, "name": "*", "pattern_type": 2}, {"wildcard"}),
        ({"resource_type": 2, "pattern_type": 2}, {"literal", "wildcard", "prefix", "other"}),
        ({"pattern_type": 4}, {"prefix"}),
        ({"pattern_type": 4, "name": "orders"}, set()),
        ({"pattern_type": 3, "name": "*"}, {"wildcard"}),
        ({"principal": "User:bob"}, {"other"}),
        ({"principal": "User:*"}, set()),
        ({"host": "10.0.0.1"}, {"other"}),
        ({"host": "*"}, {"literal", "wildcard", "prefix", "group"}),
        ({"operation": 4}, {"other"}),
        ({"operation": 2}, set()),
        ({"permission": 2}, {"other"}),
        (dict(FIELDS), {"literal"}),
        ({**FIELDS, "principal": "User:eve"}, set()),
        ({"name": ""}, set()),
        ({"resource_type": 99}, set()),
    ],
    ids=str,
)
def test_what_filters_match(fields: dict[str, Any], found: set[str]) -> None:
    """Looked for among all and among those that an index names: they are the same."""
    table = AclTable()
    for each in KEPT.values():
        table.add(each)
    asked = AclFilter(**{"name": None, "principal": None, "host": None, **ANY, **fields})
    assert {name for name, each in KEPT.items() if asked.matches(each)} == found
    assert {each for each in asked.candidates(table) if asked.matches(each)} == {KEPT[name] for name in found}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 1}, "Invalid patternType ANY"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission": 1}, "Invalid permissionType ANY"),
        ({"name": ""}, "Invalid empty resource name"),
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"principal": "alice"}, "Could not parse principal from `alice`"),
        ({"principal": ""}, "Could not parse principal"),
        ({"name": "n" * 1025}, "Resource name is longer"),
        ({"principal": "User:" + "u" * 512}, "Principal is longer"),
        ({"host": "h" * 256}, "Host is longer"),
        ({"host": "10.0.0.0/33"}, "is no network"),
        ({"host": "10.0.0.1/8"}, "is no network"),
        ({"host": "/"}, "is no network"),
        ({"host": "\n/8"}, r"'\n/8' is no network"),
    ],
    ids=str,
)
def test_what_is_no_acl_is_refused_with_all_around_it(
    script: Script, fields: dict[str, Any], why: str
) -> None:
    refused = create(script, binding(name="sound"), binding(**fields))
    assert isinstance(refused, Refused)
    assert refused.code == Code.INVALID_REQUEST
    assert why in refused.message
    assert not script.state.acls.acls


@pytest.mark.parametrize("host", ["10.0.0.0/8", "2001:db8::/32", "somewhere", "", "::1"])
def test_hosts_that_are_taken(script: Script, host: str) -> None:
    assert create(script, binding(host=host)) == Done(1)


def test_ten_thousand_at_once_and_no_more(script: Script) -> None:
    ten_thousand = [binding(name=f"t{number}") for number in range(acls.ACLS_PER_CHANGE_MAX)]
    refused = create(script, binding(), *ten_thousand)
    assert refused == Refused(Code.POLICY_VIOLATION, acls.TOO_MANY)
    assert not script.state.acls.acls, "all or none"
    assert create(script, *ten_thousand) == Done(acls.ACLS_PER_CHANGE_MAX)
    assert create(script, binding(), *ten_thousand) == Done(1), "only what is new counts"
    assert delete(script, {}) == Refused(Code.INVALID_REQUEST, acls.TOO_MANY_DELETED)
    assert len(script.state.acls.acls) == acls.ACLS_PER_CHANGE_MAX + 1
    (matched,) = delete(script, {"name": "t7"}).value
    assert matched == (acl(name="t7"),)


def test_there_is_a_most(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acls, "ACLS_MAX", 2)
    assert create(script, binding(), binding(operation=4)) == Done(2)
    refused = create(script, binding(operation=5))
    assert isinstance(refused, Refused)
    assert refused.code == Code.POLICY_VIOLATION
    assert create(script, binding()) == Done(0)


def test_filters_cannot_make_every_agent_look_for_ever(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "LOOKS_MAX", 3)
    create(script, *[binding(operation=number) for number in (3, 4)])
    refused = delete(script, {"host": "x"}, {"host": "y"})
    assert isinstance(refused, Refused)
    assert refused.code == Code.POLICY_VIOLATION
    exact = [dict(FIELDS)] * 3
    assert isinstance(delete(script, *exact), Done), "one that names an ACL looks at that one"
    monkeypatch.setattr(acls, "FILTERS_MAX", 1)
    assert isinstance(delete(script, {}, {}), Refused)


def test_below_its_level_it_is_refused(script: Script) -> None:
    script.state.feature_level = ACLS - 1
    for message in (CreateAcls(acls=[binding()]), DeleteAcls()):
        refused = script.one(A, message)
        assert isinstance(refused, Refused)
        assert refused.code == Code.UNSUPPORTED_VERSION
