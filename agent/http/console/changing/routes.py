"""The routes of changes. Each is in the table of agent/http/needs.py."""

from __future__ import annotations

from starlette.routing import Route

from agent.http.asking import asking
from agent.http.console.changing.acls import AclChange
from agent.http.console.changing.configs import TopicConfigs
from agent.http.console.changing.flow import Flow, with_problems
from agent.http.console.changing.groups import GroupDelete
from agent.http.console.changing.plans import Kind
from agent.http.console.changing.previews import Previews
from agent.http.console.changing.records import RecordsDelete
from agent.http.console.changing.resets import GroupReset
from agent.http.console.changing.subjects import SubjectLevel
from agent.http.console.changing.topics import TopicCreate, TopicDelete, TopicPartitions
from agent.http.console.changing.undelete import TopicUndelete
from agent.http.needs import CHANGE_PATH
from agent.http.parts import Parts


def changing_routes(parts: Parts) -> list[Route]:
    """None where `console.changes` is false."""
    if not parts.config.console.changes:
        return []
    kinds: list[Kind] = [
        TopicCreate(parts),
        TopicConfigs(parts),
        TopicPartitions(parts),
        TopicDelete(parts),
        TopicUndelete(parts),
        RecordsDelete(parts),
        GroupReset(parts),
        GroupDelete(parts),
        AclChange(parts, adds=True),
        AclChange(parts, adds=False),
        SubjectLevel(parts),
    ]
    previews = Previews(parts.config.console, parts.clock)
    routes = []
    for kind in kinds:
        flow, path = Flow(parts, previews, kind), CHANGE_PATH + kind.name
        for method, handler in (("GET", flow.show), ("POST", flow.send)):
            asked = asking(parts, method, path, with_problems(parts, handler))
            routes.append(Route(path, asked, methods=[method]))
    return routes
