"""What each API asks for: operation and resource, as in Kafka 4.3. The table of docs/security.md is this one.

A guard (agent/kafka/guards) or a handler asks with the constants below, so what stands in the page is what is
asked. An API without a row does not pass tests/unit/agent/kafka/authority/test_needs.py.
"""

from __future__ import annotations

from typing import NamedTuple

from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

CODES = {
    ResourceType.TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ResourceType.USER: Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""What a refusal is called, by resource."""

SUPPORTED: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""Operations that a resource has (KIP-430), where answers tell which of them one may do."""


class Need(NamedTuple):
    """One row: API `key` asks for `operation` on `resource`. `quiet`: a no is no refusal."""

    key: int
    operation: Operation
    resource: ResourceType
    of: str
    """Which resource, in words."""
    otherwise: str
    """What whoever may not is answered, in words."""
    quiet: bool = False

    @property
    def code(self) -> Code:
        """The error of a refusal."""
        return CODES[self.resource]


TABLE: dict[int, tuple[Need, ...]] = {}
"""Every row, by API."""
FREE: dict[int, str] = {
    17: "before the login",
    18: "tells versions only",
    36: "the login itself",
    39: "owner and renewers of the token may, nobody else",
    40: "owner and renewers of the token may, nobody else",
}
"""APIs that ask for nothing, each with the reason."""


def _row(
    key: int, operation: Operation, resource: ResourceType, of: str, otherwise: str, *, quiet: bool = False
) -> Need:
    need = Need(key, operation, resource, of, otherwise, quiet)
    TABLE[key] = (*TABLE.get(key, ()), need)
    return need


_O = Operation
_EACH = "each topic"
_THE_GROUP = "the group"
_THE_ID = "the transactional id"
_CLUSTER = "the cluster"
_PARTITIONS = "its partitions"
_WHOLE = "the request"
_HIDDEN = "not shown"

PRODUCE_ID = _row(0, _O.WRITE, TRANSACTIONAL_ID, f"{_THE_ID}, if any", "every partition")
PRODUCE = _row(0, _O.WRITE, TOPIC, _EACH, _PARTITIONS)
FETCH = _row(1, _O.READ, TOPIC, f"{_EACH}; asked again when a long poll answers", _PARTITIONS)
LIST_OFFSETS = _row(2, _O.DESCRIBE, TOPIC, _EACH, _PARTITIONS)
METADATA = _row(3, _O.DESCRIBE, TOPIC, _EACH, "the topic; when all are asked for, it is not shown")
METADATA_ALL = _row(3, _O.DESCRIBE, TOPIC, "each of all topics", _HIDDEN, quiet=True)
METADATA_CLUSTER_CREATE = _row(3, _O.CREATE, CLUSTER, "where topics would be created", "or", quiet=True)
METADATA_CREATE = _row(3, _O.CREATE, TOPIC, "each that would be created", "the topic")
METADATA_CLUSTER = _row(
    3, _O.DESCRIBE, CLUSTER, "where its operations are asked for", "no operations", quiet=True
)
OFFSET_COMMIT_GROUP = _row(8, _O.READ, GROUP, _THE_GROUP, "every partition")
OFFSET_COMMIT = _row(8, _O.READ, TOPIC, _EACH, _PARTITIONS)
OFFSET_FETCH_GROUP = _row(9, _O.DESCRIBE, GROUP, "each group", "the group")
OFFSET_FETCH = _row(9, _O.DESCRIBE, TOPIC, _EACH, f"{_PARTITIONS}; when all are asked for, it is not shown")
OFFSET_FETCH_ALL = _row(9, _O.DESCRIBE, TOPIC, "each of all topics", _HIDDEN, quiet=True)
FIND_GROUP = _row(10, _O.DESCRIBE, GROUP, "each group", "the key")
FIND_ID = _row(10, _O.DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "the key")
JOIN_GROUP = _row(11, _O.READ, GROUP, _THE_GROUP, _WHOLE)
HEARTBEAT = _row(12, _O.READ, GROUP, _THE_GROUP, _WHOLE)
LEAVE_GROUP = _row(13, _O.READ, GROUP, _THE_GROUP, _WHOLE)
SYNC_GROUP = _row(14, _O.READ, GROUP, _THE_GROUP, _WHOLE)
DESCRIBE_GROUPS = _row(15, _O.DESCRIBE, GROUP, "each group", "the group")
LIST_GROUPS_CLUSTER = _row(16, _O.DESCRIBE, CLUSTER, _CLUSTER, "or", quiet=True)
LIST_GROUPS = _row(16, _O.DESCRIBE, GROUP, "each group", _HIDDEN, quiet=True)
CREATE_TOPICS_CLUSTER = _row(19, _O.CREATE, CLUSTER, _CLUSTER, "or", quiet=True)
CREATE_TOPICS = _row(19, _O.CREATE, TOPIC, _EACH, "the topic")
CREATE_TOPICS_CONFIGS = _row(19, _O.DESCRIBE_CONFIGS, TOPIC, _EACH, "its configs are not told", quiet=True)
DELETE_TOPICS_CLUSTER = _row(20, _O.DELETE, CLUSTER, _CLUSTER, "or", quiet=True)
DELETE_TOPICS_NAMED = _row(
    20, _O.DESCRIBE, TOPIC, "each topic, to be told of it", "the topic, without its name or id"
)
DELETE_TOPICS = _row(20, _O.DELETE, TOPIC, _EACH, "the topic")
DELETE_RECORDS = _row(21, _O.DELETE, TOPIC, _EACH, _PARTITIONS)
INIT_ID = _row(22, _O.WRITE, TRANSACTIONAL_ID, f"{_THE_ID}, if any", _WHOLE)
INIT_IDEMPOTENT = _row(22, _O.IDEMPOTENT_WRITE, CLUSTER, "where there is none", "or", quiet=True)
INIT_ANY_TOPIC = _row(22, _O.WRITE, TOPIC, "any topic", "the request: CLUSTER_AUTHORIZATION_FAILED")
LEADER_EPOCH_CLUSTER = _row(23, _O.CLUSTER_ACTION, CLUSTER, _CLUSTER, "or", quiet=True)
LEADER_EPOCH = _row(23, _O.DESCRIBE, TOPIC, _EACH, _PARTITIONS)
ADD_PARTITIONS_BROKER = _row(24, _O.CLUSTER_ACTION, CLUSTER, "from version 4 on: brokers send it", _WHOLE)
ADD_PARTITIONS_ID = _row(24, _O.WRITE, TRANSACTIONAL_ID, _THE_ID, "every partition")
ADD_PARTITIONS = _row(24, _O.WRITE, TOPIC, _EACH, f"{_PARTITIONS}; the others are not attempted")
ADD_OFFSETS_ID = _row(25, _O.WRITE, TRANSACTIONAL_ID, _THE_ID, _WHOLE)
ADD_OFFSETS_GROUP = _row(25, _O.READ, GROUP, _THE_GROUP, _WHOLE)
END_TXN = _row(26, _O.WRITE, TRANSACTIONAL_ID, _THE_ID, _WHOLE)
MARKERS_ALTER = _row(27, _O.ALTER, CLUSTER, _CLUSTER, "or", quiet=True)
MARKERS = _row(27, _O.CLUSTER_ACTION, CLUSTER, _CLUSTER, "every partition")
TXN_OFFSETS_ID = _row(28, _O.WRITE, TRANSACTIONAL_ID, _THE_ID, "every partition")
TXN_OFFSETS_GROUP = _row(28, _O.READ, GROUP, _THE_GROUP, "every partition")
TXN_OFFSETS = _row(28, _O.READ, TOPIC, _EACH, _PARTITIONS)
DESCRIBE_ACLS = _row(29, _O.DESCRIBE, CLUSTER, _CLUSTER, _WHOLE)
CREATE_ACLS = _row(30, _O.ALTER, CLUSTER, _CLUSTER, "every ACL")
DELETE_ACLS = _row(31, _O.ALTER, CLUSTER, _CLUSTER, "every filter")
DESCRIBE_CONFIGS_TOPIC = _row(32, _O.DESCRIBE_CONFIGS, TOPIC, _EACH, "the resource")
DESCRIBE_CONFIGS_GROUP = _row(32, _O.DESCRIBE_CONFIGS, GROUP, "each group", "the resource")
DESCRIBE_CONFIGS = _row(32, _O.DESCRIBE_CONFIGS, CLUSTER, "for all other resources", "the resource")
ALTER_CONFIGS_TOPIC = _row(33, _O.ALTER_CONFIGS, TOPIC, _EACH, "the resource")
ALTER_CONFIGS_GROUP = _row(33, _O.ALTER_CONFIGS, GROUP, "each group", "the resource")
ALTER_CONFIGS = _row(33, _O.ALTER_CONFIGS, CLUSTER, "for all other resources", "the resource")
ALTER_LOG_DIRS = _row(34, _O.ALTER, CLUSTER, _CLUSTER, "every partition")
DESCRIBE_LOG_DIRS = _row(35, _O.DESCRIBE, CLUSTER, _CLUSTER, _WHOLE)
CREATE_PARTITIONS = _row(37, _O.ALTER, TOPIC, _EACH, "the topic")
CREATE_TOKEN = _row(38, _O.CREATE_TOKENS, ResourceType.USER, "the owner, where it is another user", _WHOLE)
DESCRIBE_TOKEN = _row(
    41, _O.DESCRIBE, ResourceType.DELEGATION_TOKEN, "each token of others", "or", quiet=True
)
DESCRIBE_TOKEN_OF = _row(41, _O.DESCRIBE_TOKENS, ResourceType.USER, "its owner", _HIDDEN, quiet=True)
DELETE_GROUPS = _row(42, _O.DELETE, GROUP, "each group", "the group")
ELECT_LEADERS = _row(43, _O.ALTER, CLUSTER, _CLUSTER, "the request and every partition")
INCREMENTAL_TOPIC = _row(44, _O.ALTER_CONFIGS, TOPIC, _EACH, "the resource")
INCREMENTAL_GROUP = _row(44, _O.ALTER_CONFIGS, GROUP, "each group", "the resource")
INCREMENTAL = _row(44, _O.ALTER_CONFIGS, CLUSTER, "for all other resources", "the resource")
ALTER_REASSIGNMENTS = _row(45, _O.ALTER, CLUSTER, _CLUSTER, "the request and every partition")
LIST_REASSIGNMENTS = _row(46, _O.DESCRIBE, CLUSTER, _CLUSTER, _WHOLE)
OFFSET_DELETE_GROUP = _row(47, _O.DELETE, GROUP, _THE_GROUP, _WHOLE)
OFFSET_DELETE = _row(47, _O.READ, TOPIC, _EACH, _PARTITIONS)
DESCRIBE_QUOTAS = _row(48, _O.DESCRIBE_CONFIGS, CLUSTER, _CLUSTER, _WHOLE)
ALTER_QUOTAS = _row(49, _O.ALTER_CONFIGS, CLUSTER, _CLUSTER, "every entry")
DESCRIBE_SCRAM = _row(50, _O.DESCRIBE, CLUSTER, _CLUSTER, _WHOLE)
ALTER_SCRAM = _row(51, _O.ALTER, CLUSTER, _CLUSTER, "every user")
DESCRIBE_QUORUM = _row(55, _O.DESCRIBE, CLUSTER, _CLUSTER, _WHOLE)
UPDATE_FEATURES = _row(57, _O.ALTER, CLUSTER, _CLUSTER, _WHOLE)
DESCRIBE_CLUSTER = _row(
    60, _O.DESCRIBE, CLUSTER, "where its operations are asked for", "no operations", quiet=True
)
DESCRIBE_PRODUCERS = _row(61, _O.READ, TOPIC, _EACH, _PARTITIONS)
DESCRIBE_TRANSACTIONS = _row(65, _O.DESCRIBE, TRANSACTIONAL_ID, "each transactional id", "the id")
DESCRIBE_TRANSACTIONS_TOPIC = _row(65, _O.DESCRIBE, TOPIC, "each topic in it", _HIDDEN, quiet=True)
LIST_TRANSACTIONS = _row(66, _O.DESCRIBE, TRANSACTIONAL_ID, "each transactional id", _HIDDEN, quiet=True)
CONSUMER_HEARTBEAT = _row(68, _O.READ, GROUP, _THE_GROUP, _WHOLE)
CONSUMER_HEARTBEAT_TOPIC = _row(68, _O.DESCRIBE, TOPIC, "each topic subscribed to by name", _WHOLE)
CONSUMER_HEARTBEAT_PATTERN = _row(
    68, _O.DESCRIBE, TOPIC, "each topic that its pattern matches", "not subscribed to", quiet=True
)
CONSUMER_DESCRIBE = _row(69, _O.DESCRIBE, GROUP, "each group", "the group")
CONSUMER_DESCRIBE_TOPIC = _row(69, _O.DESCRIBE, TOPIC, "each topic that members have", "the group")
LIST_CONFIG_RESOURCES = _row(74, _O.DESCRIBE_CONFIGS, CLUSTER, _CLUSTER, _WHOLE)
DESCRIBE_PARTITIONS = _row(75, _O.DESCRIBE, TOPIC, _EACH, "the topic")
DESCRIBE_PARTITIONS_ALL = _row(75, _O.DESCRIBE, TOPIC, "each of all topics", _HIDDEN, quiet=True)
