"""One agent's authority: what a client may do by the ACLs that are applied here, by now.

Answers are remembered until the ACLs change: who is asked looks at their revision first. An ACL that was
revoked stops the next request of every connection on this agent as soon as its entry is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from agent.config.authorizer import principals
from agent.kafka.authority.decide import canonical, decide, decide_any
from agent.kafka.authority.needs import SUPPORTED
from agent.telemetry.changes import Change
from agent.telemetry.shadow import Seen, Shadow
from agent.telemetry.trail import Actor, Trail
from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME, WILDCARD, Operation, ResourceType, spoken
from coordination.state.acls import NAME_LENGTH_MAX

if TYPE_CHECKING:
    from prometheus_client import Counter

    from agent.config.authorizer import AuthorizerConfig
    from agent.telemetry.metrics import Metrics
    from coordination.state.acl_types import AclTable
    from coordination.state.state import State

Answers = dict[str, bool]
ANY_NAME = "\0any"  # no resource has this name: where the answer for any of them is remembered
NAME_CHARS_MAX = 255  # of a name whose answer is remembered: clients choose them
USER = "User:"


class Asked(Protocol):
    """What is asked for: a row of Kafka's needs (needs.py), or of HTTP's (agent/http/needs.py)."""

    @property
    def operation(self) -> Operation: ...

    @property
    def resource(self) -> ResourceType: ...

    @property
    def code(self) -> Code:
        """The error of a refusal."""
        ...

    @property
    def quiet(self) -> bool:
        """Whether a no is no refusal."""
        ...


class Authority:
    """Decides, remembers, and in shadow mode notes instead of refusing."""

    def __init__(
        self,
        config: AuthorizerConfig,
        state: Callable[[], State],
        metrics: Metrics,
        shadow: Shadow,
        trail: Trail | None = None,
    ) -> None:
        self._trail = trail
        self.enforces = config.mode == "enforce"
        self.off = config.mode == "off"
        self.shadow = shadow
        self._unlisted = config.allow_everyone_if_no_acl_found
        self._super = frozenset(principals(config.super_users))
        self._max = config.cache_entries_max
        self._state = state
        self._refused = metrics.authorizer_refused
        self._mode = config.mode
        self._counters: dict[tuple[Operation, ResourceType], Counter] = {}
        self._answers: dict[tuple[str, str, int, int], Answers] = {}
        self._entries = 0
        self._table: AclTable | None = None
        self._revision = -1

    @property
    def entries(self) -> int:
        """Answers that are remembered."""
        return self._entries

    @property
    def revision(self) -> int:
        """Of the ACLs' last change as applied here."""
        return self._state().acls.revision

    def allows(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        """Whether it is allowed by now, whatever the mode. `principal` without its type."""
        table = self._state().acls
        if table is not self._table or table.revision != self._revision:
            self._forget(table)
        sheet = self._answers.get((principal, host, operation, resource))
        if sheet is not None:
            answer = sheet.get(name)
            if answer is not None:
                return answer
        return self._decide(table, principal, host, operation, resource, name)

    def may(self, principal: str, host: str, need: Asked, name: str = CLUSTER_NAME) -> bool:
        """Whether a request goes on. In shadow mode it does, and is noted."""
        if self.off:
            return True
        table = self._state().acls
        if table is self._table and table.revision == self._revision:  # what is asked most
            sheet = self._answers.get((principal, host, need.operation, need.resource))
            if sheet is not None and sheet.get(name):
                return True
        if self.allows(principal, host, need.operation, need.resource, name):
            return True
        if not need.quiet:
            self._note(principal, host, need, name)
        return not self.enforces

    def refused(self, principal: str, host: str, need: Asked, names: Iterable[str]) -> set[str]:
        """Those of the names that the client may not."""
        return {name for name in names if not self.may(principal, host, need, name)}

    def may_any(self, principal: str, host: str, need: Asked) -> bool:
        """Whether there is any resource of this type on which the client may."""
        return self.may(principal, host, need, ANY_NAME)

    def operations(self, principal: str, host: str, resource: ResourceType, name: str) -> int:
        """The operations that the client may do, as a sum of bits (KIP-430)."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource]
            if not self.enforces or self.allows(principal, host, operation, resource, name)
        )

    def _decide(
        self,
        table: AclTable,
        principal: str,
        host: str,
        operation: Operation,
        resource: ResourceType,
        name: str,
    ) -> bool:
        who, where = USER + principal, canonical(host)
        if who in self._super:
            answer = True
        elif name == ANY_NAME:
            answer = decide_any(table, who, where, operation, resource, unlisted=self._unlisted)
        else:
            answer = decide(table, who, where, operation, resource, name, unlisted=self._unlisted)
        if len(name) > NAME_CHARS_MAX:
            return answer
        if self._entries >= self._max:
            self._forget(table)
        self._answers.setdefault((principal, host, operation, resource), {})[name] = answer
        self._entries += 1
        return answer

    def _forget(self, table: AclTable) -> None:
        self._answers = {}
        self._entries = 0
        self._table, self._revision = table, table.revision

    def _note(self, principal: str, host: str, need: Asked, name: str) -> None:
        operation, resource = need.operation, need.resource
        counter = self._counters.get((operation, resource))
        if counter is None:
            labels = (self._mode, operation.name.lower(), resource.name.lower())
            counter = self._counters[operation, resource] = self._refused.labels(*labels)
        counter.inc()
        shown = WILDCARD if name == ANY_NAME else name[:NAME_LENGTH_MAX]  # a longer one is in no ACL
        if self.enforces and self._trail is not None:
            change = Change(spoken(operation.name), spoken(resource.name), shown)
            self._trail.refused(Actor(principal, host, "", ""), change, need.code)
        elif not self.enforces:
            self.shadow.note(Seen(USER + principal, operation, resource, shown), host)
