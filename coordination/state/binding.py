"""What keys and values of a topic are bound to, and what a change of that takes along.

Records that were judged by another binding are refused and judged again (chunks.py), the next record of each
partition begins a span (spans.py), and whose deletions count is noted (following.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state import bounds, spans
from coordination.state.data import StateData
from coordination.state.levels import BINDING_SPANS, JUDGED_BATCHES, QUARANTINES
from coordination.state.quarantine_names import SUFFIX, asked_for, topic_of
from coordination.state.types import At, Naming, Refused, Schema, Topic

SCHEMAS_MAX = 100_000
VALUE, KEY = int(BindSchema.VALUE), int(BindSchema.KEY)
ANY = ""  # in the place of a name: all


def bound_id(topic: Topic, role: int) -> int | None:
    """The id of what the role is bound to; None: to nothing."""
    return topic.key_schema_id if role == KEY else topic.value_schema_id


def room_refusal(state: StateData, more: int = 1) -> Refused | None:
    """Why the cluster takes no more schemas; None when it does."""
    if len(state.schemas) + more > SCHEMAS_MAX:
        return Refused(Code.POLICY_VIOLATION, f"the cluster has {SCHEMAS_MAX} schemas, the most it takes")
    if state.next_schema_id + more - 1 > bounds.SCHEMA_ID_MAX:
        given = f"the cluster has given all schema ids up to {bounds.SCHEMA_ID_MAX}"
        return Refused(Code.POLICY_VIOLATION, given)
    return None


def spans_refusal(state: StateData, topic: Topic, role: int, schema_id: int) -> Refused | None:
    """Why the role may not be bound to this now (0: to nothing): a partition could have one span too many."""
    if state.feature_level < BINDING_SPANS:
        return None
    key, value = topic.binding
    return spans.refusal(topic, (schema_id, value) if role == KEY else (key, schema_id))


def add(state: StateData, topic: Topic, schema: Schema) -> int:
    """Hold a schema of the topic, under an id and a version of its own. There must be room. Its id."""
    schema_id = state.next_schema_id
    state.next_schema_id += 1
    version = _newest_version(state, topic, schema.role) + 1
    state.schemas[schema_id] = replace(schema, schema_id=schema_id, version=version)
    topic.schema_ids.append(schema_id)
    return schema_id


def _newest_version(state: StateData, topic: Topic, role: int) -> int:
    """The highest version that the role ever had on the topic; 0: none. Versions of a role rise."""
    newest = (state.schemas[schema_id] for schema_id in reversed(topic.schema_ids))
    return next((schema.version for schema in newest if schema.role == role), 0)


def put(state: StateData, topic: Topic, role: int, schema_id: int | None, at: At) -> None:
    """Bind. Records of the topic that were judged before a change of this are to be judged again."""
    if state.feature_level >= JUDGED_BATCHES and bound_id(topic, role) != schema_id:
        judge_again(state, topic, at)
    forget(state, topic)
    if role == KEY:
        topic.key_schema_id = schema_id
    else:
        topic.value_schema_id = schema_id
    note(state, topic)
    if state.feature_level >= BINDING_SPANS:
        spans.expect(topic)


def judge_again(state: StateData, topic: Topic, at: At) -> None:
    """Records of the topic that were judged before this entry are refused."""
    topic.bound_revision = state.bound_revision = at.revision
    judge_kept(state, topic, at)


def judge_kept(state: StateData, topic: Topic, at: At) -> None:
    """The topic is not what it was: if it is a quarantine, so are records of the topic that it belongs to.

    A batch whose bad records have no place any more is refused (companions.py); what was judged with it and
    is on its way behind it must not come before it.
    """
    if state.feature_level < QUARANTINES or not topic.name.endswith(SUFFIX):
        return
    led = state.topics.get(topic_of(topic.name))
    if led is not None and asked_for(led.configs.items()):
        led.bound_revision = state.bound_revision = at.revision


def note(state: StateData, topic: Topic) -> None:
    """The topic is bound as it is now: by whose deletions its records are to be judged again."""
    for key in _followed(state, topic):
        state.followers.setdefault(key, {})[topic.name] = None


def forget(state: StateData, topic: Topic) -> None:
    """The topic is gone, or about to be bound to something else."""
    for key in _followed(state, topic):
        topics = state.followers.get(key, {})
        topics.pop(topic.name, None)
        if not topics:
            state.followers.pop(key, None)


def _followed(state: StateData, topic: Topic) -> Iterator[tuple[int, str]]:
    """Of keys and values: how the subject is found, and the subject, the topic's name, or ANY."""
    for schema_id in topic.binding:
        schema = state.schemas.get(schema_id)
        if schema is None or not schema.naming:
            continue
        name = {Naming.SUBJECT: schema.subject, Naming.TOPIC_RECORD: topic.name}.get(
            Naming(schema.naming), ANY
        )
        yield schema.naming, name
