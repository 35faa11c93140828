"""The routes: which path is served by what. Start reading here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agent.http.acls import AclRoutes
from agent.http.admin import AdminRoutes
from agent.http.answers import Problem
from agent.http.asking import Handler, asking
from agent.http.catalog import CatalogRoutes
from agent.http.console import console_routes
from agent.http.damage import DamageRoutes
from agent.http.deleted import DeletedRoutes
from agent.http.drain import DrainRoutes
from agent.http.guard import Guard, on_http_exception, on_problem
from agent.http.health import HealthRoutes
from agent.http.held import HeldRoutes
from agent.http.identity import Doorkeeper
from agent.http.needs import CATALOG_PATH, DRAIN_PATH, SCRUB_PATH, TOKENS_PATH
from agent.http.oauth import OauthRoutes
from agent.http.parts import Parts
from agent.http.registry import registry_routes
from agent.http.restorable import RestorableRoutes
from agent.http.restorable_rows import RestorableRows
from agent.http.scrub import ScrubRoutes
from agent.http.status import StatusRoutes
from agent.http.traced import TracedGuard


def _guard(parts: Parts) -> Middleware:
    in_flight_max, identify = parts.config.http.requests_in_flight_max, Doorkeeper(parts).identify
    if parts.traces is None or not parts.traces.on:
        return Middleware(Guard, parts.metrics, in_flight_max, identify)
    return Middleware(TracedGuard, parts.metrics, in_flight_max, identify, parts.traces)


def build(parts: Parts, health: HealthRoutes | None = None) -> Starlette:
    """The ASGI application of one agent. `health`: its own, where others ask for that too."""
    health, status, admin = health or HealthRoutes(parts), StatusRoutes(parts), AdminRoutes(parts)
    damage, catalog, drain = DamageRoutes(parts), CatalogRoutes(parts), DrainRoutes(parts)
    scrub = ScrubRoutes(parts)
    every = ["GET", "HEAD", "POST", "PUT", "DELETE"]

    def route(path: str, handler: Handler, methods: Sequence[str] = ("GET",)) -> Route:
        return Route(path, asking(parts, methods[0], path, handler), methods=list(methods))

    return Starlette(
        routes=[
            route("/", _home),
            route("/livez", health.livez),
            route("/readyz", health.readyz),
            route("/metrics", health.metrics),
            route("/status", status.by_accept),
            route("/status.html", status.page),
            route("/status.json", status.json),
            route("/admin/topics/{name}/schema", admin.read),
            route("/admin/topics/{name}/schema", admin.bind, ["POST"]),
            route("/admin/schemas/{name}", admin.registered),
            route("/admin/topics/{name}/damaged", damage.damaged),
            route("/admin/topics/{name}/skipped", damage.skipped),
            route("/admin/topics/{name}/skipped", damage.skip, ["POST"]),
            *_kept(parts, route),
            route("/admin/acls/unallowed", AclRoutes(parts).unallowed),
            route(SCRUB_PATH, scrub.read),
            route(SCRUB_PATH, scrub.start, ["POST"]),
            route(DRAIN_PATH, drain.read),
            route(DRAIN_PATH, drain.change, ["POST"]),
            route(TOKENS_PATH, OauthRoutes(parts).token, ["POST"]),
            route(CATALOG_PATH, catalog.handle, every),
            *console_routes(parts, status.gather, health.gauges),
            *registry_routes(parts),
        ],
        middleware=[_guard(parts)],
        exception_handlers={Problem: on_problem, HTTPException: on_http_exception},
    )


def _kept(parts: Parts, route: Callable[..., Route]) -> list[Route]:
    """What is left of topics: of deleted ones, of records that went, and all that was written to one."""
    deleted, restorable = DeletedRoutes(parts), RestorableRoutes(parts)
    rows, held = RestorableRows(parts, restorable), HeldRoutes(parts)
    return [
        route("/admin/deleted-topics", deleted.several),
        route("/admin/deleted-topics/undelete", deleted.undelete, ["POST"]),
        route("/admin/deleted-topics/purge", deleted.purge, ["POST"]),
        route("/admin/topics/{name}/held", held.read),
        route("/admin/topics/{name}/held/undelete", held.undelete, ["POST"]),
        route("/admin/topics/{name}/held/purge", held.purge, ["POST"]),
        route("/admin/restorable/{name}", restorable.topic),
        route("/admin/restorable/{name}/batches", restorable.batches),
        route("/admin/restorable/{name}/rows", rows.rows),
        route("/admin/restorable/{name}/file", rows.file),
    ]


async def _home(_request: Request) -> Response:
    return RedirectResponse("/status.html")
