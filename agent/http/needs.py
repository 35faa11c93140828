"""What each route asks for: operation and resource of Kafka's ACLs. docs/security.md shows it."""

from __future__ import annotations

from typing import NamedTuple

from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, ResourceType

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
_CODES = {
    TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    """`operation` on `resource`. `quiet`: a no is no refusal."""

    operation: Operation
    resource: ResourceType
    quiet: bool = False

    @property
    def code(self) -> Code:
        """What the audit log calls a refusal."""
        return _CODES[self.resource]
