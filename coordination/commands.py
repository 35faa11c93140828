"""Commands as values: the messages of log.proto and what wraps them.

Authors of commands import the messages from here, wrap each with `command` and hand them to
`Replica.submit`. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.message import Message

from coordination.proto.log_pb2 import (
    Abort,
    AbortTransaction,
    AclBinding,
    AddToTransaction,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    AssignClassicGeneration,
    Begin,
    BindSchema,
    ChangeConsumerGroup,
    ChunkId,
    Claim,
    ClassicMember,
    Command,
    Commands,
    CommitChunk,
    CommitOffsets,
    CommitTable,
    CommitTables,
    CommitTransactionOffsets,
    ConfigEntry,
    ConsumerAssignment,
    ConsumerMember,
    ConsumerTarget,
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
    DowngradeConsumerGroup,
    DropNamespace,
    DropTable,
    End,
    EndTransaction,
    EnterMetadata,
    Entry,
    ExpireDelegationToken,
    ExpireOffsets,
    ExpireProducers,
    ExpireTransactions,
    Fence,
    FenceIncarnation,
    ForgetChunks,
    ForgetSegments,
    GivenPartitions,
    Heartbeat,
    InitTransactions,
    JudgeAgent,
    LeaveMetadata,
    Listener,
    MergedRange,
    MoveLogStart,
    Part,
    PurgeRecords,
    PurgeTopics,
    PutClassicGeneration,
    PutNamespace,
    PutScramCredential,
    PutSubjectSettings,
    Quarantine,
    RecordSnapshot,
    RegisterAgent,
    RegisterSchema,
    ReleaseClaim,
    RenewDelegationToken,
    ReplaceClassicMember,
    SchemaReference,
    SegmentId,
    SetFeatureLevel,
    SkipDamaged,
    SwapSegments,
    Trim,
    UndeleteRecords,
    UndeleteTopic,
    UpdateFeatures,
)

ENTRY_FORMAT = 1  # Entry.format of what this code writes and reads

_FIELD_BY_TYPE: dict[str, str] = {
    field.message_type.full_name: field.name
    for field in Command.DESCRIPTOR.oneofs_by_name["kind"].fields
    if field.message_type is not None
}
KINDS: tuple[str, ...] = tuple(_FIELD_BY_TYPE.values())  # every kind of command this code knows


def command(message: Message) -> Command:
    """Wrap one of the messages above. Raises TypeError for a message that is no command."""
    field = _FIELD_BY_TYPE.get(message.DESCRIPTOR.full_name)
    if field is None:
        raise TypeError(f"{message.DESCRIPTOR.full_name} is not a command of the log")
    wrapped = Command()
    getattr(wrapped, field).CopyFrom(message)
    if wrapped.WhichOneof("kind") is None:  # an empty message: CopyFrom alone leaves the field unset
        getattr(wrapped, field).SetInParent()
    return wrapped


def config_entries(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Configs as they travel in CreateTopic and PutNamespace."""
    return [ConfigEntry(name=name, value=value) for name, value in configs.items()]


def split_large(wrapped: Iterable[Command], change_id: int, part_bytes_max: int) -> Iterator[Command]:
    """The commands as one multi-part change (rule 12): Begin, Parts of at most `part_bytes_max` bytes, End.

    End's result carries the results of the inner commands, in order.
    """
    content = Commands(commands=list(wrapped)).SerializeToString()
    yield command(Begin(id=change_id))
    positions = range(0, len(content), part_bytes_max)
    for index, position in enumerate(positions):
        yield command(Part(id=change_id, index=index, content=content[position : position + part_bytes_max]))
    yield command(End(id=change_id, parts=len(positions)))


__all__ = [
    "ENTRY_FORMAT",
    "KINDS",
    "Abort",
    "AbortTransaction",
    "AclBinding",
    "AddToTransaction",
    "AllocateProducerIds",
    "AlterClientQuotas",
    "AlterClusterConfigs",
    "AlterGroupConfigs",
    "AlterTopicConfigs",
    "AssignClassicGeneration",
    "Begin",
    "BindSchema",
    "ChangeConsumerGroup",
    "ChunkId",
    "Claim",
    "ClassicMember",
    "Command",
    "Commands",
    "CommitChunk",
    "CommitOffsets",
    "CommitTable",
    "CommitTables",
    "CommitTransactionOffsets",
    "ConfigEntry",
    "ConsumerAssignment",
    "ConsumerMember",
    "ConsumerTarget",
    "CreateAcls",
    "CreatePartitions",
    "CreateTopic",
    "DeleteAcls",
    "DeleteGroups",
    "DeleteOffsets",
    "DeleteSchemaVersions",
    "DeleteTopic",
    "DowngradeConsumerGroup",
    "DropNamespace",
    "DropTable",
    "End",
    "EndTransaction",
    "EnterMetadata",
    "Entry",
    "ExpireOffsets",
    "ExpireProducers",
    "ExpireTransactions",
    "Fence",
    "FenceIncarnation",
    "ForgetChunks",
    "ForgetSegments",
    "GivenPartitions",
    "Heartbeat",
    "InitTransactions",
    "JudgeAgent",
    "LeaveMetadata",
    "Listener",
    "MergedRange",
    "MoveLogStart",
    "Part",
    "PurgeRecords",
    "PurgeTopics",
    "PutClassicGeneration",
    "PutNamespace",
    "PutSubjectSettings",
    "Quarantine",
    "PutScramCredential",
    "DeleteScramCredential",
    "CreateDelegationToken",
    "RenewDelegationToken",
    "ExpireDelegationToken",
    "RecordSnapshot",
    "RegisterAgent",
    "RegisterSchema",
    "ReleaseClaim",
    "ReplaceClassicMember",
    "SchemaReference",
    "SegmentId",
    "SetFeatureLevel",
    "SkipDamaged",
    "SwapSegments",
    "Trim",
    "UndeleteRecords",
    "UndeleteTopic",
    "UpdateFeatures",
    "command",
    "config_entries",
    "split_large",
]
