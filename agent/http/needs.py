"""What each route asks for: operation and resource of Kafka's ACLs. docs/security.md shows the table.

A route without a row cannot be built (agent/http/app.py). Rows are asked before a route is served, by what
the path names; those `by_itself` by the route, which knows more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from coordination.kafka_codes import Code
from coordination.state.acl_types import CLUSTER_NAME, Operation, ResourceType
from coordination.state.subject_types import context_of

TOPIC, CLUSTER, GROUP = ResourceType.TOPIC, ResourceType.CLUSTER, ResourceType.GROUP
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
_CODES: Final = {
    TOPIC: Code.TOPIC_AUTHORIZATION_FAILED,
    CLUSTER: Code.CLUSTER_AUTHORIZATION_FAILED,
    GROUP: Code.GROUP_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_ROLES: Final = ("-value", "-key")
"""What subjects of a topic's records end with (TopicNameStrategy)."""


class Need(NamedTuple):
    """`operation` on `resource`. `quiet`: a no is no refusal."""

    operation: Operation
    resource: ResourceType
    quiet: bool = False

    @property
    def code(self) -> Code:
        """What the audit log calls a refusal."""
        return _CODES[self.resource]


class OfSubject(NamedTuple):
    """The operation on the topic that a subject is of, else on the cluster."""

    operation: Operation
    quiet: bool = False

    def on(self, subject: str) -> tuple[Need, str]:
        """What is asked for, and of which topic. Subjects in contexts are of no topic of this cluster."""
        for end in _ROLES:
            if subject.endswith(end) and len(subject) > len(end) and not context_of(subject):
                return Need(self.operation, TOPIC, self.quiet), subject[: -len(end)]
        return Need(self.operation, CLUSTER, self.quiet), CLUSTER_NAME


class Row(NamedTuple):
    """What one route asks for. `need` None: nothing, for the reason in `of`."""

    need: Need | OfSubject | None
    of: str
    by_itself: bool = False


_O: Final = Operation
DESCRIBE_CLUSTER: Final = Need(_O.DESCRIBE, CLUSTER)
ALTER_CLUSTER: Final = Need(_O.ALTER, CLUSTER)
DESCRIBE: Final = Need(_O.DESCRIBE, TOPIC)
DESCRIBE_QUIETLY: Final = Need(_O.DESCRIBE, TOPIC, quiet=True)
READ: Final = Need(_O.READ, TOPIC)
READ_QUIETLY: Final = Need(_O.READ, TOPIC, quiet=True)
DESCRIBE_CONFIGS_QUIETLY: Final = Need(_O.DESCRIBE_CONFIGS, TOPIC, quiet=True)
DESCRIBE_GROUP: Final = Need(_O.DESCRIBE, GROUP)
DESCRIBE_ID: Final = Need(_O.DESCRIBE, TRANSACTIONAL_ID)
DESCRIBE_ID_QUIETLY: Final = Need(_O.DESCRIBE, TRANSACTIONAL_ID, quiet=True)
DESCRIBE_GROUP_QUIETLY: Final = Need(_O.DESCRIBE, GROUP, quiet=True)
DESCRIBE_CLUSTER_QUIETLY: Final = Need(_O.DESCRIBE, CLUSTER, quiet=True)
ALTER: Final = Need(_O.ALTER, TOPIC)
READ_SUBJECT: Final = OfSubject(_O.DESCRIBE)
SHOW_SUBJECT: Final = OfSubject(_O.DESCRIBE, quiet=True)
WRITE_SUBJECT: Final = OfSubject(_O.ALTER)
READ_SETTINGS: Final = OfSubject(_O.DESCRIBE_CONFIGS)
WRITE_SETTINGS: Final = OfSubject(_O.ALTER_CONFIGS)

