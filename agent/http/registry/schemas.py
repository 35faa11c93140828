"""Schemas by id or guid, as they are read."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from agent.http.barrier import barrier
from agent.http.parts import Parts
from agent.http.registry.errors import RegistryProblem, schema_missing
from agent.http.registry.requests import flag, paged
from agent.http.registry.shown import answer, guid, identity_of, schema_shown, schema_text, text
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
        return table, found

    async def schema(self, request: Request) -> Response:
        """The schema with this id."""
        table, found = await self._named(request)
        shown = {"guid": guid(found.identity), **schema_shown(found, request)}
        if flag(request, "fetchMaxId"):
            shown["maxId"] = max(table.schemas)
        return answer(shown)

    async def text(self, request: Request) -> Response:
        """Its text alone."""
        return text(schema_text((await self._named(request))[1], request))

    async def subjects(self, request: Request) -> Response:
        """Names of subjects that have it."""
        table, found = await self._named(request)
        users = subject_of_schema(table, found.schema_id, deleted=flag(request, "deleted"))
        return answer(paged(request, list(dict.fromkeys(name for name, _ in users))))

    async def versions(self, request: Request) -> Response:
        """Versions of subjects that are it."""
        table, found = await self._named(request)
        users = subject_of_schema(table, found.schema_id, deleted=flag(request, "deleted"))
        return answer(paged(request, [{"subject": name, "version": number} for name, number in users]))

    async def by_guid(self, request: Request) -> Response:
        """The schema with this guid."""
        given = str(request.path_params["guid"])
        await barrier(self._parts)
        table = self._parts.replica.state.subjects
        ids = table.by_identity.get(identity_of(given) or b"")
        if not ids:
            raise schema_missing(given)
        found = table.schemas[next(iter(ids))]
        return answer({"guid": guid(found.identity), **schema_shown(found, request)})
