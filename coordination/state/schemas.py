"""Which protobuf message the keys and values of a topic are. The author checks the descriptors."""

from __future__ import annotations

from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state import bounds, spans, topics
from coordination.state.data import StateData
from coordination.state.levels import BINDING_SPANS, JUDGED_BATCHES
from coordination.state.types import UNBOUND, At, Done, Partition, Refused, Result, Schema, Span, Topic

DESCRIPTOR_BYTES_MAX = 4 * 1024 * 1024  # one descriptor set; above one entry it travels in parts
SCHEMAS_MAX = 100_000


def bind_schema(state: StateData, message: BindSchema, at: At) -> Result:
    """Bind or unbind. Done's value: the schema id, the old one when nothing changed, None when unbound."""
    topic = state.topics.get(message.topic)
    if topic is None:
        return topics.unknown(message.topic)
    bound = state.schemas.get(_bound_id(topic, message.role) or 0)
    if message.unbind:
        refusal = _spans_refusal(state, topic, message.role, 0)
        if refusal is None:
            _set(state, topic, message.role, None, at)
        return refusal or Done()
    if not message.message or not message.descriptor_set:
        return Refused(
            Code.INVALID_REQUEST, f"topic {topic.name!r}: descriptor set and message name are needed"
        )
    if len(message.descriptor_set) > DESCRIPTOR_BYTES_MAX:
        return Refused(
            Code.INVALID_REQUEST,
            f"descriptor set of {len(message.descriptor_set)} bytes: at most {DESCRIPTOR_BYTES_MAX}",
        )
    if len(state.schemas) >= SCHEMAS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has {SCHEMAS_MAX} schemas, the most it takes")
    if bound is not None and _same(bound, message):
        return Done(bound.schema_id)
    if min(message.role, message.framing) < 0:  # before KNOWN_VALUES (levels.py) nobody else looks
        return Refused(Code.INVALID_REQUEST, f"role {message.role}, framing {message.framing}: unknown")
    return _bind_anew(state, topic, message, at)


def _bind_anew(state: StateData, topic: Topic, message: BindSchema, at: At) -> Result:
    """Bind to a schema that gets an id of its own."""
    schema_id = state.next_schema_id
    if schema_id > bounds.SCHEMA_ID_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has given all schema ids up to {schema_id}")
    refusal = _spans_refusal(state, topic, message.role, schema_id)
    if refusal is not None:
        return refusal
    state.next_schema_id += 1
    state.schemas[schema_id] = Schema(
        schema_id,
        topic.name,
        message.role,
        _newest_version(state, topic, message.role) + 1,
        message.descriptor_set,
        message.message,
        message.framing,
        message.tombstones,
    )
    topic.schema_ids.append(schema_id)
    _set(state, topic, message.role, schema_id, at)
    return Done(schema_id)


def _newest_version(state: StateData, topic: Topic, role: int) -> int:
    """The highest version that the role ever had on the topic; 0: none. Versions of a role rise."""
    newest = (state.schemas[schema_id] for schema_id in reversed(topic.schema_ids))
    return next((schema.version for schema in newest if schema.role == role), 0)


def _bound_id(topic: Topic, role: int) -> int | None:
    return topic.key_schema_id if role == BindSchema.KEY else topic.value_schema_id


def _spans_refusal(state: StateData, topic: Topic, role: int, schema_id: int) -> Refused | None:
    if state.feature_level < BINDING_SPANS:
        return None
    key, value = topic.binding
    return spans.refusal(topic, (schema_id, value) if role == BindSchema.KEY else (key, schema_id))


def _set(state: StateData, topic: Topic, role: int, schema_id: int | None, at: At) -> None:
    """Records of the topic that were judged before a change of this are to be judged again."""
    if state.feature_level >= JUDGED_BATCHES and _bound_id(topic, role) != schema_id:
        topic.bound_revision = state.bound_revision = at.revision
    if role == BindSchema.KEY:
        topic.key_schema_id = schema_id
    else:
        topic.value_schema_id = schema_id
    if state.feature_level >= BINDING_SPANS:
        spans.expect(topic)


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
    return (bound.descriptor_set, bound.message, bound.framing, bound.tombstones) == (
        message.descriptor_set,
        message.message,
        message.framing,
        message.tombstones,
    )
