"""Bindings as JSON: those of now, all that a topic ever had, and which of them judged its records.

What there can be most of goes over several answers: each says where the next one begins.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from contextlib import suppress

from coordination.commands import BindSchema
from coordination.state import State
from coordination.state.following import imported
from coordination.state.schemas import DESCRIPTOR_BYTES_MAX, spans_between
from coordination.state.subject_types import RegisteredSchema
from coordination.state.types import Naming, Partition, Schema, Topic
from schema import framing
from schema.followed import PROTOBUF
from schema.registry import protobuf
from schema.registry.parsed import Imports, InvalidSchema

SCHEMAS_PER_ANSWER = 1_000
DESCRIPTOR_BYTES_PER_ANSWER = DESCRIPTOR_BYTES_MAX  # one goes along, however large it is
SPANS_PER_ANSWER = 2_000  # about: the last partition is told whole
ROLES: dict[int, str] = {number: name.lower() for name, number in BindSchema.Role.items()}
FRAMINGS: dict[int, str] = {number: name.lower() for name, number in BindSchema.Framing.items()}


def bound_now(state: State, topic: Topic) -> list[Schema]:
    """The schemas of its values and its keys, as far as it has them."""
    ids = (topic.value_schema_id, topic.key_schema_id)
    return [state.schemas[schema_id] for schema_id in ids if schema_id is not None]


def bound_ever(
    state: State, topic: Topic, after: int, *, descriptors: bool
) -> tuple[list[Schema], int | None]:
    """Schemas with ids above `after`, oldest first, and after which to go on, None behind the last.

    At most SCHEMAS_PER_ANSWER; where their `descriptors` are asked for, of DESCRIPTOR_BYTES_PER_ANSWER.
    """
    first = bisect_right(topic.schema_ids, after)
    found: list[Schema] = []
    size = 0
    for schema_id in topic.schema_ids[first : first + SCHEMAS_PER_ANSWER]:
        schema = state.schemas[schema_id]
        size += len(schema.descriptor_set) if descriptors else 0
        if found and size > DESCRIPTOR_BYTES_PER_ANSWER:
            break
        found.append(schema)
    more = first + len(found) < len(topic.schema_ids)
    return found, found[-1].schema_id if more else None


def spans_of(state: State, topic: Topic, first: int) -> tuple[list[dict[str, object]], int | None]:
    """By which schemas the records of partitions from index `first` on were judged, and where to go on."""
    found: list[dict[str, object]] = []
    count = 0
    for partition in topic.partitions[first:]:
        if count >= SPANS_PER_ANSWER:
            return found, partition.index
        spans = _spans(state, partition)
        count += len(spans) + 1
        found.append({"partition": partition.index, "end": partition.high_watermark, "spans": spans})
    return found, None


def _spans(state: State, partition: Partition) -> list[dict[str, int | None]]:
    return [
        {"first_offset": first, "key_schema_id": key or None, "value_schema_id": value or None}
        for first, key, value in spans_between(
            state, partition, partition.log_start, partition.high_watermark
        )
    ]


def registered_of(
    state: State, topic: Topic, after: int
) -> tuple[list[tuple[RegisteredSchema, dict[str, bytes]]], int | None]:
    """Schemas of the registry that records may name, with what they import: ids above `after`, ascending.

    Those of all subjects that a binding of the topic ever named, deleted versions too; subjects that are
    called as messages are not looked for. Further: after which id to go on. Bounded as `bound_ever`.
    """
    table = state.subjects
    bound = (state.schemas[schema_id] for schema_id in topic.schema_ids)
    names = dict.fromkeys(one.subject for one in bound if one.naming == Naming.SUBJECT)
    subjects = (table.subjects[name] for name in names if name in table.subjects)
    ids = sorted({one.schema_id for each in subjects for one in each.versions.values()})
    first, size = bisect_right(ids, after), 0
    found: list[tuple[RegisteredSchema, dict[str, bytes]]] = []
    for schema_id in ids[first : first + SCHEMAS_PER_ANSWER]:
        schema = table.schemas[schema_id]
        imports = imported(table, schema)
        size += len(schema.canonical) + sum(map(len, imports.values()))
        if found and size > DESCRIPTOR_BYTES_PER_ANSWER:
            break
        found.append((schema, imports))
    more = first + len(found) < len(ids)
    return found, found[-1][0].schema_id if more else None


def registered_as_json(schema: RegisteredSchema, imports: Imports) -> dict[str, object]:
    """One of them, in base64: of PROTOBUF its files, itself last, of other types the canonical form and those
    of what it refers to, by name. Blocks as protobuf.descriptor_set.
    """
    told: dict[str, object] = {
        "schema_id": schema.schema_id,
        "guid": framing.shown(schema.identity),
        "schema_type": schema.schema_type,
    }
    files = b""
    if schema.schema_type == PROTOBUF:
        with suppress(InvalidSchema):
            files = protobuf.descriptor_set(schema.canonical, imports)
    else:
        told["form"] = base64.b64encode(schema.canonical).decode()
        told["imports"] = {name: base64.b64encode(each).decode() for name, each in imports.items()}
    return told | {"descriptor_set": base64.b64encode(files).decode()}


def as_json(schema: Schema, *, descriptors: bool = True) -> dict[str, object]:
    """One schema; its descriptor set in base64. Of one that follows a subject it is empty."""
    shown: dict[str, object] = {
        "schema_id": schema.schema_id,
        "role": ROLES[schema.role],
        "version": schema.version,
        "message": schema.message,
        "framing": FRAMINGS[schema.framing],
        "tombstones": schema.tombstones,
    }
    if schema.naming:
        shown["naming"] = Naming(schema.naming).name.lower()
        shown["subject"], shown["subject_version"] = schema.subject or None, schema.subject_version or None
    if descriptors:
        shown["descriptor_set"] = base64.b64encode(schema.descriptor_set).decode()
    return shown
