"""No command can put a number into the state that a snapshot cannot hold, and none is cut without a need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from coordination.commands import (
    AllocateProducerIds,
    AlterTopicConfigs,
    BindSchema,
    CommitChunk,
    CreatePartitions,
    DowngradeConsumerGroup,
    PutClassicGeneration,
    PutSubjectSettings,
    RegisterAgent,
    RegisterSchema,
    SetFeatureLevel,
)
from coordination.kafka_codes import Code
from coordination.proto import log_pb2, snapshot_pb2
from coordination.snapshot import decode, encode
from coordination.state import ChunkCommitted, Done, Refused
from coordination.state import bounds as kept
from coordination.state.bounds import Bounds, of
from coordination.state.types import Broker
from tests.unit.coordination.bounds_reached import deleted_bytes, expire_ms, leader_epoch
from tests.unit.coordination.kit import A, Producer, Script, chunk
from tests.unit.coordination.reflect import plain

INT32, INT64, UINT32, UINT64 = (1 << 31) - 1, (1 << 63) - 1, (1 << 32) - 1, (1 << 64) - 1
NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32,
    FieldDescriptor.CPPTYPE_INT64,
    FieldDescriptor.CPPTYPE_UINT32,
    FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_ENUM,
}


@dataclass(frozen=True)
class Copied:
    """Taken as it is out of these fields of log.proto."""

    fields: tuple[str, ...]


@dataclass(frozen=True)
class Given:
    """By the log itself, which counts revisions in int64 and names incarnations in uint64; or checked against
    a table of this code. Why it fits."""

    why: str


@dataclass(frozen=True)
class Counted:
    """One more with each command or row, from zero: no cluster lives long enough. Of what."""

    what: str


@dataclass(frozen=True)
class Bounded:
    """Computed, and bounded by this name in coordination/state/bounds.py; `REACHED` drives it to its end."""

    name: str


Origin = Copied | Given | Counted | Bounded


def copied(*fields: str) -> Copied:
    """A row of the table below."""
    return Copied(fields)


REVISION = Given("a revision of the log, an int64 in etcd")
INCARNATION = Given("an incarnation, a uint64 in the log")
STAMP = copied("Entry.proposed_ms")
HANDLE = Bounded("HANDLES")
OFFSET = Bounded("OFFSET_MAX")
PRODUCER = Bounded("PRODUCER_ID_MAX")
EPOCH = Given("at most transaction_owner.EPOCH_MAX + 1, or a client's, copied")

ORIGINS: dict[str, Origin] = {
    "Listener.port": copied("Listener.port"),
    "Incarnation.incarnation": INCARNATION,
    "Incarnation.node_id": Bounded("NODE_ID"),
    "Incarnation.sequence": Given("a sequence, a uint64 in the log"),
    "Incarnation.applied_revision": copied("Entry.applied_revision"),
    "Incarnation.registered_revision": REVISION,
    "Incarnation.last_revision": REVISION,
    "Incarnation.last_proposed_ms": STAMP,
    "Incarnation.fenced_revision": REVISION,
    "Incarnation.next_chunk_number": Bounded("CHUNK_NUMBER"),
    "Incarnation.feature_min": copied("RegisterAgent.feature_min"),
    "Incarnation.feature_max": copied("RegisterAgent.feature_max"),
    "NodeId.node_id": Bounded("NODE_ID"),
    "Claim.incarnation": INCARNATION,
    "Claim.revision": REVISION,
    "Snapshot.revision": copied("RecordSnapshot.revision"),
    "Snapshot.size": copied("RecordSnapshot.size"),
    "Head.revision": REVISION,
    "Head.feature_level": copied("SetFeatureLevel.level", "UpdateFeatures.Update.level"),
    "Head.bound_revision": REVISION,
    "Topic.bound_revision": REVISION,
    "Head.handles": HANDLE,
    "Head.next_chunk_serial": Counted("chunks"),
    "Head.next_producer_id": PRODUCER,
    "Head.next_schema_id": Bounded("SCHEMA_ID_MAX"),
    "Head.next_node_id": Bounded("NODE_ID"),
    "Head.leader_epoch": Bounded("LEADER_EPOCH"),
    "Head.trimmed_through": copied("Trim.through"),
    "Head.clock_ms": Given("an Entry.proposed_ms, or an earlier time, and never below 0"),
    "Head.clock_doubt_revision": REVISION,
    "Head.clock_doubt_rounds": Given("at most agreed_time.ROUNDS"),
    "Head.clock_doubt_ms": Given("below agreed_time.TRUST_MS"),
    "Topic.created_ms": STAMP,
    "Topic.value_schema_id": Bounded("SCHEMA_ID_MAX"),
    "Topic.key_schema_id": Bounded("SCHEMA_ID_MAX"),
    "Partition.handle": HANDLE,
    "PartitionRest.handle": HANDLE,
    "Partition.log_start": OFFSET,
    "Partition.high_watermark": OFFSET,
    "Partition.first_offset": OFFSET,
    "PartitionTransactions.open_producer_id": PRODUCER,
    "PartitionTransactions.open_first_offset": OFFSET,
    "PartitionTransactions.aborted_producer_id": PRODUCER,
    "PartitionTransactions.aborted_first_offset": OFFSET,
    "PartitionTransactions.aborted_marker_offset": OFFSET,
    "MergedRange.incarnation": INCARNATION,
    "MergedRange.number": copied("SwapSegments.number"),
    **{
        f"MergedRange.{name}": copied(f"MergedRange.{name}")
        for name in (
            *("start_offset", "end_offset", "size_bytes", "records", "segments", "manifest_bytes"),
            *("max_timestamp_ms", "first_end_offset", "first_size_bytes", "first_max_timestamp_ms"),
            *("first_dirty_offset", "clean_bytes", "first_dirty_ms"),
        )
    },
    "SegmentGarbage.incarnation": copied("SegmentId.incarnation"),
    "SegmentGarbage.partition": HANDLE,
    "SegmentGarbage.number": copied("SegmentId.number"),
    "SegmentGarbage.since_ms": STAMP,
    "ManifestGarbage.incarnation": INCARNATION,
    "ManifestGarbage.partition": HANDLE,
    "ManifestGarbage.number": copied("SwapSegments.number"),
    "ManifestGarbage.since_ms": STAMP,
    "Producers.producer_id": copied("CommitChunk.producer_id"),
    "Producers.epoch": copied("CommitChunk.producer_epoch"),
    "Producers.last_sequence": Given("cut to 31 bits where it is computed, as Kafka's sequences wrap"),
    "Producers.floor_sequence": copied("CommitChunk.base_sequence"),
    "Producers.updated_ms": STAMP,
    "Producers.remembered": Given("at most 5"),
    "Producers.first_sequence": copied("CommitChunk.base_sequence"),
    "Producers.base_offset": OFFSET,
    "Schema.schema_id": Bounded("SCHEMA_ID_MAX"),
    "Schema.role": Given("an enumeration; none has a negative value (test_an_unknown_value_is_refused)"),
    "Schema.version": Bounded("SCHEMA_ID_MAX"),
    "Schema.framing": Given("an enumeration, as the role"),
    "Schema.subject_version": Bounded("SCHEMA_ID_MAX"),
    "Schema.naming": Given("types.Naming, from a table of this code"),
    "RegisteredSchema.schema_id": Bounded("SCHEMA_ID_MAX"),
    "RegisteredSchema.Reference.version": copied("SchemaReference.version"),
    "RegisteredSchema.depth": Given("at most subjects.DEPTH_MAX"),
    "Subject.revision": REVISION,
    "Subject.version": Bounded("SCHEMA_ID_MAX"),
    "Subject.schema_id": Bounded("SCHEMA_ID_MAX"),
    "Subject.changed": REVISION,
    "SubjectSettings.compatibility": Given("an enumeration, of which unknown values are refused"),
    "SubjectSettings.normalize": Given("an enumeration, as the one before"),
    "SubjectSettings.mode": Given("an enumeration, as the one before"),
    "Head.subject_settings_revision": REVISION,
    "Scram.Credential.mechanism": Given("one of scram.KEY_BYTES"),
    "Scram.Credential.iterations": Given("at most scram.ITERATIONS_MAX"),
    "Acls.revision": REVISION,
    "Acls.Acl.resource_type": Given("one of acl_types.ResourceType"),
    "Acls.Acl.pattern_type": Given("one of acl_types.PatternType"),
    "Acls.Acl.operation": Given("one of acl_types.Operation"),
    "Acls.Acl.permission": Given("one of acl_types.Permission"),
    "Quotas.changes": Counted("commands that changed quotas"),
    "DelegationTokens.Token.issued_ms": STAMP,
    "DelegationTokens.Token.expires_ms": Given("a stamp and at most delegation.PERIOD_MS_MAX"),
    "DelegationTokens.Token.ends_ms": Given("a stamp and at most delegation.PERIOD_MS_MAX"),
    "Table.revision": REVISION,
    "Table.next_offsets": copied("CommitTable.next_offsets"),
    "Chunks.serial": Counted("chunks"),
    "Chunks.incarnation": INCARNATION,
    "Chunks.number": Bounded("CHUNK_NUMBER"),
    "Chunks.references": Counted("batches of one chunk, whose command is at most 64 MiB"),
    "Garbage.incarnation": INCARNATION,
    "Garbage.number": Bounded("CHUNK_NUMBER"),
    "Garbage.since_ms": STAMP,
    "PendingChange.incarnation": INCARNATION,
    "PendingChange.id": copied("Begin.id"),
    "Group.revision": REVISION,
    "Group.state_ms": STAMP,
    "Group.committer": INCARNATION,
    "Group.committed_revision": REVISION,
    "ClassicGeneration.generation": Bounded("GENERATION"),
    "ClassicMember.session_timeout_ms": copied("ClassicMember.session_timeout_ms"),
    "ClassicMember.rebalance_timeout_ms": copied("ClassicMember.rebalance_timeout_ms"),
    "ConsumerGroup.group_epoch": copied("ChangeConsumerGroup.group_epoch"),
    "ConsumerGroup.assignment_epoch": copied("ChangeConsumerGroup.assignment_epoch"),
    "ConsumerGroup.assignment_ms": copied("ChangeConsumerGroup.assignment_ms"),
    "ConsumerMember.rebalance_timeout_ms": copied("ConsumerMember.rebalance_timeout_ms"),
    "ConsumerMember.session_timeout_ms": copied("ConsumerMember.session_timeout_ms"),
    "ConsumerMember.epoch": copied("ConsumerAssignment.epoch"),
    "ConsumerMember.previous_epoch": copied("ConsumerAssignment.previous_epoch"),
    "ConsumerMember.state": Given("one of MemberState, or the change is refused"),
    "GivenPartitions.partition": copied("GivenPartitions.partition"),
    "GivenPartitions.given_at": copied("GivenPartitions.given_at"),
    "GroupOffsets.partition": HANDLE,
    "GroupOffsets.offset": copied("CommitOffsets.offset", "CommitTransactionOffsets.offset"),
    "GroupOffsets.leader_epoch": copied(
        "CommitOffsets.leader_epoch", "CommitTransactionOffsets.leader_epoch"
    ),
    "GroupOffsets.committed_ms": STAMP,
    "GroupOffsets.metadata_of": HANDLE,
    "GroupOffsets.expiring": HANDLE,
    "GroupOffsets.expire_ms": Bounded("EXPIRE_MS"),
    "BindingSpans.offset_step": OFFSET,
    "BindingSpans.key_schema_id": Bounded("SCHEMA_ID_MAX"),
    "BindingSpans.value_schema_id": Bounded("SCHEMA_ID_MAX"),
    "SkippedRange.start": copied("SkipDamaged.start"),
    "SkippedRange.end": copied("SkipDamaged.end"),
    "SkippedRange.since_ms": STAMP,
    **dict.fromkeys(("HeldRange.start", "HeldRange.end"), OFFSET),
    "HeldRange.until_ms": Bounded("EXPIRE_MS"),
    "Tail.sections": Counted("sections of one snapshot"),
    "DeletedTopic.deleted_ms": STAMP,
    "DeletedTopic.until_ms": Bounded("EXPIRE_MS"),
    "DeletedTopic.size_bytes": Bounded("DELETED_BYTES"),
    **dict.fromkeys(("DeletedTopic.schemas", "DeletedTopic.weight"), Counted("what is in memory")),
    "Leaving.partitions": Counted("partitions of one snapshot"),
    "Feature.level": copied("UpdateFeatures.Update.level"),
    "Administration.features_epoch": Counted("changes of features"),
    "Transaction.producer_id": PRODUCER,
    "Transaction.producer_epoch": EPOCH,
    "Transaction.state": Given("one of Phase"),
    "Transaction.timeout_ms": copied("InitTransactions.timeout_ms"),
    "Transaction.started_ms": STAMP,
    "Transaction.updated_ms": STAMP,
    "Transaction.number": Counted("transactions of one id"),
    "Transaction.previous_id": copied("InitTransactions.producer_id"),
    "Transaction.previous_epoch": copied("InitTransactions.producer_epoch"),
    "Transaction.partition": HANDLE,
    "Transaction.End.incarnation": INCARNATION,
    "Transaction.End.connection": copied("Fence.connection"),
    "Transaction.End.revision": REVISION,
    "Transaction.Source.incarnation": INCARNATION,
    "Transaction.Source.connection": copied("Fence.connection"),
    "Transaction.Source.revision": REVISION,
    "PendingOffsets.partition": HANDLE,
    "PendingOffsets.offset": copied("CommitTransactionOffsets.offset"),
    "PendingOffsets.leader_epoch": copied("CommitTransactionOffsets.leader_epoch"),
    "PendingOffsets.committed_ms": STAMP,
    "PendingOffsets.revision": REVISION,
    "Extents.numbers": OFFSET,
}


def numbers(messages: Any) -> Iterator[tuple[str, FieldDescriptor]]:
    """Every field of whole numbers of a proto file, by "Message.field"."""

    def within(descriptor: Descriptor, prefix: str) -> Iterator[tuple[str, FieldDescriptor]]:
        for field in descriptor.fields:
            if field.cpp_type in NUMBERS:
                yield f"{prefix}{descriptor.name}.{field.name}", field
        for inner in descriptor.nested_types:
            yield from within(inner, f"{prefix}{descriptor.name}.")

    for descriptor in messages.DESCRIPTOR.message_types_by_name.values():
        yield from within(descriptor, "")


KEPT = dict(numbers(snapshot_pb2))
SAID = dict(numbers(log_pb2))


def test_every_number_of_a_snapshot_says_where_it_comes_from() -> None:
    """A new one needs a row: copied from where, counted from what, or computed and bounded by what."""
    assert sorted(KEPT.keys() - ORIGINS.keys()) == []


COPIES = [
    (name, source)
    for name, origin in ORIGINS.items()
    if isinstance(origin, Copied) and name in KEPT
    for source in origin.fields
]


@pytest.mark.parametrize(("name", "source"), COPIES, ids=[f"{name} from {source}" for name, source in COPIES])
def test_what_is_copied_fits(name: str, source: str) -> None:
    into, out_of = of(KEPT[name]), of(SAID[source])
    assert into.low <= out_of.low <= out_of.high <= into.high


# What is computed, driven to its end: each gives what came of it. The snapshot is looked at by the test.


def node_id(script: Script) -> None:
    """The highest there is leaves room for others: their ids are the lowest that nobody has."""
    last = RegisterAgent(name="last", node_id=INT32, feature_min=1, feature_max=2)
    assert script.one(20, last) == Done(INT32)
    assert script.state.next_node_id == INT32
    taken = {broker.node_id for broker in script.state.brokers.values()}
    free = next(number for number in range(1, 9) if number not in taken)
    assert script.register(21) == Done(free)
    assert script.register(22) == Done(free + 1)
    script.through_snapshot()
    assert script.register(23) == Done(free + 2)
    assert script.one(24, last) == Done(INT32), "the same name, a new run"
    names = {broker.node_id: broker.name for broker in script.state.brokers.values()}
    assert len(names) == len({broker.name for broker in script.state.brokers.values()}) == 6
    assert isinstance(script.state.brokers[INT32], Broker)


def chunk_number(script: Script) -> None:
    for number, taken in ((UINT64, False), (UINT64 - 1, True)):
        result = script.one(A, chunk(number, (0, 1)))
        assert isinstance(result, ChunkCommitted if taken else Refused), result
    assert script.state.incarnations[A].next_chunk_number == UINT64


def position(script: Script) -> None:
    """Of rows one behind the other, and of one row that grows."""
    for handles in ([0, 1], [0, 0]):
        message = CommitChunk(
            number=9,
            size=UINT64,
            first_position=UINT32,
            partition=handles,
            length=[UINT32, UINT32],
            offsets=[1, 1],
            max_timestamp_ms=[0, 0],
        )
        result = script.one(A, message)
        assert isinstance(result, Refused)
        assert "no row holds more" in result.message
    assert script.state.partitions[0].high_watermark == 0


def offset_max(script: Script) -> None:
    """A batch that would leave the bounds is refused alone; the markers of transactions still find room."""
    script.state.partitions[0].high_watermark = script.state.partitions[0].slices.first_offset = (
        kept.OFFSET_MAX - 3
    )
    producer = Producer(script, A, "tx")
    producer.init()
    assert producer.send(0, 3) == (0, kept.OFFSET_MAX - 3)
    answer = script.commit(A, (0, 1), (1, 1), (0, 1, 77, 0, 0))
    assert answer.errors == [int(Code.UNKNOWN_SERVER_ERROR), 0, int(Code.UNKNOWN_SERVER_ERROR)]
    assert 77 not in script.state.partitions[0].producers
    assert isinstance(producer.end(commit=True), Done)
    assert script.state.partitions[0].high_watermark == kept.OFFSET_MAX + 1


def handles(script: Script) -> None:
    class Many(list[Any]):
        """Partitions of so many topics that came and went."""

        def __len__(self) -> int:
            return UINT32

    real = script.state.partitions
    script.state.partitions = Many(real)
    result = script.one(A, CreatePartitions(topic="t", total=9))
    script.state.partitions = real
    assert isinstance(result, Refused)
    assert result.code is Code.INVALID_PARTITIONS


def generation(script: Script) -> None:
    """Behind the highest comes 1: a member of before has another number all the same."""
    script.state.groups.clear()
    empty = PutClassicGeneration(group="c", protocol_type="consumer")
    assert script.one(A, empty) == Done((1, script.state.revision))
    group = script.state.groups["c"]
    for last, following in ((INT32 - 1, INT32), (INT32, 1)):
        group.classic = downgraded(last)
        again = PutClassicGeneration(group="c", protocol_type="consumer", expected_revision=group.revision)
        assert script.one(A, again) == Done((following, script.state.revision))


def downgraded(number: int) -> Any:
    """The generation of a group that spoke KIP-848 until its epoch was `number`."""
    from coordination.state.group_types import ClassicGeneration

    assert DowngradeConsumerGroup(generation=number).generation == number, "the log can say it"
    return ClassicGeneration(number, "consumer", "", "", True, {})


def producer_id_max(script: Script) -> None:
    script.state.next_producer_id = kept.PRODUCER_ID_MAX - 1
    assert script.one(A, AllocateProducerIds(count=1)) == Done(kept.PRODUCER_ID_MAX - 1)
    assert isinstance(script.one(A, AllocateProducerIds(count=1)), Refused)
    producer = Producer(script, A, "tx")
    assert producer.init() == (kept.PRODUCER_ID_MAX, 0), "who comes alone still gets one: they are few"
    assert producer.send(0) == (0, 0)
    assert isinstance(producer.end(commit=False), Done)


def schema_id_max(script: Script) -> None:
    bind = BindSchema(topic="t", descriptor_set=b"x", message="m")
    script.state.next_schema_id = kept.SCHEMA_ID_MAX
    assert script.one(A, bind) == Done(kept.SCHEMA_ID_MAX)
    result = script.one(A, BindSchema(topic="t", descriptor_set=b"y", message="m"))
    assert isinstance(result, Refused)
    assert result.code is Code.POLICY_VIOLATION
    schema = RegisterSchema(subject="s", schema_type="T", canonical=b"c", judged_revision=INT32)
    result = script.one(A, schema)
    assert isinstance(result, Refused)
    assert result.code is Code.POLICY_VIOLATION
    script.one(A, PutSubjectSettings(mode=PutSubjectSettings.IMPORT))
    schema.schema_id, schema.version = 7, kept.SCHEMA_ID_MAX
    assert script.one(A, schema) == Done((7, kept.SCHEMA_ID_MAX))
    script.one(A, PutSubjectSettings(mode=PutSubjectSettings.READWRITE))
    schema.schema_id, schema.version, schema.canonical = 0, 0, b"d"
    result = script.one(A, schema)
    assert isinstance(result, Refused), "there is no version behind the highest"


REACHED: dict[str, Callable[[Script], None]] = {
    each.__name__.upper(): each
    for each in (
        *(deleted_bytes, expire_ms, node_id, chunk_number, position, offset_max, handles, generation),
        *(producer_id_max, schema_id_max, leader_epoch),
    )
}


@pytest.mark.parametrize("name", REACHED)
def test_what_is_computed_stays_in_its_bounds(name: str, script: Script) -> None:
    """And what comes of it can be saved and loaded."""
    script.topic(A, "t", 2)
    REACHED[name](script)
    loaded = decode(encode(script.state))
    assert plain(loaded) == plain(script.state)


def test_every_bound_is_reached_once() -> None:
    named = {name for name, value in vars(kept).items() if isinstance(value, Bounds) or name.endswith("_MAX")}
    assert named == set(REACHED)
    assert {origin.name for origin in ORIGINS.values() if isinstance(origin, Bounded)} <= set(REACHED)


def test_a_clock_before_1970_can_be_saved() -> None:
    """The log's clock begins at 0, also where a level begins with what the agents say."""
    script = Script()
    script.now_ms = -INT64 - 1
    script.register(A, level=1)
    script.state.incarnations[A].feature_max = 2
    assert script.one(A, SetFeatureLevel(level=2)) == Done(2)
    assert decode(encode(script.state)).clock_ms == 0


