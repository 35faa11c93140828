"""Subjects and their versions, as they are read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.http.barrier import barrier
from agent.http.parts import Parts
from agent.http.registry.requests import (
    DEFAULT_CONTEXT,
    flag,
    paged,
    prefixes,
    subject_held,
    subject_of,
    version_held,
    version_named,
)
from agent.http.registry.shown import answer, schema_text, text, version_shown
from coordination.state.subject_types import Subject, SubjectTable, context_of
from coordination.state.subjects import referring


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
        return answer(paged(request, [subject.name for subject in named(table, request)]))

    async def versions(self, request: Request) -> Response:
        """Numbers of versions, ascending."""
        table, name = await self._table(), subject_of(request)
        only = flag(request, "deletedOnly", "deleted_only")
        subject = subject_held(table, name, deleted=only or flag(request, "deleted"))
        found = list(subject.versions.values()) if only or flag(request, "deleted") else subject.live
        return answer(paged(request, [one.version for one in found if one.deleted or not only]))

    async def version(self, request: Request) -> Response:
        """One version; `latest` is the newest."""
        table, name, number = await self._table(), subject_of(request), version_named(request)
        deleted = flag(request, "deleted")
        one = version_held(subject_held(table, name, deleted=deleted), number, deleted=deleted)
        return answer(version_shown(name, one, table.schemas[one.schema_id], request))

    async def schema(self, request: Request) -> Response:
        """The schema of a version alone."""
        table, name, number = await self._table(), subject_of(request), version_named(request)
        deleted = flag(request, "deleted")
        one = version_held(subject_held(table, name, deleted=deleted), number, deleted=deleted)
        return text(schema_text(table.schemas[one.schema_id], request))

    async def referencedby(self, request: Request) -> Response:
        """Ids of schemas that refer to a version."""
        table, name, number = await self._table(), subject_of(request), version_named(request)
        one = version_held(subject_held(table, name, deleted=True), number, deleted=True)
        state, deleted = self._parts.replica.state, flag(request, "deleted")
        return answer(paged(request, referring(state, name, one.version, deleted=deleted)))

    async def contexts(self, request: Request) -> Response:
        """Contexts that have subjects, and the default one."""
        table = await self._table()
        names = sorted({DEFAULT_CONTEXT, *(name[1:-1] for name in table.contexts if name)})
        return answer(paged(request, names))

    async def schemas(self, request: Request) -> Response:
        """Versions of all subjects, by name and number; of each the newest with `latestOnly`."""
        table = await self._table()
        deleted, latest = flag(request, "deleted"), flag(request, "latestOnly")
        found = []
        for subject in named(table, request):
            versions = list(subject.versions.values()) if deleted else subject.live
            found += [(subject.name, one) for one in (versions[-1:] if latest else versions)]
        return answer(
            [
                version_shown(name, one, table.schemas[one.schema_id], request)
                for name, one in paged(request, found)
            ]
        )


def named(table: SubjectTable, request: Request) -> list[Subject]:
    """The subjects that the query asks for, by name."""
    context, beginning = prefixes(request)
    only, deleted = flag(request, "deletedOnly", "deleted_only"), flag(request, "deleted")
    found = []
    for name in sorted(table.subjects):
        subject = table.subjects[name]
        of = context_of(name)
        if (context is None or of == context) and name.removeprefix(of).startswith(beginning):
            live = any(not one.deleted for one in subject.versions.values())
            if not live if only else live or deleted:
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
