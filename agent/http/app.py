"""The routes: which path is served by what. Start reading here."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from agent.http.acls import AclRoutes
from agent.http.admin import AdminRoutes
from agent.http.answers import Problem
from agent.http.catalog import CatalogRoutes
from agent.http.damage import DamageRoutes
from agent.http.guard import Guard, on_http_exception, on_problem
from agent.http.health import HealthRoutes
from agent.http.identity import Doorkeeper
from agent.http.oauth import OauthRoutes
from agent.http.parts import Parts
from agent.http.registry import registry_routes
from agent.http.status import StatusRoutes


def build(parts: Parts) -> Starlette:
    """The ASGI application of one agent."""
    health = HealthRoutes(parts)
    status = StatusRoutes(parts)
    admin = AdminRoutes(parts)
    damage = DamageRoutes(parts)
    catalog = CatalogRoutes(parts)
    every = ["GET", "HEAD", "POST", "PUT", "DELETE"]
    return Starlette(
        routes=[
            Route("/", _home),
            Route("/livez", health.livez),
            Route("/readyz", health.readyz),
            Route("/metrics", health.metrics),
            Route("/status", status.by_accept),
            Route("/status.html", status.page),
            Route("/status.json", status.json),
            Route("/admin/topics/{name}/schema", admin.read, methods=["GET"]),
            Route("/admin/topics/{name}/schema", admin.bind, methods=["POST"]),
            Route("/admin/schemas/{name}", admin.registered, methods=["GET"]),
            Route("/admin/topics/{name}/damaged", damage.damaged, methods=["GET"]),
            Route("/admin/topics/{name}/skipped", damage.skipped, methods=["GET"]),
            Route("/admin/topics/{name}/skipped", damage.skip, methods=["POST"]),
            Route("/admin/acls/unallowed", AclRoutes(parts).unallowed, methods=["GET"]),
            Route("/iceberg/v1/oauth/tokens", OauthRoutes(parts).token, methods=["POST"]),
            Route("/iceberg/{path:path}", catalog.handle, methods=every),
            *registry_routes(parts),
        ],
        middleware=[
            Middleware(
                Guard,
                metrics=parts.metrics,
                requests_in_flight_max=parts.config.http.requests_in_flight_max,
                identify=Doorkeeper(parts).identify,
            )
        ],
        exception_handlers={Problem: on_problem, HTTPException: on_http_exception},
    )


async def _home(_request: Request) -> Response:
    return RedirectResponse("/status.html")
