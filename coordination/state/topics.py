"""Topics: create, delete, partitions, log starts. Rules and codes are Kafka's (ReplicationControlManager)."""

from __future__ import annotations

import re

from coordination.commands import (
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    MoveLogStart,
)
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state import binding, bounds, deleted, following, held, spans, table_names
from coordination.state.configs import topic_refusal
from coordination.state.data import HANDLE_RANGE, StateData
from coordination.state.expiry import too_soon
from coordination.state.leaving import leave
from coordination.state.levels import BINDING_SPANS, NAMES_OF_ONE_REQUEST
from coordination.state.slices import SliceIndex
from coordination.state.types import At, Done, Partition, Refused, Result, Topic

TOPIC_NAME_LENGTH_MAX = 249  # Kafka's Topic.MAX_NAME_LENGTH
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 200_000  # of the cluster
TOPIC_ID_BYTES = 16
MOVES_MAX = 1_000  # partitions that agents put into one MoveLogStart: apply lets go of the rows of all
NO_SUCH_ID = Refused(Code.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
NO_SUCH_NAME = Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
"""What is said of a topic that shall be deleted and is not there."""

_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def name_refusal(name: str) -> str | None:
    """Why Kafka refuses the topic name (INVALID_TOPIC_EXCEPTION); None when it does not."""
    if not name or name in (".", ".."):
        what = f"'{name}'" if name else "the empty string"
        return f"Topic name is invalid: {what} is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        longest = f"is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
        return f"Topic name is invalid: the length of '{shown(name)}' {longest}"
    if not _NAME.fullmatch(name):
        more = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        return f"Topic name is invalid: '{name}' {more}"
    return None


def create_topic(state: StateData, message: CreateTopic, at: At) -> Result:
    """Create a topic with its partitions. Done's value: the topic id."""
    return create_refusal(state, message, at) or Done(make(state, message, at).topic_id)


def create_refusal(state: StateData, message: CreateTopic, at: At, more: int | None = None) -> Refused | None:
    """Why CreateTopic is refused; None when it is not. `more` as in `new_refusal`, if not its own."""
    name, count = message.name, message.partitions
    twins = state.names_without_dots.get(name.replace(".", "_"), ())
    beside = bool(twins) and _of_this_request(state, message, twins[0], at)
    refused = new_refusal(
        state, name, message.topic_id, count, count if more is None else more, beside=beside
    )
    if refused is not None:
        return refused
    configs = {entry.name: entry.value for entry in message.configs}
    refusal = topic_refusal(configs, state.cluster_configs, state.feature_level)
    refusal = refusal or table_names.refusal_of_new(state, name, configs)
    if refusal:
        return Refused(Code.INVALID_CONFIG, refusal)
    return following.refusal_of_new(state, name, configs)


def make(state: StateData, message: CreateTopic, at: At) -> Topic:
    """The new topic. `create_refusal` has found nothing against it."""
    name = message.name
    topic = Topic(name, message.topic_id, {entry.name: entry.value for entry in message.configs}, at.now_ms)
    unified = name.replace(".", "_")
    state.topics[name] = state.topics_by_id[topic.topic_id] = topic
    state.names_without_dots[unified] = (*state.names_without_dots.get(unified, ()), name)
    table_names.note(state, topic)
    at.requests[name] = message.request
    following.follow(state, topic, {}, at)
    add_partitions(state, topic, message.partitions)
    return topic


def new_refusal(
    state: StateData, name: str, topic_id: bytes, partitions: int, more: int, *, beside: bool = False
) -> Refused | None:
    """Why there can be no new topic of this name, id and number of partitions; None when there can.

    `more`: partitions that the cluster is to have more; `beside`: names that differ by dots only may stand.
    """
    refusal = name_refusal(name)
    if refusal:
        return Refused(Code.INVALID_TOPIC_EXCEPTION, refusal)
    if name in state.topics:
        return Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    twins = state.names_without_dots.get(name.replace(".", "_"), ())
    if twins and not beside:
        what = f"Topic '{name}' collides with existing topic: {twins[0]}"
        return Refused(Code.INVALID_TOPIC_EXCEPTION, what)
    refusal = _count_refusal(state, partitions, more)
    if refusal:
        return Refused(Code.INVALID_PARTITIONS, refusal)
    known = topic_id in state.topics_by_id or topic_id in state.deleted
    if len(topic_id) != TOPIC_ID_BYTES or known:
        return Refused(Code.INVALID_REQUEST, f"topic id {topic_id.hex()!r}: 16 fresh bytes are needed")
    return None


def _of_this_request(state: StateData, message: CreateTopic, twin: str, at: At) -> bool:
    """Whether a topic that differs only by dots was not there yet when the client asked.

    Kafka compares new names with the topics from before the request, not with each other
    (ReplicationControlManager.validateNewTopicNames). The oldest twin tells for all: the others were only
    taken because they were of its request.
    """
    if state.feature_level < NAMES_OF_ONE_REQUEST:
        return False
    return bool(message.request) and at.requests.get(twin) == message.request


def add_partitions(state: StateData, topic: Topic, total: int) -> None:
    """Grow the topic to `total` partitions, each under a new handle. Handles are never given twice."""
    for index in range(len(topic.partitions), total):
        partition = Partition(len(state.partitions), topic, index, SliceIndex(state.chunks))
        if partition.handle % HANDLE_RANGE == 0:
            state.live_in_range.append(0)
        state.live_in_range[-1] += 1
        partition.begins_span = state.feature_level >= BINDING_SPANS and spans.begins(partition)
        state.partitions.append(partition)
        topic.partitions.append(partition)
        state.partition_count += 1


def delete_topic(state: StateData, message: DeleteTopic, at: At) -> Result:
    """Delete a topic by name or id. Done's value: the topic id.

    It is kept for floe.delete.retention.ms and can come back; without, its chunks lose their references.
    """
    topic = state.topics_by_id.get(message.topic_id) if message.topic_id else state.topics.get(message.name)
    if topic is None and message.topic_id:
        return NO_SUCH_ID
    if topic is None:
        return NO_SUCH_NAME
    protected = deleted.protection(state, topic)
    if protected is not None:
        return protected
    schemas = [state.schemas[schema_id] for schema_id in topic.schema_ids]
    _take_out(state, topic, at)
    if deleted.retention_ms(state, topic):
        deleted.keep(state, topic, schemas, message, at)
    else:
        leave(state, topic.partitions, at.now_ms)
    return Done(topic.topic_id)


def _take_out(state: StateData, topic: Topic, at: At) -> None:
    """Take a topic out of all that clients see."""
    del state.topics[topic.name]
    del state.topics_by_id[topic.topic_id]
    _forget_name(state, topic.name)
    table_names.forget(state, topic)
    handles = [partition.handle for partition in topic.partitions]
    for handle in handles:
        state.partitions[handle] = None
        state.live_in_range[handle // HANDLE_RANGE] -= 1
        state.holding.pop(handle, None)
    state.producer_count -= sum([len(partition.producers) for partition in topic.partitions])
    state.partition_count -= len(handles)
    at.touched += handles
    binding.forget(state, topic)
    binding.judge_kept(state, topic, at)
    for schema_id in topic.schema_ids:
        del state.schemas[schema_id]


def _forget_name(state: StateData, name: str) -> None:
    unified = name.replace(".", "_")
    twins = state.names_without_dots.pop(unified)
    place = twins.index(name)
    if len(twins) > 1:
        state.names_without_dots[unified] = twins[:place] + twins[place + 1 :]


def create_partitions(state: StateData, message: CreatePartitions, at: At) -> Result:
    """Grow a topic. Done's value: None."""
    topic = state.topics.get(message.topic)
    if topic is None:
        return unknown(message.topic)
    have = len(topic.partitions)
    if message.total == have:
        return Refused(Code.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if message.total < have:
        return no_increase(topic, message.total)
    refusal = _count_refusal(state, message.total, message.total - have)
    if refusal:
        return Refused(Code.INVALID_PARTITIONS, refusal)
    add_partitions(state, topic, message.total)
    return Done()


def move_log_start(state: StateData, message: MoveLogStart, at: At) -> Result:
    """Delete records below the offsets. Done's value: per partition the log start, or -1 where refused.

    They are held for floe.records.grace.ms and can come back; without, what they lie in loses its references.

    Refused per partition when it does not exist or the offset is beyond the high watermark (Kafka's
    DeleteRecords answers OFFSET_OUT_OF_RANGE). Never goes back: an offset below the log start leaves it.
    """
    if len(message.partition) != len(message.offset):
        return Refused(Code.INVALID_REQUEST, "MoveLogStart: columns of different lengths")
    refusal = too_soon(state, message.judged_ms)
    if refusal is not None:
        return refusal
    starts: list[int] = []
    for handle, offset in zip(message.partition, message.offset, strict=True):
        partition = state.partitions[handle] if handle < len(state.partitions) else None
        if partition is not None and offset == -1:
            offset = partition.high_watermark
        if partition is None or not 0 <= offset <= partition.high_watermark:
            starts.append(-1)
            continue
        if offset > partition.log_start:
            held.move(state, partition, offset, at)
            at.touched.append(handle)
        starts.append(partition.log_start)
    return Done(tuple(starts))


def no_increase(topic: Topic, total: int) -> Refused:
    """The answer where a topic shall have fewer partitions than it has."""
    currently = f"The topic {topic.name} currently has {len(topic.partitions)} partition(s)"
    return Refused(Code.INVALID_PARTITIONS, f"{currently}; {total} would not be an increase.")


def unknown(name: str) -> Refused:
    """The answer where the named topic does not exist."""
    return Refused(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{shown(name)}' does not exist.")


def _count_refusal(state: StateData, total: int, more: int) -> str | None:
    if not 0 < total <= PARTITIONS_PER_TOPIC_MAX:
        return f"{total} partitions: a topic has 1 to {PARTITIONS_PER_TOPIC_MAX}"
    if state.partition_count + more > PARTITIONS_MAX:
        return f"{more} more partitions: the cluster has {state.partition_count} of at most {PARTITIONS_MAX}"
    if not bounds.HANDLES.hold(len(state.partitions) + more):
        return f"{more} more partitions: the cluster has made {len(state.partitions)}, and each has a number"
    return None
