"""What commands of the log change, as the audit log tells it: one table, by the command's type.

A command that is not in it is nobody's administration: records, positions, members, jobs of agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message

from coordination.commands import (
    AbortTransaction,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    BindSchema,
    CommitTable,
    CommitTables,
    CreateAcls,
    CreateDelegationToken,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteGroups,
    DeleteOffsets,
    DeleteSchemaVersions,
    DeleteScramCredential,
    DeleteTopic,
    DropNamespace,
    DropTable,
    ExpireDelegationToken,
    MoveLogStart,
    PurgeRecords,
    PurgeTopics,
    PutNamespace,
    PutScramCredential,
    PutSubjectSettings,
    RegisterSchema,
    RenewDelegationToken,
    SkipDamaged,
    UndeleteRecords,
    UndeleteTopic,
    UpdateFeatures,
)
from coordination.kafka_codes import Code
from coordination.state.acl_types import Operation, PatternType, Permission, ResourceType, spoken
from coordination.state.state import State

_M = TypeVar("_M", bound=Message)

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ACLS_MAX = 100
"""ACLs of one event; a command with more is several."""

LISTED_MAX = 20
"""Configs, or partitions, of one command that its detail names."""


class Acl(NamedTuple):
    """One ACL, by Kafka's names (schema/proto/audit.proto)."""

    resource_type: str
    pattern_type: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str


class Change(NamedTuple):
    """What somebody did, or wanted to do, to what."""

    operation: str
    resource_type: str
    resource: str
    detail: str = ""
    outcome: str = ""
    """Where one command has an outcome for each of its changes; empty: the command's."""
    added: Sequence[Acl] = ()
    removed: Sequence[Acl] = ()


def changes_of(message: Message, value: object = None) -> Sequence[Change]:
    """What a command changes; nothing where it is not administration. `value`: of its result, when Done."""
    if isinstance(message, DeleteGroups):
        return _groups_deleted(message, value)
    if isinstance(message, DeleteAcls):
        return _acls_deleted(message, value)
    make = _MADE.get(type(message))
    return () if make is None else make(message)


def named(message: Message, state: State) -> Message | Sequence[Change]:
    """The same of a command that names things by numbers, which the state explains; else the command, or
    nothing where it is not administration.
    """
    explain = _EXPLAINED.get(type(message))
    if explain is not None:
        return explain(message, state)
    return message if type(message) in _MADE or isinstance(message, DeleteGroups | DeleteAcls) else ()


def _configs(changes: Sequence[Any], replace_all: bool) -> str:
    told = [
        f"{each.name}={each.value}" if each.operation == 0 else f"{each.name} {_OPERATIONS[each.operation]}"
        for each in changes[:LISTED_MAX]
    ]
    more = f"; {len(changes) - LISTED_MAX} more" if len(changes) > LISTED_MAX else ""
    return ("all anew: " if replace_all else "") + ", ".join(told) + more


_OPERATIONS = {1: "deleted", 2: "appended to", 3: "subtracted from"}


def _created(message: CreateTopic) -> list[Change]:
    configs = ", ".join(f"{each.name}={each.value}" for each in message.configs[:LISTED_MAX])
    return [
        Change("CreateTopic", "Topic", message.name, f"partitions={message.partitions} {configs}".strip())
    ]


def _bound(message: BindSchema) -> list[Change]:
    role = BindSchema.Role.Name(message.role).lower()
    to = "nothing" if message.unbind else message.subject or message.message
    return [Change("BindSchema", "Topic", message.topic, f"{role} to {to}")]


def _updated(message: UpdateFeatures) -> list[Change]:
    told = ", ".join(f"{each.name}={each.level}" for each in message.updates[:LISTED_MAX])
    return [Change("UpdateFeatures", "Cluster", "", told)]


def _deleted_versions(message: DeleteSchemaVersions) -> list[Change]:
    which = ", ".join(map(str, message.version[:LISTED_MAX])) or "all"
    how = " for good" if message.permanent else ""
    return [Change("DeleteSchemaVersions", "Subject", message.subject, f"versions {which}{how}")]


def _dropped(message: DropTable) -> list[Change]:
    if message.claim:
        return []  # an agent gives a topic's table its name
    name = f"{message.namespace}.{message.name}"
    renamed = f"{message.rename_namespace}.{message.rename_name}" if message.rename_namespace else ""
    return [Change("RenameTable" if renamed else "DropTable", "Table", name, renamed)]


def _committed(message: CommitTable) -> list[Change]:
    """Of the catalog's clients: what agents commit is not told."""
    operation = "CommitTable" if message.expected else "CreateTable"
    return [Change(operation, "Table", f"{message.namespace}.{message.name}")]


