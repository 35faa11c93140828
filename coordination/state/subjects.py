"""Schemas are registered under subjects and deleted again. Their authors parse and judge them.

An author judges by what it has applied; where that changed since, apply refuses with INVALID_UPDATE_VERSION
and the author judges again. So of two that register for one subject at once each is judged by all before it.
"""

from __future__ import annotations

from dataclasses import replace

from coordination.commands import DeleteSchemaVersions, RegisterSchema
from coordination.kafka_codes import Code
from coordination.state import bounds, following
from coordination.state.data import StateData
from coordination.state.subject_types import (
    Mode,
    Reference,
    RegisteredSchema,
    Subject,
    SubjectVersion,
    in_force,
)
from coordination.state.types import At, Done, Refused, Result

TEXT_BYTES_MAX = 1 << 20  # of a schema, and of its canonical form
RULES_BYTES_MAX = 256 << 10  # of metadata and rule set together
NAME_LENGTH_MAX = 1024  # of a subject or of a reference, characters
TYPE_LENGTH_MAX = 32
REFERENCES_MAX = 256  # of one schema
DEPTH_MAX = 32  # schemas that refer to one another, in a chain
SUBJECTS_MAX = 100_000
VERSIONS_MAX = 200_000  # of all subjects, deleted ones too
VERSIONS_PER_SUBJECT_MAX = 5_000
BYTES_HELD_MAX = 512 << 20  # of all schemas together

READ_ONLY = (Mode.READONLY, Mode.READONLY_OVERRIDE)


def register_schema(state: StateData, message: RegisterSchema, at: At) -> Result:
    """Register a schema. Done's value: its id and version, those of before where the subject has it already.

    Refused: INVALID_UPDATE_VERSION where it is to be judged again, POLICY_VIOLATION by the mode or a bound,
    DUPLICATE_RESOURCE for an id or a version that is taken.
    """
    refusal = _malformed(message)
    if refusal is not None:
        return refusal
    wanted = _wanted(message, 0)
    found = registered(state, message.subject, wanted.identity)
    if found is not None and _is_given(message, found) and _same(state, found.schema_id, wanted):
        return Done((found.schema_id, found.version))
    refusal = (
        mode_refusal(state, message.subject, message.schema_id)
        or _stale(state, message)
        or _references_refusal(state, message)
    )
    if refusal is not None:
        return refusal
    known = state.subjects.by_identity.get(wanted.identity, {})
    schema_id = message.schema_id or next(iter(known), 0)
    held = schema_id in state.subjects.schemas
    if held and not _same(state, schema_id, wanted):
        return Refused(Code.DUPLICATE_RESOURCE, f"id {schema_id} is of another schema")
    placed = _place(state, message, schema_id)
    if isinstance(placed, int):
        return _register(state, message, schema_id, placed, at)
    return placed


def _is_given(message: RegisterSchema, found: SubjectVersion) -> bool:
    """Whether a version that the subject has is the one asked for, by the id and version that were given."""
    return message.schema_id in (0, found.schema_id) and message.version in (0, found.version)


def _same(state: StateData, schema_id: int, wanted: RegisteredSchema) -> bool:
    """Whether the id has this content: equal identities alone could be made by somebody who means harm."""
    known = replace(state.subjects.schemas[schema_id], schema_id=0, text="", depth=0)
    return known == replace(wanted, schema_id=0, text="", depth=0)


def registered(
    state: StateData, subject: str, sought: bytes, *, deleted: bool = False
) -> SubjectVersion | None:
    """The oldest version of the subject whose schema has this identity, deleted ones only where asked for."""
    table = state.subjects
    held = table.subjects.get(subject)
    if held is None:
        return None
    ids = table.by_identity.get(sought, {})
    found = (one for one in held.versions.values() if one.schema_id in ids)
    return next((one for one in found if deleted or not one.deleted), None)


def _wanted(message: RegisterSchema, schema_id: int, depth: int = 1) -> RegisteredSchema:
    return RegisteredSchema(
        schema_id,
        message.schema_type,
        message.text,
        message.canonical,
        tuple(Reference(one.name, one.subject, one.version) for one in message.references),
        message.metadata,
        message.rule_set,
        depth,
    )


