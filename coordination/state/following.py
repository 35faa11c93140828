"""Topics whose records name schemas of the registry: which subjects count, and what an id means there.

A binding that follows (types.py Schema.naming) is made by BindSchema, or by the topic's configs, as
Confluent's brokers have them. It has an id of its own, which no frame names: spans name it. A frame may name
the id of any version of its subject that is not deleted. So a version that is registered needs no change
here; one that is hidden has the records judged again that were on their way (`deleted`). One that is
forgotten was hidden before.

Nothing here looks at the feature level: below FOLLOWED_SUBJECTS (levels.py) no topic has such a config, and
schemas.py makes no such binding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from coordination.commands import BindSchema
from coordination.kafka_codes import Code
from coordination.state import binding
from coordination.state.binding import ANY, KEY, VALUE
from coordination.state.data import StateData
from coordination.state.subject_types import RegisteredSchema, SubjectTable, context_of, referred
from coordination.state.types import At, Naming, Refused, Schema, Topic
from coordination.topic_configs import effective, effective_bool

ROLES = {VALUE: "value", KEY: "key"}
VALIDATION = {"key": "confluent.key.schema.validation", "value": "confluent.value.schema.validation"}
SUBJECT_NAMING = {
    "key": "confluent.key.subject.name.strategy",
    "value": "confluent.value.subject.name.strategy",
}
BINDING_CONFIGS = frozenset({*VALIDATION.values(), *SUBJECT_NAMING.values()})
NAMINGS = {
    "TopicNameStrategy": Naming.SUBJECT,
    "RecordNameStrategy": Naming.RECORD,
    "TopicRecordNameStrategy": Naming.TOPIC_RECORD,
}
NAMED_MAX = 5  # subjects that a reason lists


class Meaning(NamedTuple):
    """What an id in a frame means to a binding that follows: the schema, and as which subjects it counts."""

    schema: RegisteredSchema
    subjects: tuple[str, ...]


def configured(topic: str, role: int, configs: Mapping[str, str]) -> Schema | None:
    """What the configs bind the role to, under no id yet; None: nothing. No cluster has a default of them."""
    name = ROLES[role]
    if VALIDATION[name] not in configs or not effective_bool(VALIDATION[name], configs, {}):
        return None
    naming = NAMINGS[effective(SUBJECT_NAMING[name], configs, {}).rpartition(".")[2]]
    return following(topic, role, f"{topic}-{name}" if naming is Naming.SUBJECT else "", naming=naming)


def following(
    topic: str, role: int, subject: str, version: int = 0, message: str = "", naming: Naming = Naming.SUBJECT
) -> Schema:
    """A binding that follows, under no id yet."""
    framing = int(BindSchema.CONFLUENT)
    return Schema(0, topic, role, 0, b"", message, framing, True, subject, version, int(naming))


def held(state: StateData, topic: Topic, wanted: Schema) -> int:
    """The id under which the topic has had this binding before; 0: it has not. No record names it."""
    known = (state.schemas[schema_id] for schema_id in reversed(topic.schema_ids))
    return next((one.schema_id for one in known if replace(one, schema_id=0, version=0) == wanted), 0)


def _changes(
    topic: str, before: Mapping[str, str], after: Mapping[str, str]
) -> Iterator[tuple[int, Schema | None, Schema | None]]:
    if BINDING_CONFIGS.isdisjoint(before) and BINDING_CONFIGS.isdisjoint(after):
        return  # as of most of the thousands of topics that one change may make
    for role in ROLES:
        old, new = configured(topic, role, before), configured(topic, role, after)
        if old != new:
            yield role, old, new


def refusal_of_new(state: StateData, topic: str, configs: Mapping[str, str]) -> Refused | None:
    """Why a new topic may not have these configs; None when it may."""
    count = sum(new is not None for _, _, new in _changes(topic, {}, configs))
    return binding.room_refusal(state, count) if count else None


def refusal_of_change(state: StateData, topic: Topic, configs: Mapping[str, str]) -> Refused | None:
    """Why a topic's configs may not become these, for what they bind it to; None when they may."""
    fresh = 0
    for role, old, new in _changes(topic.name, topic.configs, configs):
        bound = binding.bound_id(topic, role)
        if old is None and bound is not None:
            name = ROLES[role]
            return Refused(
                Code.INVALID_CONFIG,
                f"{VALIDATION[name]}: the {name}s of topic '{topic.name}' are bound (schema {bound}) by Floe "
                f"itself: unbind them first (floe topic bind {topic.name} --unbind {name})",
            )
        known = held(state, topic, new) if new is not None else 0
        fresh += new is not None and not known
        refusal = binding.spans_refusal(state, topic, role, known or (state.next_schema_id if new else 0))
        if refusal is not None:
            return refusal
    return binding.room_refusal(state, fresh) if fresh else None


