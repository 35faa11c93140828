"""Topics whose records go to another topic when they break rules, and how that one comes to be.

The quarantine of topic `t` is topic `t.quarantine`, whose values are bound to RECORD. It is made at the same
point of the log at which a config of `t` first asks for it, with as many partitions; one that is there
already is taken when it is bound so. It has its own configs, retention and table, and outlives the policy.
"""

from __future__ import annotations

from coordination.commands import AlterTopicConfigs, BindSchema, CreateTopic
from coordination.commands import Quarantine as Made
from coordination.kafka_codes import Code
from coordination.state import binding, configs, schemas, topics
from coordination.state.data import StateData
from coordination.state.levels import QUARANTINES
from coordination.state.quarantine_names import SUFFIX, asked_for, name_of
from coordination.state.types import At, Done, Refused, Result, Schema, Topic
from coordination.topic_configs import QUARANTINE

RECORD = "floe.quarantine.v1.Record"
"""Full name of the protobuf message that its values are."""
_BINDINGS = 3  # that one command makes at most: the quarantine's, and those of a new topic's keys and values


def of(state: StateData, topic: Topic) -> Topic | None:
    """The quarantine of a topic; None where none is called so, or it is bound to something else."""
    found = state.topics.get(name_of(topic.name))
    return found if found is not None and _takes_records(state, found) else None


def alter_topic_configs(state: StateData, message: AlterTopicConfigs, at: At) -> Result:
    """`configs.alter_topic_configs`, and the quarantine that the changes ask for."""
    asked = asked_for((change.name, change.value) for change in message.changes)
    topic = state.topics.get(message.topic)
    if not asked or topic is None or state.feature_level < QUARANTINES:
        return configs.alter_topic_configs(state, message, at)
    count = len(topic.partitions)
    refusal = _refusal(state, topic.name, message.quarantine, count, count)
    if refusal is not None:
        return refusal
    after = configs.altered(state, topic, message)
    if isinstance(after, Refused):
        return after
    if not asked_for(after.items()):
        configs.put(state, topic, after, at)
        return Done()
    wanted = _wanted(topic.name, message.quarantine, count)
    refusal = _make_refusal(state, wanted, count, at)
    if refusal is None:
        configs.put(state, topic, after, at)
        _make(state, wanted, message.quarantine, at)
    return refusal or Done()


def create_topic(state: StateData, message: CreateTopic, at: At) -> Result:
    """`topics.create_topic`, and the quarantine that its configs ask for."""
    asked = asked_for((entry.name, entry.value) for entry in message.configs)
    if not asked or state.feature_level < QUARANTINES or message.name in state.topics:
        return topics.create_topic(state, message, at)
    count = message.partitions
    refusal = _refusal(state, message.name, message.quarantine, count, 2 * count)
    if refusal is not None:
        return refusal
    if message.quarantine.topic_id == message.topic_id:
        return Refused(Code.INVALID_REQUEST, f"topic {message.name!r}: its quarantine needs another topic id")
    wanted = _wanted(message.name, message.quarantine, count)
    refusal = topics.create_refusal(state, message, at) or _make_refusal(state, wanted, 2 * count, at)
    if refusal is not None:
        return refusal
    topic = topics.make(state, message, at)
    _make(state, wanted, message.quarantine, at)
    return Done(topic.topic_id)


def _takes_records(state: StateData, topic: Topic) -> bool:
    schema = state.schemas.get(topic.value_schema_id or 0)
    return schema is not None and not schema.naming and schema.message == RECORD


def _refusal(state: StateData, topic: str, made: Made, count: int, more: int) -> Refused | None:
    """Why the topic cannot have a quarantine; `more`: partitions that there will be in all."""
    if topic.endswith(SUFFIX):
        what = f"topic '{topic}' is called as a quarantine, and a quarantine has none"
        return Refused(Code.INVALID_CONFIG, f"{QUARANTINE}: {what}: use reject or observe")
    name = name_of(topic)
    there = state.topics.get(name)
    if there is not None:
        if _takes_records(state, there):
            return None
        what = f"topic '{name}' exists and its values are not bound to {RECORD}"
        return Refused(Code.INVALID_CONFIG, f"{QUARANTINE}: {what}: delete it, or use another policy")
    if not made.descriptor_set:
        return Refused(
            Code.INVALID_CONFIG, f"{QUARANTINE}: topic '{name}' does not exist, nor is it said how to make it"
        )
    if len(made.descriptor_set) > schemas.DESCRIPTOR_BYTES_MAX:
        return Refused(
            Code.INVALID_REQUEST, f"{QUARANTINE}: descriptor set of {len(made.descriptor_set)} bytes"
        )
    refused = topics.new_refusal(state, name, made.topic_id, count, more)
    return refused or binding.room_refusal(state, _BINDINGS)


def _wanted(topic: str, made: Made, partitions: int) -> CreateTopic:
    """What would make the topic's quarantine."""
    return CreateTopic(name=name_of(topic), topic_id=made.topic_id, partitions=partitions)


def _make_refusal(state: StateData, wanted: CreateTopic, more: int, at: At) -> Refused | None:
    """Why the quarantine itself is refused, where it is not there: last of all, before anything changes.

    Most of it `_refusal` has said before, and its codes stand before those of the topic's own configs.
    """
    if wanted.name in state.topics:
        return None
    refused = topics.create_refusal(state, wanted, at, more)
    if refused is None:
        return None
    return Refused(refused.code, f"{QUARANTINE}: topic '{wanted.name}' cannot be made: {refused.message}")


def _make(state: StateData, wanted: CreateTopic, made: Made, at: At) -> None:
    """Make the quarantine unless there is one. `_refusal` and `_make_refusal` have nothing against it."""
    if wanted.name in state.topics:
        return
    topic = topics.make(state, wanted, at)
    own = Schema(0, topic.name, binding.VALUE, 0, made.descriptor_set, RECORD, int(BindSchema.PLAIN), False)
    binding.put(state, topic, binding.VALUE, binding.add(state, topic, own), at)
