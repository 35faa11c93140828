"""A deleted topic comes back: the same id, partitions, records, producers and positions, in one entry.

Only what says that it is there again changes: its name if another one is wanted, and that records judged
before are judged again, since what they were judged by may have changed meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coordination.commands import BindSchema, UndeleteTopic
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state import binding, deleted, following, spans, table_names, topics
from coordination.state.data import HANDLE_RANGE, StateData
from coordination.state.types import At, DeletedTopic, Done, Naming, Refused, Result, Schema, Topic


def undelete_topic(state: StateData, message: UndeleteTopic, at: At) -> Result:
    """Bring a deleted topic back. Done's value: its name."""
    found = state.deleted.get(message.topic_id)
    if found is None:
        what = f"no deleted topic has the id {message.topic_id.hex()}, or its time is over"
        return Refused(Code.RESOURCE_NOT_FOUND, f"{what}: see floe topic list --deleted")
    name = message.name or found.topic.name
    refused = refusal(state, found, name)
    if refused is not None:
        return refused
    deleted.take(state, message.topic_id)
    topic, renamed = found.topic, name != found.topic.name
    topic.name = name
    unified = name.replace(".", "_")
    state.topics[name] = state.topics_by_id[topic.topic_id] = topic
    state.names_without_dots[unified] = (*state.names_without_dots.get(unified, ()), name)
    for schema in found.schemas:
        state.schemas[schema.schema_id] = replace(schema, topic=name)
    table_names.note(state, topic)
    binding.note(state, topic)
    _put_partitions(state, topic, at)
    if renamed:
        _rename(state, topic, at)
    binding.judge_again(state, topic, at)
    return Done(name)


def _put_partitions(state: StateData, topic: Topic, at: At) -> None:
    for partition in topic.partitions:
        state.partitions[partition.handle] = partition
        state.live_in_range[partition.handle // HANDLE_RANGE] += 1
        at.touched.append(partition.handle)
        if partition.held:
            state.holding[partition.handle] = partition
    state.partition_count += len(topic.partitions)
    state.producer_count += sum([len(partition.producers) for partition in topic.partitions])


def _rename(state: StateData, topic: Topic, at: At) -> None:
    """What has the topic's name in it: its table says whose it is, configs bind to subjects of the name."""
    key = state.tables_by_topic.get(topic.topic_id)
    if key is not None:
        state.tables[key] = replace(state.tables[key], topic=topic.name)
    following.follow(state, topic, {}, at)


def refusal(state: StateData, found: DeletedTopic, name: str) -> Refused | None:
    """Why the topic cannot come back under this name; None when it can."""
    topic, count = found.topic, len(found.topic.partitions)
    other = "bring it back under another name (--as)"
    invalid = topics.name_refusal(name)
    if invalid:
        return Refused(Code.INVALID_TOPIC_EXCEPTION, invalid)
    if name in state.topics:
        return Refused(Code.TOPIC_ALREADY_EXISTS, f"Topic '{shown(name)}' exists: {other}")
    twins = state.names_without_dots.get(name.replace(".", "_"))
    if twins:
        what = f"Topic '{shown(name)}' collides with existing topic: {twins[0]}"
        return Refused(Code.INVALID_TOPIC_EXCEPTION, f"{what}: {other}")
    if state.partition_count + count > topics.PARTITIONS_MAX:
        has = f"the cluster has {state.partition_count} of at most {topics.PARTITIONS_MAX}"
        return Refused(Code.INVALID_PARTITIONS, f"{count} more partitions: {has}: delete topics first")
    if name != topic.name and any(each.naming == Naming.TOPIC_RECORD for each in found.schemas):
        what = f"topic '{topic.name}' has its name in the subjects of its schemas (TopicRecordNameStrategy)"
        return Refused(Code.INVALID_CONFIG, f"{what}: it can come back under that name only")
    taken = table_names.refusal_of_new(state, name, topic.configs)
    if taken:
        return Refused(Code.INVALID_CONFIG, taken)
    return _binding_refusal(state, found, name)


def ids_refusal(state: StateData, found: DeletedTopic) -> Refused | None:
    """Why records of the topic would be misread: a schema was registered under an id that their frames name.

    For whoever asks that it comes back. Apply brings it back all the same, as it always did; an import of
    such an id is refused by those who are asked for it, so the next one has to have been made before.
    """
    table = state.subjects
    for schema in found.schemas:
        if schema.naming or schema.framing != BindSchema.CONFLUENT or schema.schema_id not in table.schemas:
            continue
        versions = [f"version {version} of {name}" for name, version in table.users[schema.schema_id]]
        named = ", ".join(versions[: following.NAMED_MAX])
        what = f"frames of topic '{found.topic.name}' name schema {schema.schema_id}, registered since"
        remedy = "delete that for good first (floe schema delete, then again with --permanent)"
        return Refused(Code.DUPLICATE_RESOURCE, f"{what} ({named}): {remedy}")
    return None


def _binding_refusal(state: StateData, found: DeletedTopic, name: str) -> Refused | None:
    """Why the topic cannot be bound as it was, or as its configs say under the new name."""
    fresh = list(_bound_anew(found, name))
    refused = binding.room_refusal(state, len(found.schemas) + len(fresh))
    if refused is not None or not fresh:
        return refused
    for schema in fresh:
        key, value = found.topic.binding
        after = (state.next_schema_id, value) if schema.role == binding.KEY else (key, state.next_schema_id)
        refused = refused or spans.refusal(found.topic, after)
    return refused


def _bound_anew(found: DeletedTopic, name: str) -> Iterator[Schema]:
    """What the topic's configs bind it to under this name, as far as it was not bound to that before."""
    if name == found.topic.name:
        return
    for role in following.ROLES:
        wanted = following.configured(name, role, found.topic.configs)
        if wanted is not None:
            yield wanted
