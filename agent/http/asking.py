"""What whoever asks by HTTP may do: a question to the ACLs, from wherever a route knows the name.

Nobody is asked where `http.authentication` is `none`: whoever reaches the port may do everything there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.http.answers import Problem
from agent.http.needs import Need
from agent.telemetry.trail import http_actor
from coordination.state.acl_types import CLUSTER_NAME, spoken

if TYPE_CHECKING:
    from agent.http.parts import Parts


def may(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> bool:
    """Whether the request that is served goes on, by the ACLs as applied by now (agent/kafka/authority)."""
    if parts.authority is None or parts.config.http.authentication == "none":
        return True
    actor = http_actor.get()
    return parts.authority.may(actor.principal, actor.host, need, name)


def holds(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> bool:
    """Whether the ACLs allow it, also in shadow mode: where another need would do instead."""
    if parts.authority is None or parts.config.http.authentication == "none":
        return True
    actor = http_actor.get()
    return parts.authority.holds(actor.principal, actor.host, need, name)


def require(parts: Parts, need: Need, name: str = CLUSTER_NAME) -> None:
    """Raises Problem 403. Ask before looking whether there is such a thing."""
    if not may(parts, need, name):
        raise denied(need, name)


def denied(need: Need, name: str = CLUSTER_NAME) -> Problem:
    """What whoever may not is told."""
    operation, resource = spoken(need.operation.name), spoken(need.resource.name)
    who = f"User:{http_actor.get().principal}"
    where = resource.lower() if name == CLUSTER_NAME else f"{resource.lower()} {name!r}"
    remedy = f"an ACL has to allow {who} {operation} on {where} (kafka-acls.sh)"
    return Problem(403, f"{who} may not {operation} {where}", remedy)