def follow(state: StateData, topic: Topic, before: Mapping[str, str], at: At) -> None:
    """The topic's configs were `before` and changed: it is bound as they say now. Nothing may refuse it."""
    for role, _, new in _changes(topic.name, before, topic.configs):
        schema_id = None
        if new is not None:
            schema_id = held(state, topic, new) or binding.add(state, topic, new)
        binding.put(state, topic, role, schema_id, at)


def by_configs(topic: Topic, role: int) -> str:
    """The config that has the role bound; empty: none."""
    return VALIDATION[ROLES[role]] if configured(topic.name, role, topic.configs) is not None else ""


def deleted(state: StateData, subject: str, at: At) -> None:
    """Versions of the subject were hidden: records that may name them are judged again."""
    if not state.followers:
        return
    keys = [(int(Naming.SUBJECT), subject)]
    if not context_of(subject):
        dashes = (place for place, letter in enumerate(subject) if letter == "-")
        keys += [(int(Naming.TOPIC_RECORD), subject[:place]) for place in dashes]
        keys.append((int(Naming.RECORD), ANY))
    for name in [name for key in keys for name in state.followers.get(key, ())]:
        binding.judge_again(state, state.topics[name], at)


def meaning(state: StateData, bound: Schema, schema_id: int) -> Meaning | str:
    """What an id means to a binding that follows; or why a record that names it is refused, for people."""
    table = state.subjects
    schema = table.schemas.get(schema_id)
    if schema is None:
        what = "is a topic's binding, and" if schema_id in state.schemas else "is registered nowhere, and"
        return f"Confluent frame names schema {schema_id}, which {what} no version of {_told(bound)}"
    subjects = tuple(_counting(table, bound, schema_id))
    if subjects:
        return Meaning(schema, subjects)
    live = dict.fromkeys(name for name, _ in _live(table, schema_id))
    known = ", ".join([*live][:NAMED_MAX]) + (", …" if len(live) > NAMED_MAX else "")
    of = f"a version of {known}" if known else "a deleted version only"
    return f"Confluent frame names schema {schema_id}, which is {of}, and not of {_told(bound)}"


def meaning_of(state: StateData, bound: Schema, name: int | bytes) -> Meaning | str:
    """The same of a schema that is named by its id or by its identity (the registry's guid).

    An identity counts if one of the ids that have it does.
    """
    if isinstance(name, int):
        return meaning(state, bound, name)
    why = f"Confluent frame names a schema that is registered nowhere, and no version of {_told(bound)}"
    for schema_id in state.subjects.by_identity.get(name, ()):
        found = meaning(state, bound, schema_id)
        if isinstance(found, Meaning):
            return found
        why = found
    return why


def _told(bound: Schema) -> str:
    """The subject that a binding follows, for people."""
    if bound.naming == Naming.SUBJECT:
        only = f"version {bound.subject_version} of " if bound.subject_version else ""
        return f"{only}subject {bound.subject}"
    return "a subject called as the message" + (
        f", after {bound.topic}-" if bound.naming != Naming.RECORD else ""
    )


def _live(table: SubjectTable, schema_id: int) -> Iterator[tuple[str, int]]:
    """Subjects and versions that are this schema and not deleted."""
    for name, version in table.users.get(schema_id, ()):
        if not table.subjects[name].versions[version].deleted:
            yield name, version


def _counting(table: SubjectTable, bound: Schema, schema_id: int) -> Iterator[str]:
    """The subjects that have this schema and may be the binding's, as far as is known of the message."""
    if bound.naming == Naming.SUBJECT:
        subject = table.subjects.get(bound.subject)
        versions = subject.live if subject is not None else []
        if any(one.schema_id == schema_id and bound.subject_version in (0, one.version) for one in versions):
            yield bound.subject
        return
    beginning = f"{bound.topic}-" if bound.naming == Naming.TOPIC_RECORD else ""
    for name in dict.fromkeys(name for name, _ in _live(table, schema_id)):
        if name.startswith(beginning) and not context_of(name):
            yield name


def newest(state: StateData, bound: Schema, message: str = "") -> int:
    """The id of the version that a binding stays at, or of the newest one; 0: it has none.

    `message`: of which the records are that it is asked for, where subjects are called as messages.
    """
    beginning = f"{bound.topic}-" if bound.naming == Naming.TOPIC_RECORD else ""
    name = bound.subject if bound.naming == Naming.SUBJECT else f"{beginning}{message}"
    subject = state.subjects.subjects.get(name)
    versions = subject.live if subject is not None else []
    found = [one for one in versions if bound.subject_version in (0, one.version)]
    return found[-1].schema_id if found else 0


def imported(table: SubjectTable, schema: RegisteredSchema) -> dict[str, bytes]:
    """The canonical forms of all that a schema refers to, over all levels, by the names of its references."""
    found: dict[str, bytes] = {}
    for one, other in referred(table, schema.references):
        found.setdefault(one.name, other.canonical)
    return found
