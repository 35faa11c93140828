"""A schema of a request: read, with what it refers to, and compared with versions of the subject.

What is taken from the state is of one moment, with that moment's revision; then threads parse and compare.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.http.answers import Problem
from agent.http.registry.errors import invalid_schema
from agent.http.registry.requests import qualified
from agent.http.registry.shown import DEFAULT_TYPE
from coordination.state.subject_types import (
    Compatibility,
    Normalize,
    Reference,
    RegisteredSchema,
    SubjectTable,
    SubjectVersion,
    context_of,
    in_force,
    referred,
)
from coordination.state.subjects import NAME_LENGTH_MAX, REFERENCES_MAX, TEXT_BYTES_MAX
from objectstore.turns import Turns, in_turns
from schema.registry.avro import schema as avro
from schema.registry.compatibility import DEFAULT, Earlier, Loaded, problems
from schema.registry.kinds import KINDS
from schema.registry.parsed import Imports, InvalidSchema, Parsed

PARSED_AT_ONCE_MAX = 2  # each is a process of its own
COMPARED_AT_ONCE_MAX = 2  # each may take a core for seconds
_T = TypeVar("_T")
Number = Annotated[int, Field(strict=True, ge=-1, lt=1 << 31)]


class ReferenceGiven(BaseModel):
    """A reference in a request; version -1 is the latest."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX)]
    subject: Annotated[str, Field(min_length=1, max_length=NAME_LENGTH_MAX)]
    version: Number = -1


class SchemaGiven(BaseModel):
    """A schema in a request."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    schema_text: Annotated[str, Field(alias="schema", max_length=2 * TEXT_BYTES_MAX)] = ""
    schema_type: Annotated[str | None, Field(alias="schemaType")] = None
    references: Annotated[list[ReferenceGiven] | None, Field(max_length=REFERENCES_MAX)] = None
    metadata: dict[str, Any] | None = None
    rule_set: Annotated[dict[str, Any] | None, Field(alias="ruleSet")] = None
    id: Number | None = None
    version: Number | None = None

    @property
    def kind(self) -> str:
        """The type."""
        return (self.schema_type or DEFAULT_TYPE).upper()


class Wanted(NamedTuple):
    """A schema that was read, as it is to be looked for or registered."""

    schema_type: str
    parsed: Parsed
    references: tuple[Reference, ...]
    metadata: str
    rule_set: str
    imports: Imports


class Version(NamedTuple):
    """A version that a schema is compared with, taken from the state."""

    version: int
    schema: RegisteredSchema
    imports: Imports


def schema_given(body: Mapping[str, object]) -> SchemaGiven:
    """The schema of a body. Raises RegistryProblem 42201."""
    try:
        given = SchemaGiven.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise invalid_schema(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if given.kind not in KINDS:
        raise invalid_schema(f"schema type {given.kind!r} is unknown; there are {', '.join(KINDS)}")
    if not given.schema_text.strip():
        raise invalid_schema("Empty schema")
    return given


def references_of(
    table: SubjectTable, subject: str, given: SchemaGiven, *, deleted: bool = False
) -> tuple[Reference, ...]:
    """What it refers to, in full names. Raises RegistryProblem 42201 for what is not there."""
    found = []
    for one in given.references or ():
        name = qualified(one.subject, context_of(subject))
        held = table.subjects.get(name)
        versions = [each for each in held.versions.values() if deleted or not each.deleted] if held else []
        if one.version > 0:
            versions = [each for each in versions if each.version == one.version]
        if not versions:
            what = f'No schema reference found for subject "{one.subject}" and version {one.version}'
            raise invalid_schema(f"{what} (imported as {one.name})")
        found.append(Reference(one.name, name, versions[-1].version))
    return tuple(found)


def imports_of(table: SubjectTable, references: Sequence[Reference]) -> dict[str, bytes]:
    """All that is imported, over all levels, by import path. Raises RegistryProblem 42201."""
    found: dict[str, bytes] = {}
    for one, schema in referred(table, references):
        if found.setdefault(one.name, schema.canonical) != schema.canonical:
            raise invalid_schema(
                f"{one.name} is imported as two different files, by references of references"
            )
    return found


def normalizes(table: SubjectTable, subject: str, *, asked: bool) -> bool:
    """Whether the text that is kept is the canonical one."""
    return asked or in_force(table, subject).normalize == Normalize.ON


class Law(NamedTuple):
    """What a new version must go with: those that the level looks at; of a group, those alike in it."""

    level: str
    group: str  # the property of metadata by which versions are alike; empty: all are


def level_of(table: SubjectTable, subject: str) -> str:
    """The compatibility level in force."""
    return level_name(in_force(table, subject).compatibility)


def law_of(table: SubjectTable, subject: str) -> Law:
    """The one in force."""
    applies = in_force(table, subject)
    return Law(level_name(applies.compatibility), applies.compatibility_group)


def properties(metadata: str) -> dict[str, str]:
    """The properties of metadata, as the state keeps it."""
    found = json.loads(metadata).get("properties") if metadata else None
    return {key: str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def level_name(number: int) -> str:
    """The name of a level of log.proto; of 0, which is unset, the default's."""
    known: Any = number  # mypy-protobuf has a type of its own for it
    return Compatibility.Name(known) if number else DEFAULT


