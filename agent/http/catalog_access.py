"""What whoever asks the catalog may do, by the ACLs: iceberg/rest_access.py asks, the authority says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.http.asking import allows, may
from agent.http.needs import CLUSTER, TOPIC, Need
from agent.net.listening import ANONYMOUS
from agent.telemetry.trail import Actor
from coordination.state.acl_types import CLUSTER_NAME, Operation, spoken
from iceberg.rest_access import CLUSTER as WHOLE

if TYPE_CHECKING:
    from agent.http.parts import Parts


class CatalogAccess:
    """Of one request. An iceberg.rest_access.Access."""

    def __init__(self, parts: Parts, actor: Actor, cleared: frozenset[str]) -> None:
        """`cleared`: who reads fields that schemas mark."""
        self._parts, self._actor = parts, actor
        self.principal = actor.principal
        known = parts.config.http.authentication != "none"
        self.cleared = not known or actor.principal in cleared - {ANONYMOUS}

    def may(self, operation: Operation, topic: str, *, quiet: bool = False) -> bool:
        """See Access. A Read that is allowed is an access, for the audit log."""
        need, name = _need(operation, topic, quiet=quiet)
        allowed = may(self._parts, need, name)
        if allowed and operation is Operation.READ and self._parts.trail is not None:
            self._parts.trail.accessed(self._actor, spoken(operation.name), [topic])
        return allowed

    def holds(self, operation: Operation, topic: str) -> bool:
        """See Access."""
        return allows(self._parts, *_need(operation, topic, quiet=True))


def _need(operation: Operation, topic: str, *, quiet: bool) -> tuple[Need, str]:
    if topic == WHOLE:
        return Need(operation, CLUSTER, quiet), CLUSTER_NAME
    return Need(operation, TOPIC, quiet), topic