@pytest.mark.parametrize("field", ["role", "framing"])
@pytest.mark.parametrize("level", [1, 2])
def test_an_unknown_value_is_refused(field: str, level: int) -> None:
    """Of an enumeration: a negative one at every level, since no snapshot holds it."""
    script = Script()
    script.register(A, level=1)
    script.topic(A, "t")
    script.state.incarnations[A].feature_max = 2
    if level > 1:
        script.one(A, SetFeatureLevel(level=level))
    for value in (-1, -INT32 - 1, *((7,) if level > 1 else ())):
        bind = BindSchema(topic="t", descriptor_set=b"x", message="m")
        setattr(bind, field, value)
        result = script.one(A, bind)
        assert isinstance(result, Refused)
        assert result.code is Code.INVALID_REQUEST
    decode(encode(script.state))


@pytest.mark.parametrize(("level", "code"), [(1, Code.INVALID_CONFIG), (2, Code.INVALID_REQUEST)])
def test_an_unknown_operation_is_refused(level: int, code: Code) -> None:
    """It raised where a config is no list."""
    (script := Script()).register(A, level=1)
    script.topic(A, "t")
    script.state.incarnations[A].feature_max = 2
    if level > 1:
        script.one(A, SetFeatureLevel(level=level))
    change = AlterTopicConfigs.Change(name="retention.ms", value="5", operation=9)  # type: ignore[arg-type]  # none has it
    result = script.one(A, AlterTopicConfigs(topic="t", changes=[change]))
    assert isinstance(result, Refused)
    assert result.code is code
