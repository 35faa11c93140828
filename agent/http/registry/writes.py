"""Registering a schema, looking one up by its content, and asking whether one would go with the versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import require_subject
from agent.http.barrier import barrier, submit
from agent.http.needs import READ_SUBJECT, WRITE_SUBJECT, OfSubject
from agent.http.parts import Parts
from agent.http.registry.errors import (
    INVALID_SCHEMA,
    STORE,
    RegistryProblem,
    incompatible,
    invalid_schema,
    not_permitted,
    schema_missing,
    version_missing,
)
from agent.http.registry.formats import texts
from agent.http.registry.judging import (
    Law,
    Reader,
    SchemaGiven,
    Version,
    Wanted,
    earlier_of,
    imports_of,
    law_of,
    normalizes,
    references_of,
    schema_given,
)
from agent.http.registry.requests import (
    flag,
    object_of,
    qualified,
    subject_held,
    subject_meant,
    subject_of,
    version_held,
    version_named,
)
from agent.http.registry.shown import answer, guid, version_shown
from agent.http.rules import in_file, unusable
from coordination.commands import RegisterSchema, SchemaReference, command
from coordination.kafka_codes import Code
from coordination.state import State
from coordination.state.deleted import bound_to
from coordination.state.subject_types import SubjectTable, SubjectVersion, context_of, identity
from coordination.state.subjects import mode_refusal, registered
from coordination.state.types import Done, Refused
from schema.followed import AVRO, PROTOBUF

RESOLVED_MAX = 64
"""Newest versions with references that a schema of AVRO without any is held against."""

ALL = Law("FULL_TRANSITIVE", "")
"""Looks at each version."""

TRIES = 20
"""Judgements of one registration: each but the last was overtaken by another's."""


Placed: TypeAlias = tuple[int, int]
"""Id and version."""


