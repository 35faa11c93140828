"""The console's routes. Each is in the table of agent/http/needs.py."""

from __future__ import annotations

from starlette.routing import Route

from agent.http.asking import asking
from agent.http.console.acls import Acls
from agent.http.console.groups import Groups
from agent.http.console.overview import Overview
from agent.http.console.records import Records
from agent.http.console.schemas import Schemas
from agent.http.console.shell import FILES, Handler, Maker, file, served, with_problems
from agent.http.console.tables import Tables
from agent.http.console.topics import Topics
from agent.http.console.transactions import Transactions
from agent.http.parts import Parts


def console_routes(parts: Parts) -> list[Route]:
    """None where `console.enabled` is false."""
    if not parts.config.console.enabled:
        return []
    topics, groups, transactions, schemas = Topics(parts), Groups(parts), Transactions(parts), Schemas(parts)

    def route(path: str, handler: Handler) -> Route:
        return Route(path, with_problems(parts, asking(parts, "GET", path, handler)), methods=["GET"])

    def page(path: str, make: Maker) -> Route:
        return route(path, served(parts, make))

    return [
        page("/console", Overview(parts).page),
        page("/console/topics", topics.several),
        page("/console/topics/{name}", topics.one),
        page("/console/topics/{name}/records", Records(parts).page),
        page("/console/groups", groups.several),
        page("/console/group", groups.one),
        page("/console/transactions", transactions.several),
        page("/console/transaction", transactions.one),
        page("/console/tables", Tables(parts).several),
        page("/console/schemas", schemas.several),
        page("/console/schema", schemas.one),
        page("/console/acls", Acls(parts).several),
        *(route(f"/console/{name}", file) for name in FILES),
    ]