def _malformed(message: RegisterSchema) -> Refused | None:
    """Why what the command holds cannot be a schema."""
    names = [message.subject, *(name for one in message.references for name in (one.name, one.subject))]
    problem = ""
    if not all(0 < len(name) <= NAME_LENGTH_MAX for name in names):
        problem = f"names of subjects and references have 1 to {NAME_LENGTH_MAX} characters"
    elif not 0 < len(message.schema_type) <= TYPE_LENGTH_MAX or not message.canonical:
        problem = "type and canonical form are needed"
    elif max(len(message.text.encode()), len(message.canonical)) > TEXT_BYTES_MAX:
        problem = f"a schema has at most {TEXT_BYTES_MAX} bytes"
    elif len(message.metadata.encode()) + len(message.rule_set.encode()) > RULES_BYTES_MAX:
        problem = f"metadata and rule set have at most {RULES_BYTES_MAX} bytes"
    elif len(message.references) > REFERENCES_MAX:
        problem = f"a schema has at most {REFERENCES_MAX} references"
    elif max(message.schema_id, message.version) > bounds.SCHEMA_ID_MAX:
        problem = f"ids and versions are at most {bounds.SCHEMA_ID_MAX}"
    elif message.version and not message.schema_id:
        problem = "a version is given with an id only"
    return Refused(Code.INVALID_REQUEST, problem) if problem else None


def mode_refusal(state: StateData, subject: str, schema_id: int) -> Refused | None:
    """Why the subject's mode does not let a schema be registered, with an id that is given or without (0)."""
    mode = in_force(state.subjects, subject).mode or Mode.READWRITE
    if mode in READ_ONLY:
        return Refused(Code.POLICY_VIOLATION, f"Subject {subject} is in read-only mode")
    if schema_id and mode != Mode.IMPORT:
        return Refused(Code.POLICY_VIOLATION, f"Subject {subject} is not in import mode")
    if not schema_id and mode != Mode.READWRITE:
        return Refused(Code.POLICY_VIOLATION, f"Subject {subject} is not in read-write mode")
    return None


def _stale(state: StateData, message: RegisterSchema) -> Refused | None:
    """Whether what the schema was judged by changed since."""
    table = state.subjects
    subject = table.subjects.get(message.subject)
    newest = max(table.settings_revision, subject.revision if subject is not None else 0)
    if newest <= message.judged_revision:
        return None
    what = f"subject {message.subject} or settings changed at {newest}, judged at {message.judged_revision}"
    return Refused(Code.INVALID_UPDATE_VERSION, what)


def _references_refusal(state: StateData, message: RegisterSchema) -> Refused | None:
    """What it refers to must be there, as it was when the author resolved it."""
    for one in message.references:
        subject = state.subjects.subjects.get(one.subject)
        version = subject.versions.get(one.version) if subject is not None else None
        if version is None or version.deleted or version.revision > message.judged_revision:
            what = f"reference {one.name}: version {one.version} of {one.subject} is gone or another"
            return Refused(Code.INVALID_UPDATE_VERSION, what)
        if state.subjects.schemas[version.schema_id].depth >= DEPTH_MAX:
            return Refused(Code.INVALID_REQUEST, f"more than {DEPTH_MAX} schemas refer to one another")
    return None


def _depth(state: StateData, message: RegisterSchema) -> int:
    table = state.subjects
    named = (table.subjects[one.subject].versions[one.version] for one in message.references)
    return 1 + max((table.schemas[one.schema_id].depth for one in named), default=0)


def _place(state: StateData, message: RegisterSchema, schema_id: int) -> int | Result:
    """Which version it becomes; Done where the version given is it already; why it finds no room."""
    table = state.subjects
    subject = table.subjects.get(message.subject)
    versions = subject.versions if subject is not None else {}
    taken = versions.get(message.version) if message.version else None
    if taken is not None and taken.schema_id == schema_id and not taken.deleted:
        return Done((schema_id, taken.version))
    if taken is not None:
        what = f"version {taken.version} of subject {message.subject} has the id {taken.schema_id}"
        return Refused(Code.DUPLICATE_RESOURCE, what)
    if schema_id and schema_id in state.schemas:
        return Refused(Code.DUPLICATE_RESOURCE, f"id {schema_id} is of a topic's binding")
    refusal = _full(state, message, schema_id, subject)
    return refusal or message.version or next(reversed(versions), 0) + 1