class WriteRoutes:
    """Puts schemas into the log; what they become is what apply decided."""

    def __init__(self, parts: Parts, reader: Reader) -> None:
        self._parts = parts
        self._reader = reader

    @property
    def _state(self) -> State:
        return self._parts.replica.state

    @property
    def _table(self) -> SubjectTable:
        return self._parts.replica.state.subjects

    async def register(self, request: Request) -> Response:
        """Register a schema, or find it; answers with its id."""
        given = await self._given(request)
        if given.version and given.version > 0 and not (given.id and given.id > 0):
            raise invalid_schema("a version is given with an id only")
        for _ in range(TRIES):
            await barrier(self._parts)
            subject = subject_meant(self._table, request)
            self._require(READ_SUBJECT, request, subject)
            wanted = await self._read(request, subject, given)
            await barrier(self._parts)  # reading took its time
            placed = await self._found(subject, given, wanted)
            if placed is None:
                self._require(WRITE_SUBJECT, request, subject)
                revision = await self._judge(subject, given, wanted)
                placed = await self._propose(subject, given, wanted, revision)
            if placed is not None:
                schema_id, version = placed
                held = self._table.schemas.get(schema_id)
                named = guid(identity_of_wanted(wanted) if held is None else held.identity)
                return answer({"id": schema_id, "version": version, "guid": named})
        raise RegistryProblem(
            STORE, f"subject '{subject_of(request)}' changed each of the {TRIES} times this was tried"
        )

    def _require(self, need: OfSubject, request: Request, subject: str) -> None:
        """Of what the path names and of what that means. Serializers register what is there already, so
        that asks for less. Raises Problem 403."""
        for name in (subject_of(request), subject):
            require_subject(self._parts, need, name)

    async def _found(self, subject: str, given: SchemaGiven, wanted: Wanted) -> Placed | None:
        """Id and version where the subject has the schema already, and none others were given."""
        if (given.id or 0) > 0:
            return None
        found = await self._version(subject, wanted)
        return None if found is None else (found.schema_id, found.version)

    async def _version(self, subject: str, wanted: Wanted, *, deleted: bool = False) -> SubjectVersion | None:
        """The version of the subject that is this schema.

        Serializers of AVRO send it with all types in it, also where it was registered with references.
        """
        found = registered(self._state, subject, identity_of_wanted(wanted), deleted=deleted)
        held = self._table.subjects.get(subject)
        if found is not None or held is None or wanted.schema_type != AVRO or wanted.references:
            return found
        likely = _likely(self._table, held.versions.values(), wanted, deleted=deleted)
        if not likely:
            return None
        number = await self._reader.resolved_as(wanted, await earlier_of(self._table, likely, ALL))
        return next((one for one in likely if one.version == number), None)

    async def _judge(self, subject: str, given: SchemaGiven, wanted: Wanted) -> int:
        """As of which revision the schema goes with the subject's versions. Raises RegistryProblem."""
        table, revision = self._table, self._state.revision
        references = references_of(table, subject, given)
        if (references, imports_of(table, references)) != (wanted.references, wanted.imports):
            return 0  # another moment's: apply refuses it, and it is read again
        schema_id = max(given.id or 0, 0)
        refusal = mode_refusal(self._state, subject, schema_id)
        if refusal is not None:
            raise not_permitted(refusal.message)
        if schema_id:
            self._require_free(schema_id)
            return revision  # what another registry took is not judged again
        law, held = law_of(table, subject), table.subjects.get(subject)
        earlier = await earlier_of(table, held.live if held is not None else [], law)
        problems = await self._reader.compared(wanted, earlier, law)
        if problems:
            raise incompatible(subject, problems)
        return revision

    def _require_free(self, schema_id: int) -> None:
        """Raises RegistryProblem where a deleted topic can come back whose records may name the id. Of topics
        that are there apply says it."""
        found = None if schema_id in self._table.schemas else bound_to(self._state, schema_id)
        if found is not None:
            name = found.topic.name
            what = f"id {schema_id} is of a binding of topic '{name}', which is deleted and can come back"
            raise not_permitted(f"{what}: let go of it first (floe topic purge {name}), or give another id")

    async def _propose(
        self, subject: str, given: SchemaGiven, wanted: Wanted, revision: int
    ) -> Placed | None:
        """Id and version, as apply gave them; None where it is to be judged again. Raises RegistryProblem."""
        references = [
            SchemaReference(name=one.name, subject=one.subject, version=one.version)
            for one in wanted.references
        ]
        message = RegisterSchema(
            subject=subject,
            schema_type=wanted.schema_type,
            text=wanted.parsed.text,
            canonical=wanted.parsed.canonical,
            references=references,
            metadata=wanted.metadata,
            rule_set=wanted.rule_set,
            judged_revision=revision,
            schema_id=max(given.id or 0, 0),
            version=max(given.version or 0, 0),
        )
        result = await submit(self._parts, command(message))
        if isinstance(result, Refused):
            if result.code is Code.INVALID_UPDATE_VERSION:
                return None
            malformed = result.code is Code.INVALID_REQUEST
            raise invalid_schema(result.message) if malformed else not_permitted(result.message)
        assert isinstance(result, Done)
        placed: Any = result.value  # a pair, as apply says
        schema_id, version = placed
        return int(schema_id), int(version)

    async def look_up(self, request: Request) -> Response:
        """The version of the subject that is this schema."""
        given, deleted = await self._given(request), flag(request, "deleted")
        await barrier(self._parts)
        subject = subject_meant(self._table, request)
        subject_held(self._table, subject, deleted=deleted)
        wanted = await self._read(request, subject, given, deleted=True)
        subject_held(self._table, subject, deleted=deleted)
        found = await self._version(subject, wanted, deleted=deleted)
        schema = self._table.schemas.get(found.schema_id) if found is not None else None
        if found is None or schema is None:
            raise schema_missing()
        table = self._table
        return answer(version_shown(subject, found, schema, await texts(table, [schema], request)))

    async def test_one(self, request: Request) -> Response:
        """Whether the schema would go with one version, in the directions of the level in force."""
        number, given = version_named(request), await self._given(request)
        await barrier(self._parts)
        subject = subject_meant(self._table, request)
        try:
            wanted = await self._read(request, subject, given)
        except RegistryProblem as problem:
            return _invalid(request, problem)
        table, law = self._table, law_of(self._table, subject)
        held = table.subjects.get(subject)
        if held is None or not held.live:
            if number is not None:
                raise version_missing(number)
            return _tested(request, [])  # it goes with nothing
        one = version_held(held, number, deleted=False)
        return await self._compare(request, wanted, await earlier_of(table, [one], law), law)

    async def test_all(self, request: Request) -> Response:
        """Whether the schema would go with the versions that the level in force looks at."""
        given = await self._given(request)
        await barrier(self._parts)
        subject = subject_meant(self._table, request)
        try:
            wanted = await self._read(request, subject, given)
        except RegistryProblem as problem:
            return _invalid(request, problem)
        table, law = self._table, law_of(self._table, subject)
        held = table.subjects.get(subject)
        earlier = await earlier_of(table, held.live if held is not None else [], law)
        return await self._compare(request, wanted, earlier, law)

    async def _compare(self, request: Request, wanted: Wanted, earlier: list[Version], law: Law) -> Response:
        return _tested(request, await self._reader.compared(wanted, earlier, law))

    async def rules(self, request: Request) -> Response:
        """Which rules of protovalidate that the schema has cannot be used. Floe's own, not Confluent's."""
        subject, given = subject_of(request), await self._given(request)
        await barrier(self._parts)
        wanted = await self._read(request, subject, given)
        problems: list[str] = []
        if wanted.schema_type == PROTOBUF:
            problems = await unusable(self._parts, await in_file(wanted.parsed.canonical, wanted.imports))
        return answer({"problems": problems})

    async def _given(self, request: Request) -> SchemaGiven:
        return schema_given(await object_of(request, self._parts.config.http.body_bytes_max))

    async def _read(
        self, request: Request, subject: str, given: SchemaGiven, *, deleted: bool = False
    ) -> Wanted:
        """The schema, with what it refers to as it is now."""
        table = self._table
        for one in given.references or ():
            require_subject(self._parts, READ_SUBJECT, qualified(one.subject, context_of(subject)))
        references = references_of(table, subject, given, deleted=deleted)
        normalize = normalizes(table, subject, asked=flag(request, "normalize"))
        return await self._reader.read(given, references, imports_of(table, references), normalize=normalize)


