"""What a command would answer, without proposing it: validate_only of the administrative requests.

Commands are applied by the real rules to a throw-away state that holds copies of what they may change: one
copy for all commands of a request, each of which finds what those before it would have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy as copied

from coordination.commands import (
    AlterClusterConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    CreatePartitions,
    CreateTopic,
    UpdateFeatures,
)
from coordination.state import configs, features, quarantine, topics
from coordination.state.following import BINDING_CONFIGS
from coordination.state.quarantine_names import topic_of
from coordination.state.state import State
from coordination.state.types import At, Incarnation, Result, Topic

Rehearsable = (
    CreateTopic
    | CreatePartitions
    | AlterTopicConfigs
    | AlterClusterConfigs
    | AlterGroupConfigs
    | UpdateFeatures
)


def rehearse(state: State, message: Rehearsable) -> Result:
    """The result that the command would have now."""
    return rehearse_all(state, [message])[0]


def rehearse_all(state: State, messages: Sequence[Rehearsable]) -> list[Result]:
    """The results that the commands would have now, at one point of the log."""
    stage = _stage(state)
    at = At(state.revision, Incarnation(0, "", -1, 0, 0, 0, 0, 0, 0, 0), state.clock_ms)
    return [_rehearse(state, stage, message, at) for message in messages]


def _rehearse(state: State, stage: State, message: Rehearsable, at: At) -> Result:
    match message:
        case CreateTopic():
            _copy_topic(state, stage, topic_of(message.name))
            return quarantine.create_topic(stage, message, at)
        case CreatePartitions():
            _copy_topic(state, stage, message.topic)
            return topics.create_partitions(stage, message, at)
        case AlterTopicConfigs():
            _copy_topic(state, stage, message.topic)
            _copy_topic(state, stage, topic_of(message.topic))
            _copy_partitions(state, stage, message)
            return quarantine.alter_topic_configs(stage, message, at)
        case AlterGroupConfigs():
            return configs.alter_group_configs(stage, message, at)
        case UpdateFeatures():
            with _without_topics(stage):
                return features.update_features(stage, message, at)
    with _without_topics(stage):
        return configs.alter_cluster_configs(stage, message, at)


@contextmanager
def _without_topics(stage: State) -> Iterator[None]:
    """For commands that change topics and tables, which are the state's own, and are decided without them."""
    kept = stage.topics, stage.tables, stage.tables_by_topic
    stage.topics, stage.tables, stage.tables_by_topic = {}, {}, {}
    yield
    stage.topics, stage.tables, stage.tables_by_topic = kept


def _stage(state: State) -> State:
    stage = State()
    stage.topics = dict(state.topics)
    stage.topics_by_id = dict(state.topics_by_id)
    stage.names_without_dots = dict(state.names_without_dots)
    stage.topics_by_table_name = dict(state.topics_by_table_name)
    stage.tables, stage.tables_by_topic = state.tables, state.tables_by_topic
    stage.partition_count = state.partition_count
    stage.cluster_configs = dict(state.cluster_configs)
    stage.group_configs = dict(state.group_configs)
    stage.features, stage.feature_level = dict(state.features), state.feature_level
    stage.incarnations = state.incarnations
    stage.schemas, stage.next_schema_id = dict(state.schemas), state.next_schema_id
    return stage


def _copy_topic(state: State, stage: State, name: str) -> None:
    topic = state.topics.get(name)
    if topic is not None and stage.topics.get(name) is topic:
        copy = Topic(topic.name, topic.topic_id, dict(topic.configs), topic.created_ms)
        copy.partitions = list(topic.partitions)
        copy.schema_ids = list(topic.schema_ids)
        copy.value_schema_id, copy.key_schema_id = topic.value_schema_id, topic.key_schema_id
        stage.topics[name] = copy


def _copy_partitions(state: State, stage: State, message: AlterTopicConfigs) -> None:
    """Configs that bind the topic have its partitions expect a span: not those of the state."""
    topic, staged = state.topics.get(message.topic), stage.topics.get(message.topic)
    if topic is None or staged is None:
        return
    if any(each in BINDING_CONFIGS for each in (*topic.configs, *(one.name for one in message.changes))):
        staged.partitions = [copied(partition) for partition in topic.partitions]