def _committed_together(message: CommitTables) -> list[Change]:
    return [
        Change("CommitTable" if each.expected else "CreateTable", "Table", f"{each.namespace}.{each.name}")
        for each in message.moves
    ]


def _put_namespace(message: PutNamespace) -> list[Change]:
    operation = "CreateNamespace" if message.must_not_exist else "AlterNamespace"
    return [Change(operation, "Namespace", message.name)]


def _registered(message: RegisterSchema) -> list[Change]:
    return [Change("RegisterSchema", "Subject", message.subject, message.schema_type)]


def _settings(message: PutSubjectSettings) -> list[Change]:
    kinds = PutSubjectSettings.DESCRIPTOR.fields
    told = [each.name for each in kinds if each.name != "scope" and getattr(message, each.name)]
    return [Change("PutSubjectSettings", "Subject", message.scope, ", ".join(told))]


def _credential(operation: str) -> Callable[[Any], list[Change]]:
    """Never what it consists of."""
    return lambda message: [
        Change(operation, "User", message.user, MECHANISMS.get(message.mechanism, str(message.mechanism)))
    ]


def _groups_deleted(message: DeleteGroups, value: object) -> list[Change]:
    """Each with the code that its group has in the result."""
    codes = value if isinstance(value, tuple) else [None] * len(message.group)
    return [
        Change("DeleteGroup", "Group", group, outcome="" if code is None else Code(code).name)
        for group, code in zip(message.group, codes, strict=True)
    ]


_RESOURCES, _OPERATIONS_OF_ACLS = (
    {int(each): spoken(each.name) for each in kind} for kind in (ResourceType, Operation)
)
_PATTERNS, _PERMISSIONS = ({int(each): each.name for each in kind} for kind in (PatternType, Permission))


def _acl(bound: Any) -> Acl:
    """By names; a number that has none stays one, for a command that was refused may have any."""
    return Acl(
        _RESOURCES.get(bound.resource_type, str(bound.resource_type)),
        _PATTERNS.get(bound.pattern_type, str(bound.pattern_type)),
        bound.name,
        bound.principal,
        bound.host,
        _OPERATIONS_OF_ACLS.get(bound.operation, str(bound.operation)),
        _PERMISSIONS.get(bound.permission, str(bound.permission)),
    )


def _of_acls(operation: str, bound: Sequence[Any], *, added: bool) -> list[Change]:
    """Some at a time: an event stays small."""
    found = list(map(_acl, bound))
    pieces = [found[at : at + ACLS_MAX] for at in range(0, len(found), ACLS_MAX)] or [[]]
    told = [Change(operation, "Cluster", "", _shown(some)) for some in pieces]
    if added:
        return [change._replace(added=some) for change, some in zip(told, pieces, strict=True)]
    return [change._replace(removed=some) for change, some in zip(told, pieces, strict=True)]


def _shown(acls: Sequence[Acl]) -> str:
    told = [
        f"{each.permission} {each.principal} {each.operation} {each.resource_type} {each.pattern_type} "
        f"{each.name} from {each.host}"
        for each in acls[:LISTED_MAX]
    ]
    return "; ".join(told) + _more(acls)


def _acls_deleted(message: DeleteAcls, value: object) -> list[Change]:
    """Those that were there: what each filter matched is in the result."""
    matched = value if isinstance(value, tuple) else ()
    return _of_acls("DeleteAcls", list(dict.fromkeys(acl for each in matched for acl in each)), added=False)


def _quotas_altered(message: AlterClientQuotas) -> list[Change]:
    given = [name for name in ("user", "client_id", "ip") if message.HasField(name)]
    parts = [(name, getattr(message, name)) for name in given]
    entity = ", ".join(f"{name.replace('_', '-')}={value or '<default>'}" for name, value in parts)
    told = [
        f"{each.key} removed" if each.remove else f"{each.key}={each.value:g}" for each in message.changes
    ]
    return [Change("AlterClientQuotas", "ClientQuotas", entity, ", ".join(told))]