def identity_of_wanted(wanted: Wanted) -> bytes:
    """By which the state looks for it."""
    return identity(
        wanted.schema_type, wanted.parsed.canonical, wanted.references, wanted.metadata, wanted.rule_set
    )


def _likely(
    table: SubjectTable, versions: Iterable[SubjectVersion], wanted: Wanted, *, deleted: bool
) -> list[SubjectVersion]:
    """The newest RESOLVED_MAX versions with references that may be the schema with all types in it."""
    found: list[SubjectVersion] = []
    for one in reversed([*versions]):
        schema = table.schemas[one.schema_id]
        if (
            (deleted or not one.deleted)
            and schema.references
            and (schema.schema_type, schema.metadata, schema.rule_set)
            == (wanted.schema_type, wanted.metadata, wanted.rule_set)
            and len(schema.canonical) < len(wanted.parsed.canonical)
        ):
            found.append(one)
    return found[RESOLVED_MAX - 1 :: -1]


def _invalid(request: Request, problem: RegistryProblem) -> Response:
    """What is no schema goes with nothing, where it is asked why. Raises RegistryProblem."""
    if problem.code != INVALID_SCHEMA or not flag(request, "verbose"):
        raise problem
    return _tested(request, [problem.message])


def _tested(request: Request, problems: list[str]) -> Response:
    """Whether it would go, and why not where that is asked for."""
    said: dict[str, object] = {"is_compatible": not problems}
    if flag(request, "verbose"):
        said["messages"] = problems
    return answer(said)
