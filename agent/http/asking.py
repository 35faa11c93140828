"""What whoever asks by HTTP may do: a question to the ACLs, from wherever a route knows the name.

Nobody is asked where `http.authentication` is `none`: whoever reaches the port may do everything there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from agent.http.answers import Problem
from agent.http.needs import TOPIC, Need, OfSubject, row_of
from agent.telemetry.trail import http_actor
from coordination.state.acl_types import CLUSTER_NAME, spoken
from coordination.state.subject_types import meant

if TYPE_CHECKING:
    from agent.http.parts import Parts

Handler = Callable[[Request], Awaitable[Response]]


def _none(_request: Request) -> str:
    return ""


def may(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> bool:
    """Whether the request that is served goes on, by the ACLs as applied by now (agent/kafka/authority)."""
    if parts.authority is None or not asks(parts):
        return True
    actor = http_actor.get()
    return parts.authority.may(actor.principal, actor.host, need, name)


def allows(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> bool:
    """Whether the ACLs allow it, whatever the mode: of needs of which one is enough."""
    if parts.authority is None or not asks(parts):
        return True
    actor = http_actor.get()
    return parts.authority.allows(actor.principal, actor.host, need.operation, need.resource, name)


def asks(parts: Parts) -> bool:
    """Whether there is anything to ask."""
    authority = parts.authority
    return authority is not None and not authority.off and parts.config.http.authentication != "none"


def require(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> None:
    """Raises Problem 403. Ask before looking whether there is such a thing."""
    if not may(parts, need, name):
        raise denied(need, name)


def denied(need: Need, name: str = CLUSTER_NAME) -> Problem:
    """What whoever may not is told."""
    operation, resource = spoken(need.operation.name), spoken(need.resource.name)
    who = f"User:{http_actor.get().principal}"
    where = "the cluster" if name == CLUSTER_NAME else f"{resource.lower()} {name!r}"
    remedy = f"an ACL has to allow {who} {operation} on {where} (kafka-acls.sh)"
    return Problem(403, f"{who} may not {operation} {where}", remedy)


def may_subject(parts: Parts, need: OfSubject, subject: str) -> bool:
    """Of a subject in full."""
    return may(parts, *need.on(subject))


def require_subject(parts: Parts, need: OfSubject, subject: str) -> None:
    """Of a subject in full, and of the one that it is an alias of. Raises Problem 403."""
    table = parts.replica.state.subjects
    for name in dict.fromkeys((subject, meant(table, subject))):
        require(parts, *need.on(name))


def require_any(parts: Parts, need: OfSubject, subjects: Iterable[str]) -> None:
    """Of one of these subjects; where there are none, of the cluster. Raises Problem 403."""
    asked = list(dict.fromkeys(need.on(each) for each in (*subjects, "")))
    most = asked[:-1] or asked
    if not any(allows(parts, *each) for each in most):
        require(parts, *most[0])


def asking(
    parts: Parts, method: str, path: str, handler: Handler, subject: Callable[[Request], str] = _none
) -> Handler:
    """The handler of a route behind what its row asks for, by what the path names.

    `subject`: the one in full that it names, in the registry. KeyError for a route without a row.
    """
    row = row_of(method, path)
    if row.need is None or row.by_itself:
        return handler

    need = row.need

    async def asked(request: Request) -> Response:
        if isinstance(need, OfSubject):
            require_subject(parts, need, subject(request))
        elif need.resource == TOPIC:
            require(parts, need, str(request.path_params["name"]))
        else:
            require(parts, need)
        return await handler(request)

    return asked
