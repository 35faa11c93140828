"""Links to changes, on the pages of what would be changed, for whom the ACLs let make them."""

from __future__ import annotations

from collections.abc import Mapping

from agent.http.asking import may, may_subject
from agent.http.console.markup import Html, link, tag, url
from agent.http.needs import CHANGE_PATH, CHANGES, Need
from agent.http.parts import Parts
from coordination.state.acl_types import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    spoken,
)

_WORDS = {
    "topic-create": "Create a topic",
    "topic-configs": "Edit configs",
    "topic-partitions": "Add partitions",
    "records-delete": "Delete records",
    "topic-delete": "Delete the topic",
    "topic-undelete": "Bring it back",
    "group-reset": "Reset positions",
    "group-delete": "Delete the group",
    "acl-create": "Add an ACL",
    "subject-level": "Set the compatibility",
}


def offered(parts: Parts, name: str, *kinds: str) -> Html:
    """Links to these changes of what has this name; nothing where none is offered."""
    if not parts.config.console.changes:
        return Html()
    links = (link(_WORDS[kind], _way(kind, name)) for kind in kinds if _may(parts, kind, name))
    shown = [tag("span", each) for each in links]
    return tag("p", *shown, class_="changes") if shown else Html()


def to_change(parts: Parts, kind: str, shown: str, **fields: str) -> Html:
    """A link to one change with its fields filled in; empty where none is offered."""
    if not parts.config.console.changes or not _may(parts, kind, ""):
        return Html()
    return link(shown, url(CHANGE_PATH + kind, **fields))


def _way(kind: str, name: str) -> str:
    field = kind.partition("-")[0].replace("records", "topic")
    return url(CHANGE_PATH + kind, **({} if kind.endswith("-create") else {field: name}))


def _may(parts: Parts, kind: str, name: str) -> bool:
    need = CHANGES[kind][1].need
    if kind == "topic-create":  # by its name, which is not known yet
        return True
    if isinstance(need, Need):
        on = CLUSTER_NAME if need.resource is ResourceType.CLUSTER else name
        return may(parts, need._replace(quiet=True), on)
    return need is not None and may_subject(parts, need._replace(quiet=True), name)


def fields_of(acl: Acl) -> Mapping[str, str]:
    """An ACL as forms have it."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "permission": spoken(Permission(acl.permission).name),
        "operation": spoken(Operation(acl.operation).name),
        "type": spoken(ResourceType(acl.resource_type).name),
        "name": acl.name,
        "pattern": spoken(PatternType(acl.pattern_type).name),
    }
