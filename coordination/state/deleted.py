"""Deleted topics that can come back: gone for every client, kept whole until their time is over.

DeleteTopic takes a topic out of everything that clients see and puts it here as it is (SOFT_DELETE,
levels.py): rows, producers, positions of groups (which are by handle), bindings. Its chunks and manifests
stay referenced. Transactions that were open go on to their end on its partitions. `undeleting.py` brings it
back; PurgeTopics lets go of it, after its time or because somebody wants the room now.

There are bounds, so that topics made and deleted in a loop do not fill the state: whoever is beyond them has
the oldest purged. The topic that was deleted last always stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordination.commands import DeleteTopic, PurgeTopics
from coordination.kafka_codes import Code
from coordination.state import bounds
from coordination.state.data import StateData
from coordination.state.expiry import too_soon
from coordination.state.leaving import leave
from coordination.state.levels import SOFT_DELETE
from coordination.state.slices import ROW_BYTES
from coordination.state.types import At, DeletedTopic, Done, Partition, Refused, Result, Schema, Topic
from coordination.topic_configs import effective_bool, effective_int

RETENTION = "floe.delete.retention.ms"
PROTECTION = "floe.delete.protection"
TOPICS_MAX = 1_000  # deleted topics that are kept
PARTITIONS_MAX = 50_000  # of all of them
WEIGHT_MAX = 256 << 20  # bytes of the state that they take, about; in a snapshot they are smaller
PURGED_AT_ONCE_MAX = 1_000  # topics that one PurgeTopics names
BY_LENGTH_MAX = 256  # characters that are kept of who deleted a topic
_PARTITION_WEIGHT = 1_024  # bytes in memory, about: the objects of a partition without what is in them
_PRODUCER_WEIGHT = 512


def protection(state: StateData, topic: Topic) -> Refused | None:
    """Why the topic must not be deleted; None when it may."""
    if state.feature_level < SOFT_DELETE:
        return None
    if not effective_bool(PROTECTION, topic.configs, state.cluster_configs):
        return None
    remedy = f"set it to false first (floe topic config {topic.name} --set {PROTECTION}=false)"
    return Refused(Code.POLICY_VIOLATION, f"Topic '{topic.name}' has {PROTECTION}=true: {remedy}")


def retention_ms(state: StateData, topic: Topic) -> int:
    """For how long the topic is kept when it is deleted now; 0: not at all."""
    if state.feature_level < SOFT_DELETE:
        return 0
    return effective_int(RETENTION, topic.configs, state.cluster_configs)


def keep(state: StateData, topic: Topic, schemas: list[Schema], message: DeleteTopic, at: At) -> None:
    """Keep the topic, which is in nothing else any more. The oldest go when there are too many."""
    partitions = topic.partitions
    found = DeletedTopic(
        topic,
        at.now_ms,
        bounds.EXPIRE_MS.cut(at.now_ms + retention_ms(state, topic)),
        message.by[:BY_LENGTH_MAX],
        schemas,
        bounds.DELETED_BYTES.cut(sum([each.size_bytes for each in partitions])),
        _weight(partitions, schemas),
    )
    state.deleted[topic.topic_id] = found
    state.deleted_partitions.update((each.handle, each) for each in partitions)
    state.deleted_weight += found.weight
    gone: list[Partition] = []
    while len(state.deleted) > 1 and _too_much(state):
        gone += take(state, next(iter(state.deleted))).topic.partitions
    leave(state, gone, at.now_ms)


def _too_much(state: StateData) -> bool:
    return (
        len(state.deleted) > TOPICS_MAX
        or len(state.deleted_partitions) > PARTITIONS_MAX
        or state.deleted_weight > WEIGHT_MAX
    )


def _weight(partitions: Sequence[Partition], schemas: Sequence[Schema]) -> int:
    weight = len(partitions) * _PARTITION_WEIGHT + sum([len(each.descriptor_set) for each in schemas])
    return weight + sum(
        [len(each.slices) * ROW_BYTES + len(each.producers) * _PRODUCER_WEIGHT for each in partitions]
    )


def take(state: StateData, topic_id: bytes) -> DeletedTopic:
    """Take a topic out of those that are kept."""
    found = state.deleted.pop(topic_id)
    for partition in found.topic.partitions:
        del state.deleted_partitions[partition.handle]
    state.deleted_weight -= found.weight
    return found


def existing(state: StateData, handle: int) -> Partition | None:
    """The partition of a topic that exists, or is deleted and can come back."""
    return state.partitions[handle] or state.deleted_partitions.get(handle)


def bound_to(state: StateData, schema_id: int) -> DeletedTopic | None:
    """The topic that can come back with a binding of this id; None: there is none."""
    return next((each for each in state.deleted.values() if schema_id in each.topic.schema_ids), None)


def purge_topics(state: StateData, message: PurgeTopics, at: At) -> Result:
    """Let go of deleted topics: of those named, or those of them whose time is over.

    Done's value: how many.
    """
    if len(message.topic_id) > PURGED_AT_ONCE_MAX:
        what = f"{len(message.topic_id)} topics: name at most {PURGED_AT_ONCE_MAX}"
        return Refused(Code.INVALID_REQUEST, f"PurgeTopics: {what}")
    early = too_soon(state, message.judged_ms) if message.judged_ms else None
    if early is not None:
        return early
    gone: list[Partition] = []
    count = 0
    for topic_id in message.topic_id:
        found = state.deleted.get(topic_id)
        if found is None or (message.judged_ms and found.until_ms > message.judged_ms):
            continue
        gone += take(state, topic_id).topic.partitions
        count += 1
    leave(state, gone, at.now_ms)
    return Done(count)