_MADE: Mapping[type[Message], Callable[[Any], Sequence[Change]]] = {
    CreateTopic: _created,
    CreatePartitions: lambda m: [Change("CreatePartitions", "Topic", m.topic, f"partitions={m.total}")],
    AlterTopicConfigs: lambda m: [
        Change("AlterConfigs", "Topic", m.topic, _configs(m.changes, m.replace_all))
    ],
    AlterClusterConfigs: lambda m: [
        Change("AlterConfigs", "Cluster", "", _configs(m.changes, m.replace_all))
    ],
    AlterGroupConfigs: lambda m: [
        Change("AlterConfigs", "Group", m.group, _configs(m.changes, m.replace_all))
    ],
    UpdateFeatures: _updated,
    BindSchema: _bound,
    RegisterSchema: _registered,
    DeleteSchemaVersions: _deleted_versions,
    PutSubjectSettings: _settings,
    PutScramCredential: _credential("PutScramCredential"),
    DeleteScramCredential: _credential("DeleteScramCredential"),
    DropTable: _dropped,
    CommitTable: _committed,
    CommitTables: _committed_together,
    PutNamespace: _put_namespace,
    DropNamespace: lambda m: [Change("DropNamespace", "Namespace", m.name)],
    CreateAcls: lambda m: _of_acls("CreateAcls", m.acls, added=True),
    AlterClientQuotas: _quotas_altered,
    CreateDelegationToken: lambda m: [
        Change("CreateDelegationToken", "DelegationToken", m.token_id, f"owner User:{m.owner}")
    ],
    RenewDelegationToken: lambda m: [Change("RenewDelegationToken", "DelegationToken", m.token_id)],
    ExpireDelegationToken: lambda m: [Change("ExpireDelegationToken", "DelegationToken", m.token_id)],
    AbortTransaction: lambda m: [Change("AbortTransaction", "TransactionalId", m.transactional_id, "")],
}


def _topic_deleted(message: DeleteTopic, state: State) -> list[Change]:
    name = message.name
    if not name:
        topic = state.topics_by_id.get(message.topic_id)
        name = message.topic_id.hex() if topic is None else topic.name
    return [Change("DeleteTopic", "Topic", name, "")]


def _of_partitions(
    operation: str, handles: Sequence[int], offsets: Sequence[str], state: State, why: str = ""
) -> list[Change]:
    """One change for each topic, with what happens to its partitions."""
    told: dict[str, list[str]] = {}
    for handle, offset in zip(handles, offsets, strict=True):
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is not None:
            told.setdefault(partition.topic.name, []).append(f"{partition.index}{offset}")
    return [
        Change(operation, "Topic", name, f"{why}partitions {', '.join(some[:LISTED_MAX])}{_more(some)}")
        for name, some in told.items()
    ]


def _more(listed: Sequence[object]) -> str:
    return f" and {len(listed) - LISTED_MAX} more" if len(listed) > LISTED_MAX else ""


def _records_deleted(message: MoveLogStart, state: State) -> list[Change]:
    below = [" (all)" if offset < 0 else f" below {offset}" for offset in message.offset]
    return _of_partitions("DeleteRecords", message.partition, below, state)


def _records_undeleted(message: UndeleteRecords, state: State) -> list[Change]:
    to = [" (all that is held)" if offset < 0 else f" from {offset} on" for offset in message.offset]
    return _of_partitions("UndeleteRecords", message.partition, to, state)


def _records_purged(message: PurgeRecords, state: State) -> list[Change]:
    below = [" (all)" if offset < 0 else f" below {offset}" for offset in message.offset]
    return _of_partitions("PurgeRecords", message.partition, below, state)


def _positions_deleted(message: DeleteOffsets, state: State) -> list[Change]:
    nothing = [""] * len(message.partition)
    found = _of_partitions("DeleteOffsets", message.partition, nothing, state)
    told = "; ".join(f"{each.resource} {each.detail}" for each in found)
    return [Change("DeleteOffsets", "Group", message.group, told)]


def _skipped(message: SkipDamaged, state: State) -> list[Change]:
    ranges = [f" {start} to {end}" for start, end in zip(message.start, message.end, strict=False)]
    return _of_partitions("SkipDamaged", [message.partition] * len(ranges), ranges, state)


def _topic_undeleted(message: UndeleteTopic, state: State) -> list[Change]:
    found = state.deleted.get(message.topic_id)
    had = message.topic_id.hex() if found is None else found.topic.name
    renamed = bool(message.name) and message.name != had
    return [Change("UndeleteTopic", "Topic", message.name or had, f"it was {had}" if renamed else "")]


def _topics_purged(message: PurgeTopics, state: State) -> list[Change]:
    found = [(each, state.deleted.get(each)) for each in message.topic_id]
    names = [each.hex() if known is None else known.topic.name for each, known in found]
    return [Change("PurgeTopic", "Topic", name, "for good") for name in names]


_EXPLAINED: Mapping[type[Message], Callable[[Any, State], Sequence[Change]]] = {
    DeleteTopic: _topic_deleted,
    UndeleteTopic: _topic_undeleted,
    PurgeTopics: _topics_purged,
    MoveLogStart: _records_deleted,
    UndeleteRecords: _records_undeleted,
    PurgeRecords: _records_purged,
    DeleteOffsets: _positions_deleted,
    SkipDamaged: _skipped,
}
