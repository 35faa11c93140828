"""The Iceberg REST catalog over the replicated state, without HTTP.

What Spark, pyiceberg and DuckDB need of the specification (open-api/rest-catalog-open-api.yaml, 1.12):
`ENDPOINTS` lists it and clients are told. A namespace of several levels is held as its levels joined by dots.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from coordination.commands import DropNamespace, PutNamespace, config_entries
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.errors import OutcomeUnknown
from coordination.state.types import Refused
from iceberg.rest_errors import (
    CatalogError,
    already_exists,
    bad_request,
    commit_unknown,
    no_such_namespace,
    unavailable,
)
from iceberg.rest_pointers import CatalogParts, identifier
from iceberg.rest_tables import Tables
from iceberg.rest_transaction import Transactions
from iceberg.rest_views import Views
from objectstore.store import StoreError

_logger = logging.getLogger("floe.iceberg.catalog")

Answer = tuple[int, object | None]

LEVEL_SEPARATORS = ("\x1f", "%1F", "%1f")

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "HEAD /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "POST /v1/{prefix}/namespaces/{namespace}/properties",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "POST /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
    "POST /v1/{prefix}/tables/rename",
    "POST /v1/{prefix}/transactions/commit",
    "GET /v1/{prefix}/namespaces/{namespace}/views",
    "POST /v1/{prefix}/namespaces/{namespace}/views",
    "GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "HEAD /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/views/{view}",
    "POST /v1/{prefix}/namespaces/{namespace}/register-view",
    "POST /v1/{prefix}/views/rename",
)


class Catalog:
    """Answers requests. `table_config` is the storage access that clients get with every table."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts
        self._tables = Tables(parts)
        self._views = Views(parts)
        self._transactions = Transactions(parts, self._tables)

    async def handle(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        """Answer one request: status and JSON value (None: no body). `path` begins with /v1."""
        try:
            return await self._route(method, path, query, body)
        except CatalogError as error:
            return error.status, error.body()
        except StoreError as error:
            _logger.warning("%s %s: %s", method, path, error)
            return _failed(unavailable(f"the object store failed: {error}"))
        except LogError as error:
            return _failed(unavailable(f"the log is not reached: {error}"))

    async def _route(self, method: str, path: str, query: Mapping[str, str], body: bytes) -> Answer:
        segments = [each for each in path.split("/") if each]
        if segments[:1] != ["v1"]:
            raise CatalogError(404, "NotFoundException", f"no such path: {path}")
        match method, segments[1:]:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}, "endpoints": list(ENDPOINTS)}
            case "POST", ["tables", "rename"]:
                return await self._rename(self._tables, _json(body))
            case "POST", ["views", "rename"]:
                return await self._rename(self._views, _json(body))
            case "POST", ["transactions", "commit"]:
                await self._parts.replica.barrier()
                await self._transactions.commit(_json(body))
                return 204, None
            case _, ["namespaces", *rest]:
                await self._parts.replica.barrier()
                return await self._namespaces(method, rest, query, body)
        raise CatalogError(404, "NotFoundException", f"{method} {path} is not offered")

    async def _namespaces(
        self, method: str, rest: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> Answer:
        match method, list(rest):
            case "GET", []:
                return self._list_namespaces(query.get("parent", ""))
            case "POST", []:
                return await self._create_namespace(_json(body))
            case _, [name]:
                return await self._namespace(method, _join(name))
            case "POST", [name, "properties"]:
                return await self._change_namespace(_join(name), _json(body))
            case "POST", [name, "register"]:
                return 200, await self._tables.register(_join(name), _json(body))
            case _, [name, "tables", *table]:
                return await self._table(method, _join(name), table, query, body)
            case "POST", [name, "register-view"]:
                return 200, await self._views.register(_join(name), _json(body))
            case _, [name, "views", *view]:
                return await self._view(method, _join(name), view, body)
        raise CatalogError(404, "NotFoundException", f"{method} namespaces/{'/'.join(rest)} is not offered")

    async def _table(
        self, method: str, namespace: str, rest: Sequence[str], query: Mapping[str, str], body: bytes
    ) -> Answer:
        tables = self._tables
        match method, list(rest):
            case "GET", []:
                self._properties(namespace)
                levels = namespace.split(".")
                names = [{"namespace": levels, "name": name} for name in tables.list(namespace)]
                return 200, {"identifiers": names, "next-page-token": None}
            case "POST", []:
                return 200, await tables.create(namespace, _json(body))
            case "GET", [name]:
                every = query.get("snapshots", "all").lower() != "refs"
                return 200, await tables.load((namespace, name), all_snapshots=every)
            case "HEAD", [name]:
                tables.location_of((namespace, name))
                return 204, None
            case "POST", [name]:
                return 200, await tables.commit((namespace, name), _json(body))
            case "DELETE", [name]:
                purge = query.get("purgeRequested", "false").lower() == "true"
                await tables.drop((namespace, name), purge_files=purge)
                return 204, None
            case "POST", [_, "metrics"]:  # also of a table that is only staged
                return 204, None
        raise CatalogError(404, "NotFoundException", f"{method} tables/{'/'.join(rest)} is not offered")

    async def _view(self, method: str, namespace: str, rest: Sequence[str], body: bytes) -> Answer:
        views = self._views
        match method, list(rest):
            case "GET", []:
                self._properties(namespace)
                levels = namespace.split(".")
                names = [{"namespace": levels, "name": name} for name in views.list(namespace)]
                return 200, {"identifiers": names, "next-page-token": None}
            case "POST", []:
                return 200, await views.create(namespace, _json(body))
            case "GET", [name]:
                return 200, await views.load((namespace, name))
            case "HEAD", [name]:
                views.require((namespace, name))
                return 204, None
            case "POST", [name]:
                return 200, await views.commit((namespace, name), _json(body))
            case "DELETE", [name]:
                await views.drop((namespace, name))
                return 204, None
        raise CatalogError(404, "NotFoundException", f"{method} views/{'/'.join(rest)} is not offered")

    def _properties(self, namespace: str) -> dict[str, str]:
        found = self._parts.replica.state.namespaces.get(namespace)
        if found is None:
            raise no_such_namespace(namespace)
        return found

    def _list_namespaces(self, parent: str) -> Answer:
        above = _join(parent).split(".") if parent else []
        if above:
            self._properties(".".join(above))
        depth = len(above) + 1
        levels = [name.split(".") for name in sorted(self._parts.replica.state.namespaces)]
        found = [each for each in levels if len(each) == depth and each[: depth - 1] == above]
        return 200, {"namespaces": found, "next-page-token": None}

    async def _create_namespace(self, body: Mapping[str, Any]) -> Answer:
        levels = body.get("namespace")
        if not isinstance(levels, list) or not levels or not all(_is_level(each) for each in levels):
            raise bad_request(f"namespace {levels!r}: a list of names without dots and slashes is needed")
        properties = _strings(body.get("properties") or {})
        name = ".".join(levels)
        await self._put_namespace(name, properties, must_not_exist=True)
        return 200, {"namespace": levels, "properties": properties}

    async def _namespace(self, method: str, name: str) -> Answer:
        properties = self._properties(name)
        match method:
            case "GET":
                return 200, {"namespace": name.split("."), "properties": dict(properties)}
            case "HEAD":
                return 204, None
            case "DELETE":
                await self._submit(DropNamespace(name=name), name)
                return 204, None
        raise CatalogError(404, "NotFoundException", f"{method} of a namespace is not offered")

    async def _change_namespace(self, name: str, body: Mapping[str, Any]) -> Answer:
        properties = dict(self._properties(name))
        updates, removals = _strings(body.get("updates") or {}), list(body.get("removals") or [])
        both = sorted(set(updates) & set(removals))
        if both:
            raise CatalogError(
                422, "UnprocessableEntityException", f"{', '.join(both)}: updated and removed at once"
            )
        removed = [each for each in removals if properties.pop(each, None) is not None]
        await self._put_namespace(name, {**properties, **updates}, must_not_exist=False)
        missing = [each for each in removals if each not in removed]
        return 200, {"updated": sorted(updates), "removed": removed, "missing": missing}

    async def _put_namespace(self, name: str, properties: Mapping[str, str], *, must_not_exist: bool) -> None:
        await self._submit(
            PutNamespace(name=name, properties=config_entries(properties), must_not_exist=must_not_exist),
            name,
        )

    async def _submit(self, message: PutNamespace | DropNamespace, name: str) -> None:
        try:
            result = await self._parts.replica.propose(message)
        except OutcomeUnknown as error:
            raise commit_unknown(f"namespace {name}: {error}") from error
        if isinstance(result, Refused):
            if result.code is Code.DUPLICATE_RESOURCE:
                raise already_exists("Namespace", name)
            if result.code is Code.NON_EMPTY_GROUP:
                raise CatalogError(409, "NamespaceNotEmptyException", result.message)
            if result.code is Code.RESOURCE_NOT_FOUND:
                raise no_such_namespace(name)
            raise bad_request(result.message)

    async def _rename(self, among: Tables | Views, body: Mapping[str, Any]) -> Answer:
        await self._parts.replica.barrier()
        await among.rename(identifier(body, "source"), identifier(body, "destination"))
        return 204, None


def _failed(error: CatalogError) -> Answer:
    return error.status, error.body()


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body or b"{}")
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object")
    return found


def _strings(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise bad_request(f"properties {found!r}: an object of strings is needed")
    return {str(name): value for name, value in found.items()}


def _join(segment: str) -> str:
    """A namespace as the state names it, from its form in a path."""
    for separator in LEVEL_SEPARATORS:
        segment = segment.replace(separator, ".")
    return segment


def _is_level(level: object) -> bool:
    return isinstance(level, str) and bool(level) and not any(each in level for each in "./\x1f")
