"""The state as sections of a snapshot, taken without holding up the event loop.

Taking goes in two passes. `freeze` walks the state in short steps and notes what may change later:
bounds, row counts, reference counts; producers are only listed, since apply changes none that a freeze may
have listed, but puts a copy in its place. No entry may be applied between its steps, so it does as
little as it can. `sections` then builds the messages from the notes, in short steps too, while entries are
applied again: index rows are never rewritten by a later entry, and a trim that copies the rows leaves the
old object to whoever still holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from coordination.proto import snapshot_pb2 as pb
from coordination.state.acl_types import Acl
from coordination.state.delegation_types import DelegationToken
from coordination.state.freeze_acls import acl_sections
from coordination.state.freeze_delegation import delegation_sections
from coordination.state.freeze_groups import FrozenGroup, group_sections, note_group
from coordination.state.freeze_partitions import (
    PARTITIONS_PER_STEP,
    FrozenPartition,
    FrozenPartitions,
    FrozenProducers,
    PartitionSections,
    note_leaving,
    note_partition,
)
from coordination.state.freeze_quotas import Noted as NotedQuotas
from coordination.state.freeze_quotas import quota_sections
from coordination.state.freeze_scram import Noted as NotedCredential
from coordination.state.freeze_scram import scram_sections
from coordination.state.freeze_subjects import (
    SUBJECTS_PER_STEP,
    FrozenSubjects,
    note_subject,
    subject_sections,
)
from coordination.state.freeze_transactions import note_extents, transaction_sections
from coordination.state.levels import PIECES_OF_PARTITIONS
from coordination.state.state import State
from coordination.state.types import Broker, DeletedTopic, Incarnation, Schema, Table, Topic

CHUNKS_PER_STEP = 4096
GROUP_CONFIGS_PER_SECTION = 256
GROUPS_PER_STEP = 256
PRODUCERS_LIKE_A_PARTITION = 64  # so many cost as much to note as a partition
_T = TypeVar("_T")
# A deleted topic that can come back: its section, its schemas, extents, and how many partitions it has.
FrozenDeleted = tuple[pb.DeletedTopic, list[Schema], list[int], int]


@dataclass(slots=True)
class Frozen:
    """Notes from which the sections are built, once. Nothing in here changes when the state does."""

    head: pb.Head
    topics: list[bytes] = field(default_factory=list)  # encoded: no objects for the collector to look at
    counts: list[int] = field(default_factory=list)  # of each topic's partitions
    deleted: list[FrozenDeleted] = field(default_factory=list)
    partitions: FrozenPartitions = field(default_factory=FrozenPartitions)  # of topics, then of deleted ones
    leaving_count: int = 0
    leaving: FrozenPartitions = field(default_factory=FrozenPartitions)
    producers: FrozenProducers = field(default_factory=FrozenProducers)
    schemas: list[Schema] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    namespaces: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    chunks: list[tuple[int, int, int, int]] = field(default_factory=list)
    garbage: list[tuple[int, int, int]] = field(default_factory=list)
    segment_garbage: list[tuple[int, int, int, int]] = field(default_factory=list)
    manifest_garbage: list[tuple[int, int, int, int, bool]] = field(default_factory=list)
    pending: list[tuple[int, int, list[bytes]]] = field(default_factory=list)
    group_configs: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    features: dict[str, int] = field(default_factory=dict)
    features_epoch: int = 0
    groups: list[FrozenGroup] = field(default_factory=list)
    extents: dict[str, list[int]] = field(default_factory=dict)
    transactions: list[pb.Section] = field(default_factory=list)
    subjects: FrozenSubjects = field(default_factory=FrozenSubjects)
    scram_secret: bytes = b""
    scram: list[NotedCredential] = field(default_factory=list)
    acls_revision: int = 0
    acls: list[Acl] = field(default_factory=list)
    quota_changes: int = 0
    quotas: list[NotedQuotas] = field(default_factory=list)
    delegation_tokens: list[tuple[str, DelegationToken]] = field(default_factory=list)


def freeze(state: State) -> Iterator[Frozen]:
    """Note the state in steps; every item is the same object, complete after the last."""
    state.freezes += 1  # from now on apply leaves the producers' entries as they are
    frozen = Frozen(_head(state))
    frozen.schemas = list(state.schemas.values())
    frozen.tables = list(state.tables.values())
    frozen.namespaces = [(name, dict(properties)) for name, properties in state.namespaces.items()]
    frozen.pending = [(key[0], key[1], list(parts)) for key, parts in state.pending.items()]
    frozen.group_configs = list(state.group_configs.items())  # a change puts a new dict in
    frozen.features, frozen.features_epoch = dict(state.features), state.features_epoch
    registry = state.subjects
    frozen.subjects.schemas = list(registry.schemas.values())
    frozen.subjects.settings = list(registry.settings.items())
    frozen.scram_secret, frozen.scram = state.scram.secret, list(state.scram.credentials.items())
    frozen.acls_revision, frozen.acls = state.acls.revision, list(state.acls.acls)
    frozen.quota_changes, frozen.quotas = state.quotas.changes, list(state.quotas.entities.items())
    frozen.delegation_tokens = list(state.delegation_tokens.items())  # a change puts a new one in
    yield frozen
    for subjects in _groups(registry.subjects.values(), SUBJECTS_PER_STEP):
        frozen.subjects.subjects += map(note_subject, subjects)
        yield frozen
    yield from _topics(frozen, state)
    for partitions in _groups(state.leaving.values(), PARTITIONS_PER_STEP):
        frozen.leaving_count += len(partitions)
        for partition in partitions:
            frozen.leaving.add(note_leaving(partition))
        yield frozen
    for consumers in _groups(state.groups.values(), GROUPS_PER_STEP):
        frozen.groups += [note_group(one) for one in consumers]
        yield frozen
    for section in transaction_sections(state):
        frozen.transactions.append(section)
        yield frozen
    for group in _groups(state.chunks.by_serial.items(), CHUNKS_PER_STEP):
        frozen.chunks += [(serial, *chunk.id, chunk.references) for serial, chunk in group]
        yield frozen
    yield from _garbage(frozen, state)


def _garbage(frozen: Frozen, state: State) -> Iterator[Frozen]:
    """Note what nothing refers to any more."""
    for dropped in _groups(state.chunks.garbage.items(), CHUNKS_PER_STEP):
        frozen.garbage += [(*chunk, since_ms) for chunk, since_ms in dropped]
        yield frozen
    for released in _groups(state.segment_garbage.items(), CHUNKS_PER_STEP):
        frozen.segment_garbage += [(*segment, since_ms) for segment, since_ms in released]
        yield frozen
    for replaced in _groups(state.manifest_garbage.items(), CHUNKS_PER_STEP):
        frozen.manifest_garbage += [(*manifest, *since) for manifest, since in replaced]
        yield frozen


def _topics(frozen: Frozen, state: State) -> Iterator[Frozen]:
    """Note the topics with their partitions and producers, then those that are deleted and can come back."""
    noted = 0
    deleted = ((kept.topic, kept) for kept in state.deleted.values())
    for topic, kept in chain(((each, None) for each in state.topics.values()), deleted):
        count = len(topic.partitions)
        if kept is not None:
            frozen.deleted.append((_deleted(kept), kept.schemas, note_extents(topic.extents), count))
        else:
            frozen.topics.append(_topic(topic).SerializeToString(deterministic=True))
            frozen.counts.append(count)
        if topic.extents and kept is None:
            frozen.extents[topic.name] = note_extents(topic.extents)
        for partition in topic.partitions:
            frozen.partitions.add(note_partition(partition))
            noted += 1
            for count in frozen.producers.note(partition.producers):
                noted += count // PRODUCERS_LIKE_A_PARTITION
                if noted >= PARTITIONS_PER_STEP:
                    noted = 0
                    yield frozen
            if noted >= PARTITIONS_PER_STEP:
                noted = 0
                yield frozen


def freeze_now(state: State) -> Frozen:
    """Note the state in one go."""
    *_, frozen = freeze(state)
    return frozen


def sections(frozen: Frozen) -> Iterator[pb.Section]:
    """The sections of a snapshot, in the file's order; each costs a few milliseconds at most.

    Once only: notes on partitions are let go of as they are used.
    """
    count = 0
    for section in _body(frozen):
        count += 1
        yield section
    yield pb.Section(tail=pb.Tail(sections=count))


def _body(frozen: Frozen) -> Iterator[pb.Section]:
    yield pb.Section(head=frozen.head)
    in_pieces = frozen.head.feature_level >= PIECES_OF_PARTITIONS
    partition_sections = PartitionSections(frozen.producers, in_pieces=in_pieces)
    noted = frozen.partitions.take()
    for noted_topic, partitions in zip(frozen.topics, frozen.counts, strict=True):
        topic = pb.Topic.FromString(noted_topic)
        yield pb.Section(topic=topic)
        if topic.name in frozen.extents:
            yield pb.Section(extents=pb.Extents(numbers=frozen.extents[topic.name]))
        yield from partition_sections.of(islice(noted, partitions))
    for deleted in frozen.deleted:
        yield from _deleted_sections(deleted, partition_sections, noted)
    if frozen.leaving:
        yield pb.Section(leaving=pb.Leaving(partitions=frozen.leaving_count))
        yield from partition_sections.of(frozen.leaving.take())
    for schema in frozen.schemas:
        yield pb.Section(schema=_schema(schema))
    yield from subject_sections(frozen.subjects)
    yield from _users(frozen)
    for table in frozen.tables:
        yield pb.Section(table=_table(table))
    for name, properties in frozen.namespaces:
        yield pb.Section(namespace=pb.Namespace(name=name, properties=_properties(properties)))
    for group in frozen.groups:
        yield from group_sections(group)
    yield from frozen.transactions
    for chunks in _groups(frozen.chunks, CHUNKS_PER_STEP):
        serial, incarnation, number, references = zip(*chunks, strict=True)
        yield pb.Section(
            chunks=pb.Chunks(serial=serial, incarnation=incarnation, number=number, references=references)
        )
    for dropped in _groups(frozen.garbage, CHUNKS_PER_STEP):
        incarnation, number, since_ms = zip(*dropped, strict=True)
        yield pb.Section(garbage=pb.Garbage(incarnation=incarnation, number=number, since_ms=since_ms))
    yield from _segment_garbage(frozen)
    yield from _administration(frozen)
    for author, change_id, parts in frozen.pending:
        yield pb.Section(pending_change=pb.PendingChange(incarnation=author, id=change_id, parts=parts))


def _users(frozen: Frozen) -> Iterator[pb.Section]:
    """What is known of them, and what they may do and use up."""
    yield from scram_sections(frozen.scram_secret, frozen.scram)
    yield from acl_sections(frozen.acls_revision, frozen.acls)
    yield from quota_sections(frozen.quota_changes, frozen.quotas)
    yield from delegation_sections(frozen.delegation_tokens)


def _deleted_sections(
    noted: FrozenDeleted, partition_sections: PartitionSections, partitions: Iterator[FrozenPartition]
) -> Iterator[pb.Section]:
    deleted, schemas, extents, count = noted
    yield pb.Section(deleted_topic=deleted)
    for schema in schemas:
        yield pb.Section(schema=_schema(schema))
    if extents:
        yield pb.Section(extents=pb.Extents(numbers=extents))
    yield from partition_sections.of(islice(partitions, count))


def _segment_garbage(frozen: Frozen) -> Iterator[pb.Section]:
    for released in _groups(frozen.segment_garbage, CHUNKS_PER_STEP):
        incarnation, partition, number, since_ms = zip(*released, strict=True)
        segments = pb.SegmentGarbage(
            incarnation=incarnation, partition=partition, number=number, since_ms=since_ms
        )
        yield pb.Section(segment_garbage=segments)
    for replaced in _groups(frozen.manifest_garbage, CHUNKS_PER_STEP):
        incarnation, partition, number, since_ms, whole = zip(*replaced, strict=True)
        manifests = pb.ManifestGarbage(
            incarnation=incarnation, partition=partition, number=number, since_ms=since_ms, whole=whole
        )
        yield pb.Section(manifest_garbage=manifests)


def _administration(frozen: Frozen) -> Iterator[pb.Section]:
    """The finalized features with the first group configs, then further group configs."""
    features = [pb.Feature(name=name, level=level) for name, level in frozen.features.items()]
    first = pb.Administration(features=features, features_epoch=frozen.features_epoch)
    yield pb.Section(administration=first)
    for group in _groups(frozen.group_configs, GROUP_CONFIGS_PER_SECTION):
        rows = [pb.GroupConfigs(group=name, configs=_properties(configs)) for name, configs in group]
        yield pb.Section(administration=pb.Administration(group_configs=rows))


def _groups(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def _properties(pairs: dict[str, str]) -> list[pb.Property]:
    return [pb.Property(name=name, value=value) for name, value in pairs.items()]


def _head(state: State) -> pb.Head:
    brokers = {broker.incarnation: broker for broker in state.brokers.values()}
    return pb.Head(
        revision=state.revision,
        hash=state.digest,
        feature_level=state.feature_level,
        handles=len(state.partitions),
        next_chunk_serial=state.chunks.next_serial,
        next_producer_id=state.next_producer_id,
        next_schema_id=state.next_schema_id,
        next_node_id=state.next_node_id,
        trimmed_through=state.trimmed_through,
        incarnations=[_incarnation(one, brokers.get(key)) for key, one in state.incarnations.items()],
        node_ids=[pb.NodeId(name=name, node_id=node_id) for name, node_id in state.node_ids.items()],
        claims=[
            pb.Claim(name=name, incarnation=holder.incarnation, revision=holder.revision)
            for name, holder in state.claims.items()
        ],
        cluster_configs=_properties(state.cluster_configs),
        snapshots=[pb.Snapshot(revision=s.revision, key=s.key, size=s.size) for s in state.snapshots],
        clock_ms=state.clock_ms,
        clock_doubt_ms=state.clock_doubt_ms,
        clock_doubt_rounds=state.clock_doubt_rounds,
        clock_doubt_revision=state.clock_doubt_revision,
        bound_revision=state.bound_revision,
        subject_settings_revision=state.subjects.settings_revision,
        leader_epoch=state.leader_epoch,
    )


def _incarnation(one: Incarnation, broker: Broker | None) -> pb.Incarnation:
    message = pb.Incarnation(
        incarnation=one.incarnation,
        name=one.name,
        node_id=one.node_id,
        sequence=one.sequence,
        applied_revision=one.applied_revision,
        registered_revision=one.registered_revision,
        last_revision=one.last_revision,
        last_proposed_ms=one.last_proposed_ms,
        fenced_revision=one.fenced_revision,
        next_chunk_number=one.next_chunk_number,
        feature_min=one.feature_min,
        feature_max=one.feature_max,
    )
    message.left = broker is None and one.live
    if broker is not None:
        message.listeners.extend(
            pb.Listener(name=end.name, host=end.host, port=end.port) for end in broker.listeners
        )
        message.zone = broker.zone
        message.http_address = broker.http_address
        message.version = broker.version
        message.roles.extend(broker.roles)
        message.peer_address = broker.peer_address
        message.joining = not broker.named
        message.unwell = broker.unwell
    return message


def _deleted(kept: DeletedTopic) -> pb.DeletedTopic:
    return pb.DeletedTopic(
        topic=_topic(kept.topic),
        deleted_ms=kept.deleted_ms,
        until_ms=kept.until_ms,
        by=kept.by,
        schemas=len(kept.schemas),
        size_bytes=kept.size_bytes,
        weight=kept.weight,
    )


def _topic(topic: Topic) -> pb.Topic:
    return pb.Topic(
        name=topic.name,
        topic_id=topic.topic_id,
        created_ms=topic.created_ms,
        configs=_properties(topic.configs),
        value_schema_id=topic.value_schema_id or 0,
        key_schema_id=topic.key_schema_id or 0,
        bound_revision=topic.bound_revision,
    )


def _schema(schema: Schema) -> pb.Schema:
    return pb.Schema(
        schema_id=schema.schema_id,
        topic=schema.topic,
        role=schema.role,
        version=schema.version,
        descriptor_set=schema.descriptor_set,
        message=schema.message,
        framing=schema.framing,
        tombstones=schema.tombstones,
        subject=schema.subject,
        subject_version=schema.subject_version,
        naming=schema.naming,
    )


def _table(table: Table) -> pb.Table:
    return pb.Table(
        namespace=table.namespace,
        name=table.name,
        metadata_location=table.metadata_location,
        revision=table.revision,
        topic=table.topic,
        next_offsets=table.next_offsets,
        topic_id=table.topic_id,
    )
