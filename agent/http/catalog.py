"""/iceberg: HTTP around the Iceberg REST catalog (iceberg/catalog.py). No catalog logic lives here."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from agent.http.answers import Problem, read_body
from agent.http.parts import Parts


class CatalogRoutes:
    """Hands requests to the catalog with their body bounded."""

    def __init__(self, parts: Parts) -> None:
        self._catalog = parts.catalog
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
        status, answer = await self._catalog.handle(request.method, path, dict(request.query_params), body)
        if answer is None or request.method == "HEAD":
            return Response(status_code=status)
        return JSONResponse(answer, status)


def _error(status: int, message: str, kind: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)
