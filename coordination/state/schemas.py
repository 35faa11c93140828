"""What the keys and values of a topic are bound to: a protobuf message, or a subject of the schema registry.

The author checks the descriptors.
"""

from __future__ import annotations

from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state import binding, bounds, following, topics
from coordination.state.data import StateData
from coordination.state.levels import BINDING_SPANS, FOLLOWED_SUBJECTS
from coordination.state.subjects import NAME_LENGTH_MAX
from coordination.state.types import UNBOUND, At, Done, Partition, Refused, Result, Schema, Span, Topic

DESCRIPTOR_BYTES_MAX = 4 * 1024 * 1024  # one descriptor set; above one entry it travels in parts


def bind_schema(state: StateData, message: BindSchema, at: At) -> Result:
    """Bind or unbind. Done's value: the schema id, the old one when nothing changed, None when unbound."""
    topic = state.topics.get(message.topic)
    if topic is None:
        return topics.unknown(message.topic)
    refusal = _by_configs(topic, message.role)
    if refusal is not None:
        return refusal
    if message.unbind:
        refusal = binding.spans_refusal(state, topic, message.role, 0)
        if refusal is None:
            binding.put(state, topic, message.role, None, at)
        return refusal or Done()
    if message.subject and state.feature_level >= FOLLOWED_SUBJECTS:
        return _follow(state, topic, message, at)
    if not message.message or not message.descriptor_set:
        return Refused(
            Code.INVALID_REQUEST, f"topic {topic.name!r}: descriptor set and message name are needed"
        )
    if len(message.descriptor_set) > DESCRIPTOR_BYTES_MAX:
        return Refused(
            Code.INVALID_REQUEST,
            f"descriptor set of {len(message.descriptor_set)} bytes: at most {DESCRIPTOR_BYTES_MAX}",
        )
    if len(state.schemas) >= binding.SCHEMAS_MAX:
        return Refused(
            Code.POLICY_VIOLATION, f"the cluster has {binding.SCHEMAS_MAX} schemas, the most it takes"
        )
    bound = state.schemas.get(binding.bound_id(topic, message.role) or 0)
    if bound is not None and _same(bound, message):
        return Done(bound.schema_id)
    if min(message.role, message.framing) < 0:  # before KNOWN_VALUES (levels.py) nobody else looks
        return Refused(Code.INVALID_REQUEST, f"role {message.role}, framing {message.framing}: unknown")
    return _bind_anew(state, topic, _own(topic, message), at)


def _own(topic: Topic, message: BindSchema) -> Schema:
    """The binding to a message of its own, under no id yet."""
    role, framing, tombstones = int(message.role), int(message.framing), message.tombstones
    return Schema(0, topic.name, role, 0, message.descriptor_set, message.message, framing, tombstones)


def _by_configs(topic: Topic, role: int) -> Refused | None:
    """Why it is not BindSchema that binds the role: a config does."""
    config = following.by_configs(topic, role) if role in following.ROLES else ""
    if not config:
        return None
    return Refused(
        Code.POLICY_VIOLATION,
        f"the {following.ROLES[role]}s of topic {topic.name!r} are bound by its config {config}: "
        f"set it to false first",
    )


def _follow(state: StateData, topic: Topic, message: BindSchema, at: At) -> Result:
    """Bind to a subject, which need not exist yet; to one version of it only while that is there."""
    problem = ""
    if message.descriptor_set:
        problem = "a subject and a descriptor set: give one of them"
    elif max(len(message.subject), len(message.message)) > NAME_LENGTH_MAX:
        problem = f"subject and message have at most {NAME_LENGTH_MAX} characters"
    elif message.subject_version > bounds.SCHEMA_ID_MAX:
        problem = f"version {message.subject_version}: versions are at most {bounds.SCHEMA_ID_MAX}"
    if problem:
        return Refused(Code.INVALID_REQUEST, f"topic {topic.name!r}: {problem}")
    wanted = following.following(
        topic.name, int(message.role), message.subject, message.subject_version, message.message
    )
    if message.subject_version and not following.newest(state, wanted):
        what = f"version {message.subject_version} of subject {message.subject} does not exist"
        return Refused(Code.RESOURCE_NOT_FOUND, what)
    schema_id = following.held(state, topic, wanted)
    if not schema_id:
        return binding.room_refusal(state) or _bind_anew(state, topic, wanted, at)
    refusal = binding.spans_refusal(state, topic, message.role, schema_id)
    if refusal is None:
        binding.put(state, topic, message.role, schema_id, at)
    return refusal or Done(schema_id)


def _bind_anew(state: StateData, topic: Topic, schema: Schema, at: At) -> Result:
    """Bind to a schema that gets an id of its own."""
    schema_id = state.next_schema_id
    if schema_id > bounds.SCHEMA_ID_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has given all schema ids up to {schema_id}")
    refusal = binding.spans_refusal(state, topic, schema.role, schema_id)
    if refusal is None:
        binding.put(state, topic, schema.role, binding.add(state, topic, schema), at)
    return refusal or Done(schema_id)


def spans_between(state: StateData, partition: Partition, start: int, end: int) -> list[Span]:
    """By which schemas the records at start <= offset < end were judged: spans in order, without gaps.

    The first begins at `start`, neighbours differ; none where the range is empty. Offsets before the first
    span of the partition were bound to nothing (ids 0). Below level BINDING_SPANS all counts as judged by the
    topic's binding of now. Of offsets below the log start nothing is remembered: ask of the state by which
    the records are read. `state.schemas` has all that are named for as long as the topic exists.
    """
    if start >= end:
        return []
    if state.feature_level < BINDING_SPANS:
        return [Span(start, *partition.topic.binding)]
    found = [Span(start, *UNBOUND)]
    for span in partition.spans:
        if span.first_offset >= end:
            break
        if span.first_offset <= start:
            found = [span._replace(first_offset=start)]
        elif span[1:] != found[-1][1:]:
            found.append(span)
    return found


def _same(bound: Schema, message: BindSchema) -> bool:
    return not bound.naming and (bound.descriptor_set, bound.message, bound.framing, bound.tombstones) == (
        message.descriptor_set,
        message.message,
        message.framing,
        message.tombstones,
    )