async def earlier_of(table: SubjectTable, versions: Sequence[SubjectVersion], law: Law) -> list[Version]:
    """Of these versions the ones that may have to be looked at, oldest first, but for those that are deleted
    for good meanwhile."""
    of_group = bool(law.group) and law.level != "NONE"
    looked_at = versions if of_group else _looked_at(versions, law.level)
    schemas = [table.schemas[one.schema_id] for one in looked_at]
    imports = await in_turns(imports_of_each(table, schemas))
    found = zip(looked_at, schemas, imports, strict=True)
    return [Version(one.version, schema, each) for one, schema, each in found if each is not None]


def imports_of_each(table: SubjectTable, schemas: Sequence[RegisteredSchema]) -> Turns[list[Imports | None]]:
    """As `imports_of`, of what each refers to; None of a schema that is gone meanwhile.

    While a schema is held it keeps all that it refers to, so the turns see what was there at the first.
    """
    known: dict[tuple[Reference, ...], Imports] = {}
    found: list[Imports | None] = []
    for schema in schemas:
        imports = known.get(schema.references)
        if imports is None and table.schemas.get(schema.schema_id) is schema:
            imports = known[schema.references] = imports_of(table, schema.references)
            yield
        found.append(imports)
    return found


def _looked_at(versions: Sequence[_T], level: str) -> Sequence[_T]:
    return () if level == "NONE" else versions if level.endswith("_TRANSITIVE") else versions[-1:]


def compared(wanted: Wanted, earlier: Sequence[Version], law: Law) -> list[str]:
    """Why the schema does not go with the versions; empty: it does. Blocks: call it in a thread."""
    if law.group:
        of = properties(wanted.metadata).get(law.group)
        of_group = [one for one in earlier if properties(one.schema.metadata).get(law.group) == of]
        earlier = _looked_at(of_group, law.level)
    before = []
    kind = KINDS[wanted.schema_type]
    for number, schema, imports in earlier:
        alike = schema.schema_type == wanted.schema_type  # others are not compared, and may be unknown here
        form = kind.load(schema.canonical, imports) if alike else None
        before.append(Earlier(number, schema.text, Loaded(schema.schema_type, form)))
    new = Loaded(wanted.schema_type, kind.load(wanted.parsed.canonical, wanted.imports))
    return problems(new, before, law.level)


def resolved_as(wanted: Wanted, versions: Sequence[Version]) -> int | None:
    """The newest of these versions of AVRO that is the schema, with all that it refers to in it.

    Blocks: call it in a thread.
    """
    left = avro.IMPORTED_BYTES_MAX
    for number, schema, imports in reversed(versions):
        left -= sum(map(len, imports.values()))
        if left < 0:
            return None
        with suppress(InvalidSchema):
            if avro.resolved(schema.canonical, imports).encode() == wanted.parsed.canonical:
                return number
    return None


class Reader:
    """Reads schemas and compares them in threads, a few at a time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PARSED_AT_ONCE_MAX)
        self._comparing = asyncio.Semaphore(COMPARED_AT_ONCE_MAX)

    async def compared(self, wanted: Wanted, earlier: Sequence[Version], law: Law) -> list[str]:
        """As `compared`; the next one waits for a place."""
        async with self._comparing:
            return await asyncio.to_thread(compared, wanted, earlier, law)

    async def resolved_as(self, wanted: Wanted, versions: Sequence[Version]) -> int | None:
        """As `resolved_as`; the next one waits for a place."""
        async with self._comparing:
            return await asyncio.to_thread(resolved_as, wanted, versions)

    async def read(
        self, given: SchemaGiven, references: tuple[Reference, ...], imports: Imports, *, normalize: bool
    ) -> Wanted:
        """The schema of a request. Raises RegistryProblem 42201, Problem 503 where none can be compiled."""
        async with self._places:
            try:
                parse = KINDS[given.kind].parse
                parsed = await asyncio.to_thread(parse, given.schema_text, imports, normalize=normalize)
            except InvalidSchema as error:
                raise invalid_schema(str(error)) from None
            except OSError as error:  # the compiler works in a temporary folder
                raise Problem(503, f"the schema could not be compiled: {error}", "try again") from None
        if max(len(parsed.canonical), len(parsed.text.encode())) > TEXT_BYTES_MAX:
            raise invalid_schema(f"a schema has at most {TEXT_BYTES_MAX} bytes")
        metadata, rule_set = _as_text(given.metadata), _as_text(given.rule_set)
        return Wanted(given.kind, parsed, references, metadata, rule_set, imports)


def _as_text(given: dict[str, Any] | None) -> str:
    """The same text for the same values; empty for none. Raises RegistryProblem for what is no Unicode."""
    if not given:
        return ""
    try:
        told = json.dumps(given, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        return told.encode().decode()
    except (ValueError, RecursionError) as error:
        raise invalid_schema(f"metadata or rule set: {error}") from None