def _full(
    state: StateData, message: RegisterSchema, schema_id: int, subject: Subject | None
) -> Refused | None:
    """Which bound one more would be above."""
    table = state.subjects
    problem = ""
    if subject is None and len(table.subjects) >= SUBJECTS_MAX:
        problem = f"there are {SUBJECTS_MAX} subjects, the most that there can be"
    elif table.version_count >= VERSIONS_MAX:
        problem = f"there are {VERSIONS_MAX} versions, the most that there can be"
    elif subject is not None and len(subject.versions) >= VERSIONS_PER_SUBJECT_MAX:
        problem = f"the subject has {VERSIONS_PER_SUBJECT_MAX} versions, the most that one can have"
    elif subject is not None and not message.version and bounds.SCHEMA_ID_MAX in subject.versions:
        problem = "the subject has the highest version that there is"
    elif not schema_id and state.next_schema_id > bounds.SCHEMA_ID_MAX:
        problem = f"all ids up to {bounds.SCHEMA_ID_MAX} are given"
    elif schema_id not in table.schemas and table.bytes_held + _wanted(message, 0).size > BYTES_HELD_MAX:
        problem = f"all schemas together may have {BYTES_HELD_MAX} bytes"
    return Refused(Code.POLICY_VIOLATION, problem) if problem else None


def _register(
    state: StateData,
    message: RegisterSchema,
    schema_id: int,
    version: int,
    at: At,
) -> Result:
    schema_id = schema_id or state.next_schema_id
    if schema_id not in state.subjects.schemas:
        state.next_schema_id = max(state.next_schema_id, schema_id + 1)
        state.subjects.add_schema(_wanted(message, schema_id, _depth(state, message)))
    state.subjects.put_version(message.subject, SubjectVersion(version, schema_id, False, at.revision))
    return Done((schema_id, version))


def delete_schema_versions(state: StateData, message: DeleteSchemaVersions, at: At) -> Result:
    """Hide versions, or forget hidden ones for good. Done's value: which, ascending.

    Refused: RESOURCE_NOT_FOUND for a version that is not there, INVALID_REQUEST for one that was not deleted
    before it is for good, DUPLICATE_RESOURCE where schemas refer to one, POLICY_VIOLATION by the mode.
    """
    subject = state.subjects.subjects.get(message.subject)
    if subject is None:
        return Refused(Code.RESOURCE_NOT_FOUND, f"subject {message.subject} does not exist")
    if in_force(state.subjects, subject.name).mode in READ_ONLY:
        return Refused(Code.POLICY_VIOLATION, f"Subject {subject.name} is in read-only mode")
    every = subject.versions.values() if message.permanent else subject.live
    named = dict.fromkeys(message.version) or [one.version for one in every]
    refusal = None if named else Refused(Code.RESOURCE_NOT_FOUND, f"subject {subject.name} is deleted")
    for version in named:
        refusal = refusal or _kept(state, subject, version, permanent=message.permanent)
    if refusal is not None:
        return refusal
    for version in sorted(named):
        if message.permanent:
            state.subjects.drop_version(subject.name, version, at.revision)
        else:
            hidden = subject.versions[version]._replace(deleted=True, revision=at.revision)
            state.subjects.put_version(subject.name, hidden)
    if not message.permanent:
        following.deleted(state, subject.name, at)
    if not subject.live and state.subjects.settings.pop(subject.name, None) is not None:
        state.subjects.settings_revision = at.revision  # what was set for it goes with it
    return Done(tuple(sorted(named)))


def _kept(state: StateData, subject: Subject, version: int, *, permanent: bool) -> Refused | None:
    """Why a version cannot be deleted."""
    known = subject.versions.get(version)
    if known is None or (known.deleted and not permanent):
        return Refused(Code.RESOURCE_NOT_FOUND, f"version {version} of subject {subject.name} does not exist")
    if permanent and not known.deleted:
        what = f"version {version} of subject {subject.name} was not deleted before"
        return Refused(Code.INVALID_REQUEST, what)
    if referrer := referring(state, subject.name, version, deleted=permanent):
        what = f"schema {referrer[0]} refers to version {version} of subject {subject.name}"
        return Refused(Code.DUPLICATE_RESOURCE, what)
    return None


def referring(state: StateData, subject: str, version: int, *, deleted: bool = False) -> list[int]:
    """Ids, ascending, of schemas that refer to a version; of deleted ones only where asked for."""
    table = state.subjects

    def counts(schema_id: int) -> bool:
        users = table.users[schema_id]
        return deleted or any(not table.subjects[name].versions[number].deleted for name, number in users)

    return sorted(one for one in table.referrers.get((subject, version), {}) if counts(one))
