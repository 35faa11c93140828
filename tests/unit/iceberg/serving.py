"""The REST catalog behind a real HTTP server, for clients that insist on one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coordination.clock import SystemClock
from iceberg import json_steps
from iceberg.catalog import Catalog
from iceberg.rest_pointers import CatalogParts
from objectstore.turns import at_once
from tests.equipment.listening import listening
from tests.unit.iceberg.rig import Rig

DEPTH = 3
METHODS = ["GET", "HEAD", "POST", "DELETE"]


def catalog_of(rig: Rig, table_config: Mapping[str, str] | None = None) -> Catalog:
    """The catalog of one agent."""
    parts = CatalogParts(rig.replica, rig.store, rig.warehouse, SystemClock(), table_config or {})
    return Catalog(parts)


async def ask(catalog: Catalog, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
    """One request without HTTP."""
    return await catalog.handle(method, path, query, b"" if body is None else json.dumps(body).encode())


@asynccontextmanager
async def served(catalog: Catalog) -> AsyncIterator[str]:
    """Serve the catalog on a free port; gives its URL."""

    async def answer(request: Request) -> Response:
        status, value = await catalog.handle(
            request.method,
            "/" + request.path_params["path"],
            dict(request.query_params),
            await request.body(),
        )
        if value is None or request.method == "HEAD":
            return Response(status_code=status)
        content = b"".join(at_once(json_steps.encode(value, DEPTH)))
        return Response(content, status, media_type="application/json")

    async with listening([Route("/iceberg/{path:path}", answer, methods=METHODS)]) as url:
        yield f"{url}/iceberg"


def client(url: str) -> RestCatalog:
    """pyiceberg's client of the catalog. Use it in a thread: it blocks."""
    return RestCatalog("floe", uri=url, warehouse="floe")
