"""The state from the sections of a snapshot: the reverse of coordination.state.freeze."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, TypeVar

from coordination.proto import snapshot_pb2 as pb
from coordination.state import binding, spans, table_names
from coordination.state.chunk_table import Chunk
from coordination.state.data import FEATURE_LEVEL_MAX, FEATURE_LEVEL_MIN, HANDLE_RANGE
from coordination.state.errors import UnknownCommand, UnsupportedFeature
from coordination.state.freeze_acls import thaw_acls
from coordination.state.freeze_consumers import thaw_members
from coordination.state.freeze_delegation import thaw_delegation
from coordination.state.freeze_groups import thaw_group, thaw_offsets
from coordination.state.freeze_partitions import thaw_spans
from coordination.state.freeze_quotas import thaw_quotas
from coordination.state.freeze_scram import thaw_scram
from coordination.state.freeze_subjects import thaw_schema, thaw_settings, thaw_subject
from coordination.state.freeze_transactions import (
    thaw_extents,
    thaw_partition,
    thaw_pending,
    thaw_transaction,
)
from coordination.state.group_types import Group
from coordination.state.levels import BINDING_SPANS
from coordination.state.segments import let_go
from coordination.state.slices import ROW_BYTES, SliceIndex
from coordination.state.state import State
from coordination.state.types import (
    Broker,
    ClaimHolder,
    DeletedTopic,
    Endpoint,
    Held,
    Incarnation,
    Merged,
    Partition,
    ProducerEntry,
    Schema,
    Skipped,
    SnapshotRecord,
    Table,
    Topic,
)
from objectstore.naming import ChunkId, ManifestId, SegmentId

ENTRIES_PER_STEP = 256  # rows of a section taken in one step; each costs some microseconds
Steps = Iterator[None]
_T = TypeVar("_T")


class BadSnapshot(Exception):
    """The sections do not make a state: cut off, out of order or contradictory."""


class Thaw:
    """Takes sections one by one, each in short steps; `state` is complete once `finished`."""

    def __init__(self) -> None:
        self.state = State()
        self.finished = False
        self._sections = 0
        self._topic: Topic | None = None
        self._leaving = 0  # partitions of deleted topics that there are; above 0, those that come are of them
        self._deleted: DeletedTopic | None = None  # whose schemas, extents and partitions come
        self._schemas = 0  # that are still to come of it
        self._group: Group | None = None
        self._take: dict[str, Callable[[Any], Steps | None]] = {
            "head": self._head,
            "topic": self._new_topic,
            "partitions": self._partitions,
            "partition_rest": self._partition_rest,
            "leaving": self._now_leaving,
            "deleted_topic": self._deleted_topic,
            "schema": self._schema,
            "table": self._table,
            "namespace": self._namespace,
            "chunks": self._chunks,
            "garbage": self._garbage,
            "segment_garbage": self._segment_garbage,
            "manifest_garbage": self._manifest_garbage,
            "administration": self._administration,
            "pending_change": self._pending,
            "group": self._new_group,
            "group_offsets": self._group_offsets,
            "consumer_members": self._consumer_members,
            "transactions": self._transactions,
            "pending_offsets": self._pending_offsets,
            "extents": self._extents,
            "registered_schema": lambda told: thaw_schema(self.state.subjects, told),
            "subject": self._subject,
            "subject_settings": lambda told: thaw_settings(self.state.subjects, told),
            "scram": lambda told: thaw_scram(self.state.scram, told),
            "acls": lambda told: thaw_acls(self.state.acls, told),
            "quotas": lambda told: thaw_quotas(self.state.quotas, told),
            "delegation_tokens": lambda told: thaw_delegation(self.state.delegation_tokens, told),
            "tail": self._tail,
        }

    def take(self, section: pb.Section) -> None:
        """Add one section in one go. Raises as `steps`."""
        for _ in self.steps(section):
            pass

    def steps(self, section: pb.Section) -> Steps:
        """Add one section in steps; it is there after the last.

        Raises BadSnapshot; UnknownCommand and UnsupportedFeature for what is too new.
        """
        kind = section.WhichOneof("kind")
        if kind is None:
            raise UnknownCommand("the snapshot holds a section this code does not know: run a newer version")
        if self.finished or (kind == "head") != (self._sections == 0):
            raise BadSnapshot(f"section {self._sections} is a {kind}: out of place")
        yield from self._take[kind](getattr(section, kind)) or ()
        self._sections += 1

    def _head(self, head: pb.Head) -> None:
        state = self.state
        if not FEATURE_LEVEL_MIN <= head.feature_level <= FEATURE_LEVEL_MAX:
            raise UnsupportedFeature(
                f"the snapshot at revision {head.revision} has feature level {head.feature_level}, this code "
                f"knows {FEATURE_LEVEL_MIN} to {FEATURE_LEVEL_MAX}: run a version that knows it"
            )
        state.revision, state.digest, state.clock_ms = head.revision, head.hash, head.clock_ms
        state.clock_doubt_ms, state.bound_revision = head.clock_doubt_ms, head.bound_revision
        state.clock_doubt_rounds = head.clock_doubt_rounds
        state.clock_doubt_revision = head.clock_doubt_revision
        state.feature_level = head.feature_level
        state.partitions = [None] * head.handles
        state.live_in_range = [0] * -(-head.handles // HANDLE_RANGE)
        state.chunks.next_serial = head.next_chunk_serial
        state.next_producer_id = head.next_producer_id
        state.next_schema_id = head.next_schema_id
        state.next_node_id = head.next_node_id
        state.leader_epoch = head.leader_epoch
        state.subjects.settings_revision = head.subject_settings_revision
        state.trimmed_through = head.trimmed_through
        for one in head.incarnations:
            self._incarnation(one)
        state.node_ids = {node.name: node.node_id for node in head.node_ids}
        state.claims = {c.name: ClaimHolder(c.incarnation, c.revision) for c in head.claims}
        state.cluster_configs = {p.name: p.value for p in head.cluster_configs}
        state.snapshots = [SnapshotRecord(s.revision, s.key, s.size) for s in head.snapshots]

    def _incarnation(self, one: pb.Incarnation) -> None:
        known = Incarnation(
            incarnation=one.incarnation,
            name=one.name,
            node_id=one.node_id,
            sequence=one.sequence,
            applied_revision=one.applied_revision,
            registered_revision=one.registered_revision,
            last_revision=one.last_revision,
            last_proposed_ms=one.last_proposed_ms,
            feature_min=one.feature_min,
            feature_max=one.feature_max,
            fenced_revision=one.fenced_revision,
            next_chunk_number=one.next_chunk_number,
        )
        self.state.incarnations[known.incarnation] = known
        if known.live:
            self.state.live[known.incarnation] = known
        else:
            self.state.fenced_count += 1
        if not known.live or one.left:
            return
        listeners = tuple(Endpoint(end.name, end.host, end.port) for end in one.listeners)
        self.state.brokers[one.node_id] = Broker(
            one.node_id,
            one.name,
            one.incarnation,
            listeners,
            one.zone,
            one.http_address,
            one.version,
            tuple(one.roles),
            one.peer_address,
            not one.joining,
            one.unwell,
        )

    def _new_topic(self, message: pb.Topic) -> None:
        state = self.state
        topic = self._topic = _topic(message)
        state.topics[topic.name] = state.topics_by_id[topic.topic_id] = topic
        unified = topic.name.replace(".", "_")
        state.names_without_dots[unified] = (*state.names_without_dots.get(unified, ()), topic.name)
        table_names.note(state, topic)

    def _deleted_topic(self, message: pb.DeletedTopic) -> None:
        topic = self._topic = _topic(message.topic)
        self._schemas = message.schemas
        self._deleted = self.state.deleted[topic.topic_id] = DeletedTopic(
            topic,
            message.deleted_ms,
            message.until_ms,
            message.by,
            [],
            message.size_bytes,
            message.weight,
        )
        self.state.deleted_weight += message.weight

    def _now_leaving(self, message: pb.Leaving) -> None:
        self._deleted = None
        self._topic, self._leaving = Topic("", b"", {}, 0), message.partitions

    def _partitions(self, group: pb.PartitionGroup) -> Steps:
        topic, state = self._topic, self.state
        if topic is None:
            raise BadSnapshot("partitions before the first topic")
        for message in group.partitions:
            yield
            partition = self._partition(topic, message)
            topic.partitions.append(partition)
            if self._leaving:
                state.leaving[message.handle] = partition
                continue
            if self._deleted is not None:
                state.deleted_partitions[message.handle] = partition
            else:
                state.partition_count += 1
                state.partitions[message.handle] = partition
                if partition.held:
                    state.holding[message.handle] = partition
                state.live_in_range[message.handle // HANDLE_RANGE] += 1
            if message.producers:
                yield from _producers(partition, pb.Producers.FromString(message.producers))
            if self._deleted is None:
                state.producer_count += len(partition.producers)

    def _partition(self, topic: Topic, message: pb.Partition) -> Partition:
        """A partition but for its producers."""
        slices = SliceIndex(self.state.chunks)
        slices.rows = bytearray(message.rows)
        if len(slices.rows) % ROW_BYTES:
            raise BadSnapshot(f"partition {message.handle}: {len(slices.rows)} bytes are no whole rows")
        slices.first_offset = message.first_offset
        slices.size_bytes = slices.sum_of_lengths()
        partition = Partition(message.handle, topic, len(topic.partitions), slices)
        partition.log_start = message.log_start
        partition.high_watermark = message.high_watermark
        if message.HasField("merged"):
            partition.merged = _merged(message.handle, message.merged)
        if message.transactions:
            partition.transactions = thaw_partition(message.transactions)
        partition.skipped = tuple(Skipped(s.start, s.end, s.since_ms, s.by) for s in message.skipped)
        partition.spans = thaw_spans(message.spans)
        partition.held = tuple(Held(each.start, each.end, each.until_ms) for each in message.held)
        partition.begins_span = self.state.feature_level >= BINDING_SPANS and spans.begins(partition)
        return partition

    def _partition_rest(self, rest: pb.PartitionRest) -> Steps:
        if self._topic is None or not self._topic.partitions:
            raise BadSnapshot("rows before the first partition")
        partition = self._topic.partitions[-1]
        if rest.handle != partition.handle or len(rest.rows) % ROW_BYTES:
            raise BadSnapshot(f"{len(rest.rows)} bytes of rows of partition {rest.handle}: out of place")
        partition.slices.append_rows(rest.rows)
        yield from _producers(partition, rest.producers)
        if self._deleted is None:
            self.state.producer_count += len(rest.producers.producer_id)

    def _schema(self, s: pb.Schema) -> None:
        schema = Schema(
            s.schema_id,
            s.topic,
            s.role,
            s.version,
            s.descriptor_set,
            s.message,
            s.framing,
            s.tombstones,
            s.subject,
            s.subject_version,
            s.naming,
        )
        if self._deleted is not None and self._schemas:
            self._schemas -= 1
            self._deleted.schemas.append(schema)
            self._deleted.topic.schema_ids.append(s.schema_id)
            return
        self.state.schemas[s.schema_id] = schema
        topic = self.state.topics[s.topic]
        topic.schema_ids.append(s.schema_id)
        binding.note(self.state, topic)

    def _subject(self, message: pb.Subject) -> None:
        try:
            thaw_subject(self.state.subjects, message)
        except (ValueError, KeyError) as error:
            raise BadSnapshot(f"subject {message.name!r}: {error}") from error

    def _table(self, t: pb.Table) -> None:
        self.state.tables[t.namespace, t.name] = Table(
            t.namespace,
            t.name,
            t.metadata_location,
            t.revision,
            t.topic,
            tuple(t.next_offsets),
            t.topic_id,
        )
        if t.topic_id:
            self.state.tables_by_topic[t.topic_id] = (t.namespace, t.name)

    def _namespace(self, message: pb.Namespace) -> None:
        self.state.namespaces[message.name] = {p.name: p.value for p in message.properties}

    def _new_group(self, message: pb.Group) -> None:
        group = self._group = thaw_group(message)
        self.state.groups[group.group_id] = group

    def _group_offsets(self, message: pb.GroupOffsets) -> None:
        if self._group is None:
            raise BadSnapshot("positions before the first group")
        thaw_offsets(self._group, message)

    def _consumer_members(self, message: pb.ConsumerMembers) -> Steps:
        if self._group is None or self._group.consumer is None:
            raise BadSnapshot("members before the first group of KIP-848")
        try:
            yield from thaw_members(self._group.consumer, message)
        except ValueError as error:
            raise BadSnapshot(f"group {self._group.group_id!r}: {error}") from error

    def _chunks(self, chunks: pb.Chunks) -> Steps:
        columns = zip(chunks.serial, chunks.incarnation, chunks.number, chunks.references, strict=True)
        table = self.state.chunks
        for some in _portions(columns):
            yield
            for serial, incarnation, number, references in some:
                chunk = table.by_serial[serial] = Chunk(ChunkId(incarnation, number), references)
                table.serials[chunk.id] = serial

    def _garbage(self, garbage: pb.Garbage) -> Steps:
        columns = zip(garbage.incarnation, garbage.number, garbage.since_ms, strict=True)
        for some in _portions(columns):
            yield
            for incarnation, number, since_ms in some:
                self.state.chunks.garbage[ChunkId(incarnation, number)] = since_ms

    def _segment_garbage(self, garbage: pb.SegmentGarbage) -> Steps:
        columns = zip(garbage.incarnation, garbage.partition, garbage.number, garbage.since_ms, strict=True)
        for some in _portions(columns):
            yield
            for *name, since_ms in some:
                self.state.segment_garbage[SegmentId(*name)] = since_ms

    def _manifest_garbage(self, garbage: pb.ManifestGarbage) -> Steps:
        names = zip(garbage.incarnation, garbage.partition, garbage.number, strict=True)
        for some in _portions(zip(names, garbage.since_ms, garbage.whole, strict=True)):
            yield
            for name, since_ms, whole in some:
                let_go(self.state, ManifestId(*name), since_ms, whole=whole)

    def _administration(self, message: pb.Administration) -> None:
        state = self.state
        if message.features:
            state.features = {feature.name: feature.level for feature in message.features}
            state.features_epoch = message.features_epoch
        for group in message.group_configs:
            state.group_configs[group.group] = {p.name: p.value for p in group.configs}

    def _pending(self, change: pb.PendingChange) -> None:
        self.state.pending[change.incarnation, change.id] = list(change.parts)

    def _transactions(self, message: pb.Transactions) -> Steps:
        for told in message.transactions:
            yield
            thaw_transaction(self.state, told)

    def _pending_offsets(self, message: pb.PendingOffsets) -> Steps:
        for some in _portions(thaw_pending(self.state, message)):
            yield
            for waiting, handle, position in some:
                waiting[handle] = position

    def _extents(self, message: pb.Extents) -> Steps:
        if self._topic is None:
            raise BadSnapshot("transactions of a table before the first topic")
        for some in _portions(thaw_extents(message.numbers)):
            yield
            self._topic.extents += some

    def _tail(self, tail: pb.Tail) -> None:
        if tail.sections != self._sections:
            raise BadSnapshot(f"{self._sections} sections came, {tail.sections} were written")
        if len(self.state.leaving) != self._leaving:
            came = len(self.state.leaving)
            raise BadSnapshot(f"{came} partitions of deleted topics came, {self._leaving} were written")
        self.finished = True


def _topic(message: pb.Topic) -> Topic:
    """A topic without partitions."""
    configs = {p.name: p.value for p in message.configs}
    topic = Topic(message.name, message.topic_id, configs, message.created_ms)
    topic.value_schema_id = message.value_schema_id or None
    topic.key_schema_id = message.key_schema_id or None
    topic.bound_revision = message.bound_revision
    return topic


def _merged(handle: int, message: pb.MergedRange) -> Merged:
    summary = [getattr(message, name) for name in Merged._fields[1:]]
    return Merged(ManifestId(message.incarnation, handle, message.number), *summary)


def _producers(partition: Partition, message: pb.Producers) -> Steps:
    """Add producers to a partition."""
    columns = zip(
        message.producer_id,
        message.epoch,
        message.last_sequence,
        message.floor_sequence,
        message.updated_ms,
        message.remembered,
        strict=True,
    )
    sequences, offsets, start = message.first_sequence, message.base_offset, 0
    for some in _portions(columns):
        yield
        for producer_id, epoch, last_sequence, floor_sequence, updated_ms, remembered in some:
            entry = partition.producers[producer_id] = ProducerEntry(epoch, floor_sequence)
            entry.last_sequence = last_sequence
            entry.last_timestamp = updated_ms
            end = start + remembered
            pairs = zip(sequences[start:end], offsets[start:end], strict=True)
            entry.recent = array("q", [number for pair in pairs for number in pair])
            start = end


def _portions(rows: Iterable[_T]) -> Iterator[list[_T]]:
    """The rows, as many at a time as one step takes."""
    iterator = iter(rows)
    while some := list(islice(iterator, ENTRIES_PER_STEP)):
        yield some
