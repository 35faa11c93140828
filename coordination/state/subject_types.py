"""What the schema registry is made of: schemas by id, subjects with versions of them, what was set for whom.

A subject's name begins with its context (":.context:subject"), but in the default one. An id has one content
in the whole cluster, also over contexts: records name nothing but the id.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from coordination.commands import PutSubjectSettings

Compatibility = PutSubjectSettings.Compatibility
Mode = PutSubjectSettings.Mode
Normalize = PutSubjectSettings.Normalize

IDENTITY_BYTES = 16
_K = TypeVar("_K")
_V = TypeVar("_V")
GLOBAL = ""  # the scope of what is set for all


class Reference(NamedTuple):
    """A schema names another subject's version; `name` is what it is called there (an import path)."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One schema. `canonical` is what it means, `text` how it was said; `depth` 1: it refers to nothing."""

    schema_id: int
    schema_type: str
    text: str
    canonical: bytes
    references: tuple[Reference, ...]
    metadata: str
    rule_set: str
    depth: int

    @property
    def identity(self) -> bytes:
        """Schemas that mean the same have the same, whatever their ids and words."""
        return identity(self.schema_type, self.canonical, self.references, self.metadata, self.rule_set)

    @property
    def size(self) -> int:
        """Bytes that it holds, about."""
        texts = sum(len(text) for text in (self.text, self.metadata, self.rule_set))
        return texts + len(self.canonical) + sum(len(one.name) + len(one.subject) for one in self.references)


def identity(
    schema_type: str, canonical: bytes, references: Sequence[Reference], metadata: str, rule_set: str
) -> bytes:
    """IDENTITY_BYTES by which a schema is looked up; the text is no part of it."""
    digest = blake2b(digest_size=IDENTITY_BYTES)
    names = [part for one in references for part in (one.name, one.subject, str(one.version))]
    for part in (schema_type, metadata, rule_set, *names):
        content = part.encode()
        digest.update(b"%d:" % len(content) + content)
    digest.update(canonical)
    return digest.digest()


class SubjectVersion(NamedTuple):
    """A schema as a version of a subject; `revision` of its last change. Deleted: hidden, not yet gone."""

    version: int
    schema_id: int
    deleted: bool
    revision: int


@dataclass(slots=True)
class Subject:
    """`versions` ascend; `revision` is that of the last change of any."""

    name: str
    revision: int
    versions: dict[int, SubjectVersion] = field(default_factory=dict)

    @property
    def live(self) -> list[SubjectVersion]:
        """Those that are not deleted, oldest first."""
        return [one for one in self.versions.values() if not one.deleted]


class Settings(NamedTuple):
    """What was set for a subject, a context or all, by log.proto PutSubjectSettings; 0, "": nothing."""

    compatibility: int = 0
    normalize: int = 0
    mode: int = 0
    alias: str = ""
    compatibility_group: str = ""

    @property
    def config(self) -> Settings:
        """All but the mode."""
        return self._replace(mode=0)


