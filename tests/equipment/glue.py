"""What Floe asks of the AWS Glue Data Catalog, over HTTP, by its API reference. No real Glue was seen.

AWS's JSON protocol: the operation is in a header. An update names the version that it was made from.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.equipment.listening import listening

PAGE = 2  # tables of one page


@dataclass
class Glue:
    """Databases with their tables. `key`: the access key id that is taken; empty: any."""

    key: str = ""
    databases: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def answer(self, request: Request) -> Response:
        """One request."""
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        self.asked.append(operation)
        if f"Credential={self.key}" not in request.headers["authorization"]:
            return _error(
                "UnrecognizedClientException", "The security token included in the request is invalid."
            )
        body = json.loads(await request.body())
        if operation == "CreateDatabase":
            if body["DatabaseInput"]["Name"] in self.databases:
                return _error("AlreadyExistsException", "Database already exists.")
            self.databases[body["DatabaseInput"]["Name"]] = {}
            return JSONResponse({})
        tables = self.databases.get(body["DatabaseName"])
        if tables is None:
            return _error("EntityNotFoundException", f"Database {body['DatabaseName']} not found.")
        for each in tables.values():
            each["DatabaseName"] = body["DatabaseName"]
        found: Response = getattr(self, f"_{operation}")(tables, body)
        return found

    def _GetTables(self, tables: dict[str, dict[str, Any]], body: dict[str, Any]) -> Response:
        start = int(body.get("NextToken", 0))
        some = sorted(tables)[start : start + PAGE]
        more = {"NextToken": str(start + PAGE)} if start + PAGE < len(tables) else {}
        return JSONResponse({"TableList": [tables[name] for name in some], **more})

    def _GetTable(self, tables: dict[str, dict[str, Any]], body: dict[str, Any]) -> Response:
        found = tables.get(body["Name"])
        return _gone(body["Name"]) if found is None else JSONResponse({"Table": found})

    def _CreateTable(self, tables: dict[str, dict[str, Any]], body: dict[str, Any]) -> Response:
        given = body["TableInput"]
        if given["Name"] in tables:
            return _error("AlreadyExistsException", "Table already exists.")
        tables[given["Name"]] = {**given, "VersionId": "0"}
        return JSONResponse({})

    def _UpdateTable(self, tables: dict[str, dict[str, Any]], body: dict[str, Any]) -> Response:
        given = body["TableInput"]
        known = tables.get(given["Name"])
        if known is None:
            return _gone(given["Name"])
        if known["VersionId"] != body["VersionId"]:
            return _error(
                "ConcurrentModificationException", "Update table failed due to concurrent modification."
            )
        tables[given["Name"]] = {**given, "VersionId": str(int(known["VersionId"]) + 1)}
        return JSONResponse({})

    def _DeleteTable(self, tables: dict[str, dict[str, Any]], body: dict[str, Any]) -> Response:
        return _gone(body["Name"]) if tables.pop(body["Name"], None) is None else JSONResponse({})


def _gone(name: str) -> Response:
    return _error("EntityNotFoundException", f"Entity Not Found ({name})")


def _error(code: str, message: str) -> Response:
    return JSONResponse({"__type": code, "Message": message}, 400)


@asynccontextmanager
async def served(glue: Glue) -> AsyncIterator[str]:
    """Serve it on a free port; gives its URL."""
    async with listening([Route("/", glue.answer, methods=["POST"])]) as url:
        yield url
