"""/iceberg: HTTP around the Iceberg REST catalog (iceberg/catalog.py). No catalog logic lives here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from agent.config.redaction import names
from agent.http.answers import Problem, read_body
from agent.http.catalog_access import CatalogAccess
from agent.http.parts import Parts
from agent.telemetry.trail import http_actor
from iceberg import json_steps
from iceberg.rest_lending import DELEGATION_HEADER
from objectstore.turns import in_turns

_DEPTH = 3  # of {"metadata": {"snapshots": […]}} each snapshot is made whole
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class CatalogRoutes:
    """Hands requests to the catalog with their body bounded."""

    def __init__(self, parts: Parts) -> None:
        self._parts, self._catalog = parts, parts.catalog
        self._cleared = frozenset(names(parts.config.redaction.cleared_principals, ";"))
        self._body_bytes_max = parts.config.http.body_bytes_max

    async def handle(self, request: Request) -> Response:
        """Answer one request in the catalog's own error shape (Iceberg's REST specification)."""
        if self._catalog is None:
            return _error(404, "this agent serves no catalog", "NotFoundException")
        try:
            body = await read_body(request, self._body_bytes_max)
        except Problem as problem:
            return _error(problem.status, problem.message, "BadRequestException")
        path = "/" + request.path_params["path"]
        access = CatalogAccess(self._parts, http_actor.get(), self._cleared)
        delegation = request.headers.get(DELEGATION_HEADER, "")
        query = dict(request.query_params)
        status, answer = await self._catalog.handle(request.method, path, query, body, access, delegation)
        if answer is None or request.method == "HEAD":
            return Response(status_code=status)
        return await _in_parts(answer, status)


async def _in_parts(answer: object, status: int) -> Response:
    """The answer, made and sent in parts: metadata of a wide table is megabytes."""
    parts = await in_turns(json_steps.encode(answer, _DEPTH, _ENCODER))
    if len(parts) == 1:
        return Response(parts[0], status, media_type="application/json")
    length = {"content-length": str(sum(map(len, parts)))}
    return StreamingResponse(_each(parts), status, headers=length, media_type="application/json")


async def _each(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _error(status: int, message: str, kind: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)