DRAIN_PATH: Final = "/admin/drain"
SCRUB_PATH: Final = "/admin/scrub"
_TOPIC: Final = "the topic"
_CLUSTER: Final = "the cluster"
_RESTORABLE: Final = (
    "the topic; Alter of the cluster where it is deleted, of the topic for what it holds below log starts; "
    "clearance where it redacts"
)
_SUBJECT: Final = "the subject's topic, else the cluster"
_HOLDERS: Final = "a subject that has the schema"
_EACH: Final = "each subject's topic, else the cluster"

_ADMIN: Final[Mapping[tuple[str, str], Row]] = {
    ("GET", "/"): Row(None, "it leads to /status.html"),
    ("GET", "/livez"): Row(None, "probes know nobody"),
    ("GET", "/readyz"): Row(None, "probes know nobody"),
    ("GET", "/metrics"): Row(DESCRIBE_CLUSTER, "the cluster, unless `http.metrics_open`", by_itself=True),
    ("GET", "/status"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/status.html"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/status.json"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/admin/topics/{name}/schema"): Row(DESCRIBE, _TOPIC),
    ("POST", "/admin/topics/{name}/schema"): Row(
        ALTER, "the topic; and Describe of the subject that it shall follow"
    ),
    ("GET", "/admin/schemas/{name}"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/admin/topics/{name}/damaged"): Row(DESCRIBE, _TOPIC),
    ("GET", "/admin/topics/{name}/skipped"): Row(DESCRIBE, _TOPIC),
    ("POST", "/admin/topics/{name}/skipped"): Row(ALTER, _TOPIC),
    ("GET", "/admin/topics/{name}/held"): Row(DESCRIBE, _TOPIC),
    ("POST", "/admin/topics/{name}/held/undelete"): Row(ALTER, _TOPIC),
    ("POST", "/admin/topics/{name}/held/purge"): Row(Need(_O.DELETE, TOPIC), _TOPIC),
    ("GET", "/admin/deleted-topics"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("POST", "/admin/deleted-topics/undelete"): Row(ALTER_CLUSTER, _CLUSTER),
    ("POST", "/admin/deleted-topics/purge"): Row(ALTER_CLUSTER, _CLUSTER),
    ("GET", "/admin/restorable/{name}"): Row(READ, _RESTORABLE, by_itself=True),
    ("GET", "/admin/restorable/{name}/batches"): Row(READ, _RESTORABLE, by_itself=True),
    ("GET", "/admin/restorable/{name}/rows"): Row(READ, _RESTORABLE, by_itself=True),
    ("GET", "/admin/restorable/{name}/file"): Row(READ, _RESTORABLE, by_itself=True),
    ("GET", "/admin/acls/unallowed"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", DRAIN_PATH): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("POST", DRAIN_PATH): Row(ALTER_CLUSTER, _CLUSTER),
    ("GET", SCRUB_PATH): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("POST", SCRUB_PATH): Row(ALTER_CLUSTER, _CLUSTER),
}
_SAME: Final = "the same for all"
_CONSOLE: Final[Mapping[tuple[str, str], Row]] = {
    ("GET", "/console"): Row(
        DESCRIBE_CLUSTER_QUIETLY, "the cluster; groups that may be described are shown to all", by_itself=True
    ),
    ("GET", "/console/topics"): Row(DESCRIBE_QUIETLY, "each topic", by_itself=True),
    ("GET", "/console/topics/{name}"): Row(DESCRIBE, f"{_TOPIC}; DescribeConfigs for its configs"),
    ("GET", "/console/topics/{name}/records"): Row(READ, _TOPIC),
    ("GET", "/console/topics/{name}/life"): Row(READ, _TOPIC),
    ("GET", "/console/deleted-topics"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/console/groups"): Row(DESCRIBE_GROUP_QUIETLY, "each group", by_itself=True),
    ("GET", "/console/group"): Row(DESCRIBE_GROUP, "the group, and each topic in it", by_itself=True),
    ("GET", "/console/transactions"): Row(DESCRIBE_ID_QUIETLY, "each transactional id", by_itself=True),
    ("GET", "/console/transaction"): Row(
        DESCRIBE_ID, "the transactional id, and each topic and group in it", by_itself=True
    ),
    ("GET", "/console/tables"): Row(DESCRIBE_QUIETLY, "each table's topic", by_itself=True),
    ("GET", "/console/table"): Row(
        DESCRIBE,
        "the table's topic, as [the catalog](#the-catalog-tokens-tables-keys-of-the-bucket) asks; "
        "and Read for its rows",
        by_itself=True,
    ),
    ("GET", "/console/schemas"): Row(SHOW_SUBJECT, "each subject's topic, else the cluster", by_itself=True),
    ("GET", "/console/schema"): Row(READ_SUBJECT, "the subject's topic, else the cluster", by_itself=True),
    ("GET", "/console/acls"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/console/alarms"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/console/trail"): Row(DESCRIBE_CLUSTER, _CLUSTER),
    ("GET", "/console/topics/{name}/export"): Row(READ, _TOPIC),
    ("GET", "/console/console.css"): Row(None, _SAME),
    ("GET", "/console/console.js"): Row(None, _SAME),
}
CHANGES: Final[Mapping[str, tuple[Row, Row]]] = {
    "topic-create": (
        Row(None, "an empty form"),
        Row(Need(_O.CREATE, TOPIC), "the topic, or Create of the cluster", by_itself=True),
    ),
    "topic-configs": (
        Row(Need(_O.DESCRIBE_CONFIGS, TOPIC), _TOPIC, by_itself=True),
        Row(Need(_O.ALTER_CONFIGS, TOPIC), f"{_TOPIC}, and what its form asks for", by_itself=True),
    ),
    "topic-partitions": (
        Row(DESCRIBE, _TOPIC, by_itself=True),
        Row(ALTER, f"{_TOPIC}, and Describe", by_itself=True),
    ),
    "topic-delete": (
        Row(DESCRIBE, _TOPIC, by_itself=True),
        Row(Need(_O.DELETE, TOPIC), f"{_TOPIC}, and Describe", by_itself=True),
    ),
    "topic-undelete": (
        Row(DESCRIBE_CLUSTER, _CLUSTER, by_itself=True),
        Row(ALTER_CLUSTER, f"{_CLUSTER}, and Describe", by_itself=True),
    ),
    "records-delete": (
        Row(DESCRIBE, _TOPIC, by_itself=True),
        Row(Need(_O.DELETE, TOPIC), f"{_TOPIC}, and Describe", by_itself=True),
    ),
    "group-reset": (
        Row(DESCRIBE_GROUP, "the group", by_itself=True),
        Row(Need(_O.READ, GROUP), "the group, and each topic", by_itself=True),
    ),
    "group-delete": (
        Row(DESCRIBE_GROUP, "the group", by_itself=True),
        Row(Need(_O.DELETE, GROUP), "the group, and Describe", by_itself=True),
    ),
    "acl-create": (
        Row(None, "an empty form"),
        Row(ALTER_CLUSTER, f"{_CLUSTER}, and Describe", by_itself=True),
    ),
    "acl-delete": (
        Row(None, "an empty form"),
        Row(ALTER_CLUSTER, f"{_CLUSTER}, and Describe", by_itself=True),
    ),
    "subject-level": (
        Row(READ_SUBJECT, _SUBJECT, by_itself=True),
        Row(WRITE_SETTINGS, f"{_SUBJECT}; and Describe", by_itself=True),
    ),
}
"""Of each change that the console makes: what its form asks for, and what the change does."""
CHANGE_PATH: Final = "/console/change/"
_CHANGED: Final[Mapping[tuple[str, str], Row]] = {
    (method, f"{CHANGE_PATH}{name}"): row
    for name, rows in CHANGES.items()
    for method, row in zip(("GET", "POST"), rows, strict=True)
}
_CATALOG: Final = Row(
    DESCRIBE,
    "each table's topic, and more by what is done: "
    "see [the catalog](#the-catalog-tokens-tables-keys-of-the-bucket)",
    by_itself=True,
)

_SUBJECTS: Final = "/subjects/{subject:path}"
_VERSION: Final = f"{_SUBJECTS}/versions/{{version}}"
_TESTED: Final = "/compatibility/subjects/{subject:path}/versions"
_REGISTRY: Final[Mapping[tuple[str, str], Row]] = {
    ("GET", "/subjects"): Row(SHOW_SUBJECT, _EACH, by_itself=True),
    ("GET", f"{_VERSION}/schema"): Row(READ_SUBJECT, _SUBJECT),
    ("GET", f"{_VERSION}/referencedby"): Row(READ_SUBJECT, _SUBJECT),
    ("GET", _VERSION): Row(READ_SUBJECT, _SUBJECT),
    ("DELETE", _VERSION): Row(WRITE_SUBJECT, _SUBJECT),
    ("GET", f"{_SUBJECTS}/versions"): Row(READ_SUBJECT, _SUBJECT),
    ("GET", f"{_SUBJECTS}/metadata"): Row(READ_SUBJECT, _SUBJECT),
    ("POST", f"{_SUBJECTS}/versions"): Row(
        WRITE_SUBJECT, f"{_SUBJECT}; Describe is enough for a schema that it has", by_itself=True
    ),
    ("POST", _SUBJECTS): Row(READ_SUBJECT, _SUBJECT),
    ("DELETE", _SUBJECTS): Row(WRITE_SUBJECT, _SUBJECT),
    ("GET", "/schemas/types"): Row(None, "the same for all"),
    ("GET", "/schemas/ids/{id}/schema"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas/ids/{id}/subjects"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas/ids/{id}/versions"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas/ids/{id}"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas/guids/{guid}/ids"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas/guids/{guid}"): Row(READ_SUBJECT, _HOLDERS, by_itself=True),
    ("GET", "/schemas"): Row(SHOW_SUBJECT, _EACH, by_itself=True),
    ("POST", f"{_TESTED}/{{version}}"): Row(READ_SUBJECT, _SUBJECT),
    ("POST", _TESTED): Row(READ_SUBJECT, _SUBJECT),
    ("POST", "/admin/subjects/{subject:path}/rules"): Row(READ_SUBJECT, _SUBJECT),
    ("POST", f"/admin{_SUBJECTS}/impact"): Row(
        READ_SUBJECT, f"{_SUBJECT}; topics and groups that may not be described are not shown"
    ),
    ("GET", "/v1/metadata/id"): Row(None, "the cluster's name, as clients are told it"),
    ("GET", "/v1/metadata/version"): Row(None, "the same for all"),
    ("GET", "/contexts"): Row(
        DESCRIBE_CLUSTER_QUIETLY, "the cluster, for others than the default one", by_itself=True
    ),
    **{
        (method, f"/{kind}{end}"): Row(need, where)
        for kind in ("config", "mode")
        for end, where in (("", _CLUSTER), ("/{subject:path}", _SUBJECT))
        for method, need in (("GET", READ_SETTINGS), ("PUT", WRITE_SETTINGS), ("DELETE", WRITE_SETTINGS))
    },
}

_CONTEXT: Final = "/contexts/{context}"
CATALOG_PATH: Final = "/iceberg/{path:path}"
TOKENS_PATH: Final = "/iceberg/v1/oauth/tokens"
TABLE: Final[Mapping[tuple[str, str], Row]] = {
    **_ADMIN,
    **_CONSOLE,
    **_CHANGED,
    **_REGISTRY,
    ("POST", TOKENS_PATH): Row(None, "the login itself"),
    ("", CATALOG_PATH): _CATALOG,
}
"""Every row, by method and template of the path; of the registry also those of one context."""


def row_of(method: str, path: str) -> Row:
    """Of a route. KeyError: add a row."""
    inside = path.removeprefix(_CONTEXT) if path.startswith(f"{_CONTEXT}/") else path
    return TABLE[("" if inside == CATALOG_PATH else method), inside]
