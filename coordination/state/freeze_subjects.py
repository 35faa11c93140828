"""The schema registry as sections of a snapshot, and back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from coordination.proto import snapshot_pb2 as pb
from coordination.state.subject_types import (
    Reference,
    RegisteredSchema,
    Settings,
    Subject,
    SubjectTable,
    SubjectVersion,
)

SUBJECTS_PER_STEP = 1024


@dataclass(slots=True)
class FrozenSubjects:
    """Notes of the registry; nothing in here changes when the state does."""

    schemas: list[RegisteredSchema] = field(default_factory=list)
    subjects: list[Subject] = field(default_factory=list)
    settings: list[tuple[str, Settings]] = field(default_factory=list)


def note_subject(subject: Subject) -> Subject:
    """The subject, safe from later changes."""
    return Subject(subject.name, subject.revision, dict(subject.versions))


def subject_sections(noted: FrozenSubjects) -> Iterator[pb.Section]:
    """The sections of the registry: schemas, subjects, settings."""
    for schema in noted.schemas:
        yield pb.Section(registered_schema=_schema(schema))
    for subject in noted.subjects:
        versions = subject.versions.values()
        message = pb.Subject(
            name=subject.name,
            revision=subject.revision,
            version=[one.version for one in versions],
            schema_id=[one.schema_id for one in versions],
            deleted=[one.deleted for one in versions],
            changed=[one.revision for one in versions],
        )
        yield pb.Section(subject=message)
    for scope, settings in noted.settings:
        yield pb.Section(subject_settings=pb.SubjectSettings(scope=scope, **settings._asdict()))


def _schema(schema: RegisteredSchema) -> pb.RegisteredSchema:
    references = [
        pb.RegisteredSchema.Reference(name=one.name, subject=one.subject, version=one.version)
        for one in schema.references
    ]
    return pb.RegisteredSchema(
        schema_id=schema.schema_id,
        schema_type=schema.schema_type,
        text=schema.text,
        canonical=schema.canonical,
        references=references,
        metadata=schema.metadata,
        rule_set=schema.rule_set,
        depth=schema.depth,
    )


def thaw_schema(table: SubjectTable, told: pb.RegisteredSchema) -> None:
    """Add a schema."""
    references = tuple(Reference(one.name, one.subject, one.version) for one in told.references)
    table.add_schema(
        RegisteredSchema(
            told.schema_id,
            told.schema_type,
            told.text,
            told.canonical,
            references,
            told.metadata,
            told.rule_set,
            told.depth,
        )
    )


def thaw_subject(table: SubjectTable, told: pb.Subject) -> None:
    """Add a subject with its versions. Raises ValueError and KeyError where they do not fit together."""
    for row in zip(told.version, told.schema_id, told.deleted, told.changed, strict=True):
        version = SubjectVersion(*row)
        if version.schema_id not in table.schemas:
            raise ValueError(
                f"subject {told.name!r} names the schema {version.schema_id}, which is not there"
            )
        table.put_version(told.name, version)
    table.subjects[told.name].revision = told.revision


def thaw_settings(table: SubjectTable, told: pb.SubjectSettings) -> None:
    """Add what was set for one scope."""
    table.settings[told.scope] = Settings(
        told.compatibility, told.normalize, told.mode, told.alias, told.compatibility_group
    )
