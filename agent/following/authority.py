"""What nobody may at a replica: all that changes something, whatever ACLs and the authorizer's mode say.

So every API refuses as it refuses whoever the ACLs do not allow (agent/kafka/guards). Those codes are the
ones with which clients stop: TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED are final.
"""

from __future__ import annotations

from typing import Final

from agent.kafka.authority.authority import Asked, Authority
from agent.kafka.authority.needs import SUPPORTED
from coordination.state.acl_types import CLUSTER_NAME, Operation, ResourceType

_O, _GROUP = Operation, ResourceType.GROUP
CHANGES: Final = frozenset(
    {
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.CLUSTER_ACTION,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
        _O.CREATE_TOKENS,
    }
)
"""Operations that change something. READ of a group, which is to join it and to commit, does so too."""


def changes(operation: Operation, resource: ResourceType) -> bool:
    """Whether who does this changes something."""
    return operation in CHANGES or (operation == _O.READ and resource == _GROUP)


class ReadersOnly(Authority):
    """Asks the ACLs of the cluster for what only reads."""

    _acls_off = False

    def read_only(self) -> ReadersOnly:
        """This one; guards ask from now on, also where no ACL is asked."""
        self._acls_off, self.off = self.off, False
        return self

    def allows(
        self, principal: str, host: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        if changes(operation, resource):
            return False
        return self._acls_off or super().allows(principal, host, operation, resource, name)

    def may(self, principal: str, host: str, need: Asked, name: str = CLUSTER_NAME) -> bool:
        if changes(need.operation, need.resource):
            return False
        return self._acls_off or super().may(principal, host, need, name)

    def operations(self, principal: str, host: str, resource: ResourceType, name: str) -> int:
        """Of those that the ACLs give, the ones that only read."""
        changed = sum(1 << each for each in SUPPORTED[resource] if changes(each, resource))
        return super().operations(principal, host, resource, name) & ~changed