class SubjectTable:
    """All of the registry. What follows from the rest is kept, so that nobody has to go over it."""

    __slots__ = (
        "by_identity",
        "bytes_held",
        "contexts",
        "referrers",
        "schemas",
        "settings",
        "settings_revision",
        "subjects",
        "users",
        "version_count",
    )

    def __init__(self) -> None:
        self.schemas: dict[int, RegisteredSchema] = {}  # by id; each behind those that it refers to
        self.subjects: dict[str, Subject] = {}
        self.settings: dict[str, Settings] = {}  # by scope
        self.settings_revision = 0  # of the last change of any
        # From here on it follows from the rest. Dicts of None are sets with an order.
        self.by_identity: dict[bytes, dict[int, None]] = {}  # ids of one content; several by import only
        self.users: dict[int, dict[tuple[str, int], None]] = {}  # by id: versions that are this schema
        self.referrers: dict[tuple[str, int], dict[int, None]] = {}  # by version: ids that refer to it
        self.contexts: dict[str, int] = {}  # how many subjects each has
        self.version_count = 0
        self.bytes_held = 0

    def add_schema(self, schema: RegisteredSchema) -> None:
        """Hold a schema whose id is free."""
        self.schemas[schema.schema_id] = schema
        self.by_identity.setdefault(schema.identity, {})[schema.schema_id] = None
        for one in schema.references:
            self.referrers.setdefault((one.subject, one.version), {})[schema.schema_id] = None
        self.bytes_held += schema.size

    def _drop_schema(self, schema_id: int) -> None:
        schema = self.schemas.pop(schema_id)
        _take_out(self.by_identity, schema.identity, schema_id)
        for place in dict.fromkeys((one.subject, one.version) for one in schema.references):
            _take_out(self.referrers, place, schema_id)
        self.bytes_held -= schema.size

    def named(self, name: int | bytes) -> RegisteredSchema | None:
        """The schema with this id, or with this identity (the first, where an import gave it several ids)."""
        if isinstance(name, int):
            return self.schemas.get(name)
        ids = self.by_identity.get(name)
        return self.schemas[next(iter(ids))] if ids else None

    def put_version(self, name: str, version: SubjectVersion) -> None:
        """Make or replace a version of a subject, which is made when it is the first."""
        subject = self.subjects.get(name)
        if subject is None:
            subject = self.subjects[name] = Subject(name, version.revision)
            context = context_of(name)
            self.contexts[context] = self.contexts.get(context, 0) + 1
        subject.revision = max(subject.revision, version.revision)
        before = subject.versions.get(version.version)
        if before is None:
            self.version_count += 1
            behind = next(reversed(subject.versions), 0) > version.version
        else:
            _take_out(self.users, before.schema_id, (name, version.version))
            behind = False
        subject.versions[version.version] = version
        if behind:  # an import may come in any order
            subject.versions = dict(sorted(subject.versions.items()))
        self.users.setdefault(version.schema_id, {})[name, version.version] = None

    def drop_version(self, name: str, version: int, revision: int) -> None:
        """Forget a version, and the subject with its last one, and a schema that no version is any more."""
        subject = self.subjects[name]
        dropped = subject.versions.pop(version)
        subject.revision = revision
        self.version_count -= 1
        if not subject.versions:
            del self.subjects[name]
            context = context_of(name)
            self.contexts[context] -= 1
            if not self.contexts[context]:
                del self.contexts[context]
        _take_out(self.users, dropped.schema_id, (name, version))
        if dropped.schema_id not in self.users:
            self._drop_schema(dropped.schema_id)


def _take_out(sets: dict[_K, dict[_V, None]], key: _K, value: _V) -> None:
    """Take one out of a set, and the set away when it was the last."""
    del sets[key][value]
    if not sets[key]:
        del sets[key]


def referred(
    table: SubjectTable, references: Sequence[Reference]
) -> Iterator[tuple[Reference, RegisteredSchema]]:
    """The references and those of what they name, over all levels, each with its schema; each once."""
    waiting, seen = list(references), set()
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            schema = table.schemas[table.subjects[one.subject].versions[one.version].schema_id]
            yield one, schema
            waiting += schema.references


def context_of(subject: str) -> str:
    """The ":.context:" that the name begins with, the context's scope as well; empty: the default one."""
    end = subject.find(":", 2) if subject.startswith(":.") else -1
    context = subject[: end + 1]
    return "" if context == ":.:" else context


def in_force(table: SubjectTable, subject: str) -> Settings:
    """What applies to a subject: what was set for it, else for its context, else for all; 0: nothing was.

    READONLY_OVERRIDE for all stands above everything; an alias is the subject's own.
    """
    scopes = dict.fromkeys((subject, context_of(subject), GLOBAL))
    held = [table.settings.get(scope, Settings()) for scope in scopes]
    numbers = [(one.compatibility, one.normalize, one.mode) for one in held]
    compatibility, normalize, mode = (
        next((one[place] for one in numbers if one[place]), 0) for place in range(3)
    )
    if held[-1].mode == Mode.READONLY_OVERRIDE:
        mode = Mode.READONLY_OVERRIDE
    group = next((one.compatibility_group for one in held if one.compatibility_group), "")
    return Settings(compatibility, normalize, mode, held[0].alias, group)


def meant(table: SubjectTable, subject: str) -> str:
    """The subject that a name means: the one that it is an alias of (one step), else itself."""
    return table.settings.get(subject, Settings()).alias or subject
