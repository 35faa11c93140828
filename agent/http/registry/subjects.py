"""Subjects and their versions, as they are read."""

from __future__ import annotations

from operator import itemgetter

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import asks, may, may_subject
from agent.http.barrier import barrier
from agent.http.needs import DESCRIBE_CLUSTER_QUIETLY, SHOW_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.errors import schema_missing
from agent.http.registry.formats import texts
from agent.http.registry.judging import properties
from agent.http.registry.requests import (
    DEFAULT_CONTEXT,
    flag,
    paged,
    prefixes,
    subject_held,
    subject_meant,
    version_held,
    version_named,
)
from agent.http.registry.shown import answer, text, version_shown
from coordination.state.subject_types import (
    RegisteredSchema,
    Subject,
    SubjectTable,
    SubjectVersion,
    context_of,
)
from coordination.state.subjects import referring
from objectstore.turns import Turns, in_turns

SCHEMAS_PER_ANSWER = 1_000
SUBJECTS_PER_TURN = 2_000  # looked at before others may go on
ASKED_PER_TURN = 200  # likewise, where ACLs are asked of each


class SubjectRoutes:
    """Reads of the registry, each after a read barrier."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def _table(self) -> SubjectTable:
        await barrier(self._parts)
        return self._parts.replica.state.subjects

    async def subjects(self, request: Request) -> Response:
        """Names, sorted. Of all contexts, unless `subjectPrefix` or the path says which."""
        table = await self._table()
        found = await in_turns(named(self._parts, table, request))
        return answer(paged(request, [subject.name for subject in found]))

    async def versions(self, request: Request) -> Response:
        """Numbers of versions, ascending; deleted ones below zero where `deletedAsNegative` says so."""
        table = await self._table()
        name = subject_meant(table, request)
        only, deleted = flag(request, "deletedOnly", "deleted_only"), flag(request, "deleted")
        sign = -1 if flag(request, "deletedAsNegative") else 1
        subject = subject_held(table, name, deleted=only or deleted)
        found = list(subject.versions.values()) if only or deleted else subject.live
        told = [one.version * (sign if one.deleted else 1) for one in found if one.deleted or not only]
        return answer(paged(request, told))

    async def version(self, request: Request) -> Response:
        """One version; `latest` is the newest."""
        table, number = await self._table(), version_named(request)
        name = subject_meant(table, request)
        deleted = flag(request, "deleted")
        one = version_held(subject_held(table, name, deleted=deleted), number, deleted=deleted)
        schema = table.schemas[one.schema_id]
        return answer(version_shown(name, one, schema, await texts(table, [schema], request)))

    async def schema(self, request: Request) -> Response:
        """The schema of a version alone."""
        table, number = await self._table(), version_named(request)
        name = subject_meant(table, request)
        deleted = flag(request, "deleted")
        one = version_held(subject_held(table, name, deleted=deleted), number, deleted=deleted)
        return text((await texts(table, [table.schemas[one.schema_id]], request))[one.schema_id])

    async def referencedby(self, request: Request) -> Response:
        """Ids of schemas that refer to a version."""
        table, number = await self._table(), version_named(request)
        name = subject_meant(table, request)
        one = version_held(subject_held(table, name, deleted=True), number, deleted=True)
        state, deleted = self._parts.replica.state, flag(request, "deleted")
        return answer(paged(request, referring(state, name, one.version, deleted=deleted)))

    async def contexts(self, request: Request) -> Response:
        """Contexts that have subjects, and the default one."""
        table = await self._table()
        others = table.contexts if may(self._parts, DESCRIBE_CLUSTER_QUIETLY) else ()
        names = sorted({DEFAULT_CONTEXT, *(name[1:-1] for name in others if name)})
        return answer(paged(request, names))

    async def schemas(self, request: Request) -> Response:
        """Versions of all subjects, by name and number; of each the newest with `latestOnly`.

        At most SCHEMAS_PER_ANSWER: `offset` goes on behind them.
        """
        table = await self._table()
        found = paged(request, await in_turns(_versions(self._parts, table, request)), SCHEMAS_PER_ANSWER)
        told = await texts(table, [schema for _, _, schema in found], request)
        return answer([version_shown(name, one, schema, told) for name, one, schema in found])

    async def with_metadata(self, request: Request) -> Response:
        """The newest version with these properties in its metadata: each a `key` and a `value`."""
        table = await self._table()
        name = subject_meant(table, request)
        deleted = flag(request, "deleted")
        subject = subject_held(table, name, deleted=deleted)
        asked = request.query_params
        wanted = dict(zip(asked.getlist("key"), asked.getlist("value"), strict=False))
        for one in reversed(subject.versions.values()):
            schema = table.schemas[one.schema_id]
            if (deleted or not one.deleted) and wanted.items() <= properties(schema.metadata).items():
                return answer(version_shown(name, one, schema, await texts(table, [schema], request)))
        raise schema_missing()


def _versions(
    parts: Parts, table: SubjectTable, request: Request
) -> Turns[list[tuple[str, SubjectVersion, RegisteredSchema]]]:
    """Of the subjects that are asked for, with schemas of that moment."""
    deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
    found = []
    for subject in (yield from named(parts, table, request)):
        versions = list(subject.versions.values()) if deleted else subject.live
        for one in versions[-1:] if latest else versions:
            if (schema := table.schemas.get(one.schema_id)) is not None:
                found.append((subject.name, one, schema))
        if len(found) % SUBJECTS_PER_TURN == 0:
            yield
    return found


def named(parts: Parts, table: SubjectTable, request: Request) -> Turns[list[Subject]]:
    """The subjects that the query asks for, by name. Those that one may not describe are not shown."""
    asked, pace = (True, ASKED_PER_TURN) if asks(parts) else (False, SUBJECTS_PER_TURN)
    context, beginning = prefixes(request)
    only, deleted = flag(request, "deletedOnly", "deleted_only"), flag(request, "deleted")
    found = []
    for number, (name, subject) in enumerate(sorted(table.subjects.items(), key=itemgetter(0))):
        if number % pace == 0:
            yield
        of = context_of(name)
        if (context is None or of == context) and name.removeprefix(of).startswith(beginning):
            live = any(not one.deleted for one in subject.versions.values())
            wanted = not live if only else live or deleted
            if wanted and (not asked or may_subject(parts, SHOW_SUBJECT, name)):
                found.append(subject)
    return found


def subject_of_schema(table: SubjectTable, schema_id: int, *, deleted: bool) -> list[tuple[str, int]]:
    """Subjects and versions that are this schema, by name and number."""
    users = table.users.get(schema_id, {})
    return sorted(
        (name, number)
        for name, number in users
        if deleted or not table.subjects[name].versions[number].deleted
    )
