"""The console's routes. Each is in the table of agent/http/needs.py."""

from __future__ import annotations

from starlette.routing import Route

from agent.http.asking import asking
from agent.http.console.acls import Acls
from agent.http.console.alarms import Alarms, Gather
from agent.http.console.changing.routes import changing_routes
from agent.http.console.deleted import DeletedTopics
from agent.http.console.export import Export
from agent.http.console.groups import Groups
from agent.http.console.life import Life
from agent.http.console.others import Others
from agent.http.console.overview import Overview
from agent.http.console.records import Records
from agent.http.console.schemas import Schemas
from agent.http.console.searching import Places
from agent.http.console.shell import FILES, Handler, Maker, file, served, with_problems
from agent.http.console.table import OneTable
from agent.http.console.table_looks import TableLooks
from agent.http.console.tables import Tables
from agent.http.console.topics import Topics
from agent.http.console.trail import TrailPage
from agent.http.console.transactions import Transactions
from agent.http.gauges import Gauges
from agent.http.parts import Parts


def console_routes(parts: Parts, gather: Gather, gauges: Gauges) -> list[Route]:
    """None where `console.enabled` is false. `gather`, `gauges`: what this agent says of itself."""
    if not parts.config.console.enabled:
        return []
    places, looks = Places(parts.config.console.searches_in_flight_max), TableLooks(parts)
    others = Others(parts)
    topics, groups, transactions, schemas = Topics(parts), Groups(parts), Transactions(parts), Schemas(parts)

    def route(path: str, handler: Handler) -> Route:
        return Route(path, with_problems(parts, asking(parts, "GET", path, handler)), methods=["GET"])

    def page(path: str, make: Maker) -> Route:
        return route(path, served(parts, make))

    return [
        page("/console", Overview(parts, others).page),
        page("/console/topics", topics.several),
        page("/console/topics/{name}", topics.one),
        page("/console/topics/{name}/records", Records(parts, places).page),
        page("/console/topics/{name}/life", Life(parts, places, looks).page),
        page("/console/deleted-topics", DeletedTopics(parts).page),
        page("/console/groups", groups.several),
        page("/console/group", groups.one),
        page("/console/transactions", transactions.several),
        page("/console/transaction", transactions.one),
        page("/console/tables", Tables(parts).several),
        page("/console/table", OneTable(parts, places, looks).page),
        page("/console/schemas", schemas.several),
        page("/console/schema", schemas.one),
        page("/console/acls", Acls(parts).several),
        page("/console/alarms", Alarms(parts, gather, gauges, others).page),
        page("/console/trail", TrailPage(parts).page),
        route("/console/topics/{name}/export", Export(parts, places).answer),
        *(route(f"/console/{name}", file) for name in FILES),
        *changing_routes(parts),
    ]
