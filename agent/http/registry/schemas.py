"""Schemas by id or guid, as they are read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.http.asking import may_subject, require_any
from agent.http.barrier import barrier
from agent.http.needs import READ_SUBJECT, SHOW_SUBJECT
from agent.http.parts import Parts
from agent.http.registry.errors import RegistryProblem, schema_missing
from agent.http.registry.formats import texts
from agent.http.registry.requests import DEFAULT_CONTEXT, flag, paged
from agent.http.registry.shown import answer, guid, identity_of, schema_shown, text
from agent.http.registry.subjects import subject_of_schema
from coordination.state.bounds import SCHEMA_ID_MAX
from coordination.state.subject_types import RegisteredSchema, SubjectTable
from schema.registry.kinds import KINDS


class SchemaRoutes:
    """Reads of schemas, each after a read barrier. An id means one schema in all contexts."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def types(self, _request: Request) -> Response:
        """The types that can be registered."""
        return answer(list(KINDS))

    async def _named(self, request: Request) -> tuple[SubjectTable, RegisteredSchema]:
        """The schema that the path names. Raises RegistryProblem 40403, 404 for what is no id."""
        given = str(request.path_params["id"])
        if not (given.isascii() and given.isdigit()):
            raise RegistryProblem(404, "HTTP 404 Not Found")
        await barrier(self._parts)
        table = self._parts.replica.state.subjects
        found = table.schemas.get(int(given)) if len(given) <= len(str(SCHEMA_ID_MAX)) else None
        if found is None:
            raise schema_missing(given)
        require_any(self._parts, READ_SUBJECT, (name for name, _ in table.users.get(found.schema_id, ())))
        return table, found

    async def schema(self, request: Request) -> Response:
        """The schema with this id."""
        table, found = await self._named(request)
        newest = max(table.schemas)
        shown = {"guid": guid(found.identity), **schema_shown(found, await texts(table, [found], request))}
        if flag(request, "fetchMaxId"):
            shown["maxId"] = newest
        return answer(shown)

    async def text(self, request: Request) -> Response:
        """Its text alone."""
        table, found = await self._named(request)
        return text((await texts(table, [found], request))[found.schema_id])

    async def subjects(self, request: Request) -> Response:
        """Names of subjects that have it."""
        table, found = await self._named(request)
        users = subject_of_schema(table, found.schema_id, deleted=flag(request, "deleted"))
        names = list(dict.fromkeys(name for name, _ in users))
        return answer(paged(request, [one for one in names if may_subject(self._parts, SHOW_SUBJECT, one)]))

    async def versions(self, request: Request) -> Response:
        """Versions of subjects that are it."""
        table, found = await self._named(request)
        users = subject_of_schema(table, found.schema_id, deleted=flag(request, "deleted"))
        shown = [(one, number) for one, number in users if may_subject(self._parts, SHOW_SUBJECT, one)]
        return answer(paged(request, [{"subject": name, "version": number} for name, number in shown]))

    async def by_guid(self, request: Request) -> Response:
        """The schema with this guid."""
        table, ids = await self._of_guid(request)
        found = table.schemas[ids[0]]
        told = await texts(table, [found], request)
        return answer({"guid": guid(found.identity), **schema_shown(found, told)})

    async def ids(self, request: Request) -> Response:
        """The ids that have this guid. They are of no context: they are told for the default one."""
        _, ids = await self._of_guid(request)
        return answer([{"context": DEFAULT_CONTEXT, "id": one} for one in ids])

    async def _of_guid(self, request: Request) -> tuple[SubjectTable, list[int]]:
        """Ids of the guid that the path names, one at least. Raises RegistryProblem 40403."""
        given = str(request.path_params["guid"])
        await barrier(self._parts)
        table = self._parts.replica.state.subjects
        ids = table.by_identity.get(identity_of(given) or b"")
        if not ids:
            raise schema_missing(given)
        holders = (name for one in ids for name, _ in table.users.get(one, ()))
        require_any(self._parts, READ_SUBJECT, holders)
        return table, list(ids)
