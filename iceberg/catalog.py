"""The Iceberg REST catalog over the replicated state, without HTTP.

What Spark, pyiceberg and DuckDB need of the specification (open-api/rest-catalog-open-api.yaml, 1.12):
`ENDPOINTS` lists it and clients are told. A namespace of several levels is held as its levels joined by dots.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from coordination.commands import DropNamespace, PutNamespace, config_entries
from coordination.kafka_codes import Code
from coordination.log import LogError
from coordination.replica.errors import OutcomeUnknown
from coordination.state.acl_types import Operation
from coordination.state.tables import namespace_digest
from coordination.state.types import Refused
from iceberg import rest_body
from iceberg.rest_access import Access, Everybody, Gate, Missing
from iceberg.rest_errors import (
    CatalogError,
    already_exists,
    bad_request,
    commit_failed,
    commit_unknown,
    no_such_namespace,
    no_such_table,
    no_such_view,
    unavailable,
)
from iceberg.rest_lending import VENDED, Lending
from iceberg.rest_locations import Locations
from iceberg.rest_pointers import CatalogParts, Key, identifier
from iceberg.rest_tables import Tables
from iceberg.rest_transaction import Transactions
from iceberg.rest_views import Views
from objectstore.store import StoreError

_logger = logging.getLogger("floe.iceberg.catalog")

Answer = tuple[int, object | None]

LEVEL_SEPARATORS = ("\x1f", "%1F", "%1f")
NAMESPACE_ATTEMPTS_MAX = 16
"""Tries of one change of a namespace's properties: each but the last was overtaken by another's."""

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
CREDENTIALS_ENDPOINT = "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}/credentials"
"""Offered where keys of the store are lent."""


class Asked(NamedTuple):
    """One request, with what whoever asks may. `delegation`: the header of that name (rest_lending.py)."""

    method: str
    query: Mapping[str, str]
    body: bytes
    gate: Gate
    delegation: str

    @property
    def wants_keys(self) -> bool:
        """Whether it asks for storage access."""
        return VENDED in (each.strip().lower() for each in self.delegation.split(","))


class Catalog:
    """Answers requests. `table_config` is the storage access that clients get with every table."""

    def __init__(self, parts: CatalogParts) -> None:
        self._parts = parts
        self._tables = Tables(parts)
        self._views = Views(parts)
        self._transactions = Transactions(parts, self._tables)
        self._lending = None
        if parts.lender is not None:
            locations = Locations(parts.replica, parts.warehouse)
            self._lending = Lending(parts.lender, locations)

    async def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        access: Access | None = None,
        delegation: str = "",
    ) -> Answer:
        """Answer one request: status and JSON value (None: no body). `path` begins with /v1.

        `access`: what whoever asks may; None: everything. `delegation`: the header of that name.
        """
        asked = Asked(method, query, body, Gate(self._parts.replica, access or Everybody()), delegation)
        try:
            return await self._route(path, asked)
        except CatalogError as error:
            return error.status, error.body()
        except StoreError as error:
            _logger.warning("%s %s: %s", method, path, error)
            return _failed(unavailable(f"the object store failed: {error}"))
        except LogError as error:
            return _failed(unavailable(f"the log is not reached: {error}"))

    async def _route(self, path: str, asked: Asked) -> Answer:
        segments = [each for each in path.split("/") if each]
        if segments[:1] != ["v1"]:
            raise CatalogError(404, "NotFoundException", f"no such path: {path}")
        match asked.method, segments[1:]:
            case "GET", ["config"]:
                return 200, {"defaults": {}, "overrides": {}, "endpoints": self._endpoints()}
            case "POST", ["tables", "rename"]:
                return await self._rename(self._tables, asked, no_such_table)
            case "POST", ["views", "rename"]:
                return await self._rename(self._views, asked, no_such_view)
            case "POST", ["transactions", "commit"]:
                await self._parts.replica.barrier()
                await self._transactions.commit(_json(asked.body), asked.gate)
                return 204, None
            case _, ["namespaces", *rest]:
                await self._parts.replica.barrier()
                return await self._namespaces(rest, asked)
        raise CatalogError(404, "NotFoundException", f"{asked.method} {path} is not offered")

    def _endpoints(self) -> list[str]:
        return [*ENDPOINTS, CREDENTIALS_ENDPOINT] if self._lending is not None else [*ENDPOINTS]

    async def _namespaces(self, rest: Sequence[str], asked: Asked) -> Answer:
        match asked.method, list(rest):
            case "GET", []:
                return self._list_namespaces(asked)
            case "POST", []:
                asked.gate.cluster(Operation.CREATE, "create namespaces")
                return await self._create_namespace(_json(asked.body))
            case _, [name]:
                return await self._namespace(_join(name), asked)
            case "POST", [name, "properties"]:
                asked.gate.namespace(_join(name))
                asked.gate.cluster(Operation.ALTER, "change namespaces")
                return await self._change_namespace(_join(name), _json(asked.body))
            case "POST", [name, "register"]:
                asked.gate.cluster(Operation.ALTER, "register tables")
                return 200, await self._tables.register(_join(name), _json(asked.body))
            case _, [name, "tables", *table]:
                return await self._table(_join(name), table, asked)
            case "POST", [name, "register-view"]:
                asked.gate.cluster(Operation.ALTER, "register views")
                return 200, await self._views.register(_join(name), _json(asked.body))
            case _, [name, "views", *view]:
                return await self._view(_join(name), view, asked)
        path = "/".join(rest)
        raise CatalogError(404, "NotFoundException", f"{asked.method} namespaces/{path} is not offered")

    async def _table(self, namespace: str, rest: Sequence[str], asked: Asked) -> Answer:
        tables, gate = self._tables, asked.gate
        match asked.method, list(rest):
            case "GET", []:
                return self._listed(namespace, tables.list(namespace), gate)
            case "POST", []:
                body = _json(asked.body)
                gate.create((namespace, str(body.get("name", ""))))
                return 200, await tables.create(namespace, body)
            case "GET", [name]:
                return 200, await self._load((namespace, name), asked)
            case "GET", [name, "credentials"]:
                return 200, await self._credentials((namespace, name), asked)
            case "HEAD", [name]:
                gate.describe((namespace, name))
                tables.location_of((namespace, name))
                return 204, None
            case "POST", [name]:
                return 200, await tables.commit((namespace, name), _json(asked.body), gate)
            case "DELETE", [name]:
                gate.alter((namespace, name))
                purge = asked.query.get("purgeRequested", "false").lower() == "true"
                await tables.drop((namespace, name), purge_files=purge)
                return 204, None
            case "POST", [_, "metrics"]:  # also of a table that is only staged
                return 204, None
        path = "/".join(rest)
        raise CatalogError(404, "NotFoundException", f"{asked.method} tables/{path} is not offered")

    async def _load(self, key: Key, asked: Asked) -> dict[str, Any]:
        asked.gate.read(key)
        every = asked.query.get("snapshots", "all").lower() != "refs"
        loaded = await self._tables.load(key, all_snapshots=every)
        if self._lending is None or not asked.wants_keys:
            return loaded
        return await self._lending.added(loaded, key, asked.gate.access.principal)

    async def _credentials(self, key: Key, asked: Asked) -> dict[str, Any]:
        if self._lending is None:
            raise CatalogError(
                404, "NotFoundException", "no keys of the store are lent: catalog.vending_role_arn is not set"
            )
        asked.gate.read(key)
        metadata = await self._tables.metadata(key)
        principal = asked.gate.access.principal
        return {"storage-credentials": await self._lending.credentials(metadata, key, principal)}

    def _listed(self, namespace: str, names: Sequence[str], gate: Gate) -> Answer:
        gate.namespace(namespace)
        self._properties(namespace)
        levels = namespace.split(".")
        found = [{"namespace": levels, "name": name} for name in names if gate.sees((namespace, name))]
        return 200, {"identifiers": found, "next-page-token": None}

    async def _view(self, namespace: str, rest: Sequence[str], asked: Asked) -> Answer:
        views, gate = self._views, asked.gate
        match asked.method, list(rest):
            case "GET", []:
                return self._listed(namespace, views.list(namespace), gate)
            case "POST", []:
                body = _json(asked.body)
                gate.create((namespace, str(body.get("name", ""))))
                return 200, await views.create(namespace, body)
            case "GET", [name]:
                gate.read((namespace, name), no_such_view)
                return 200, await views.load((namespace, name))
            case "HEAD", [name]:
                gate.describe((namespace, name), no_such_view)
                views.require((namespace, name))
                return 204, None
            case "POST", [name]:
                gate.alter((namespace, name), no_such_view)
                return 200, await views.commit((namespace, name), _json(asked.body))
            case "DELETE", [name]:
                gate.alter((namespace, name), no_such_view)
                await views.drop((namespace, name))
                return 204, None
        path = "/".join(rest)
        raise CatalogError(404, "NotFoundException", f"{asked.method} views/{path} is not offered")

    def _properties(self, namespace: str) -> dict[str, str]:
        found = self._parts.replica.state.namespaces.get(namespace)
        if found is None:
            raise no_such_namespace(namespace)
        return found

    def _list_namespaces(self, asked: Asked) -> Answer:
        parent = asked.query.get("parent", "")
        above = _join(parent).split(".") if parent else []
        if above:
            asked.gate.namespace(".".join(above))
            self._properties(".".join(above))
        depth = len(above) + 1
        shown = asked.gate.namespaces(sorted(self._parts.replica.state.namespaces))
        levels = [name.split(".") for name in shown]
        found = [each for each in levels if len(each) == depth and each[: depth - 1] == above]
        return 200, {"namespaces": found, "next-page-token": None}

    async def _create_namespace(self, body: Mapping[str, Any]) -> Answer:
        levels = body.get("namespace")
        if not isinstance(levels, list) or not levels or not all(_is_level(each) for each in levels):
            raise bad_request(f"namespace {levels!r}: a list of names without dots and slashes is needed")
        properties = _strings(body.get("properties") or {})
        name = ".".join(levels)
        message = PutNamespace(name=name, properties=config_entries(properties), must_not_exist=True)
        await self._submit(message, name)
        return 200, {"namespace": levels, "properties": properties}

    async def _namespace(self, name: str, asked: Asked) -> Answer:
        asked.gate.namespace(name)
        properties = self._properties(name)
        match asked.method:
            case "GET":
                return 200, {"namespace": name.split("."), "properties": dict(properties)}
            case "HEAD":
                return 204, None
            case "DELETE":
                asked.gate.cluster(Operation.ALTER, "drop namespaces")
                await self._submit(DropNamespace(name=name), name)
                return 204, None
        raise CatalogError(404, "NotFoundException", f"{asked.method} of a namespace is not offered")

    async def _change_namespace(self, name: str, body: Mapping[str, Any]) -> Answer:
        updates, removals = _strings(body.get("updates") or {}), _names(body.get("removals") or [])
        both = sorted(set(updates) & set(removals))
        if both:
            raise CatalogError(
                422, "UnprocessableEntityException", f"{', '.join(both)}: updated and removed at once"
            )
        for _ in range(NAMESPACE_ATTEMPTS_MAX):
            before = self._properties(name)
            removed = [each for each in removals if each in before]
            after = {each: value for each, value in before.items() if each not in removed} | updates
            message = PutNamespace(
                name=name, properties=config_entries(after), expected=namespace_digest(before)
            )
            try:
                await self._submit(message, name)
            except CatalogError as error:
                if error.kind != "CommitFailedException":
                    raise
            else:
                missing = [each for each in removals if each not in removed]
                return 200, {"updated": sorted(updates), "removed": removed, "missing": missing}
        raise unavailable(f"namespace {name} was changed by others {NAMESPACE_ATTEMPTS_MAX} times: try again")

    async def _submit(self, message: PutNamespace | DropNamespace, name: str) -> None:
        try:
            result = await self._parts.proposed(message)
        except OutcomeUnknown as error:
            raise commit_unknown(f"namespace {name}: {error}") from error
        if isinstance(result, Refused):
            if result.code is Code.DUPLICATE_RESOURCE:
                raise already_exists("Namespace", name)
            if result.code is Code.NON_EMPTY_GROUP:
                raise CatalogError(409, "NamespaceNotEmptyException", result.message)
            if result.code is Code.RESOURCE_NOT_FOUND:
                raise no_such_namespace(name)
            if result.code is Code.INVALID_UPDATE_VERSION:
                raise commit_failed(result.message)
            raise bad_request(result.message)

    async def _rename(self, among: Tables | Views, asked: Asked, missing: Missing) -> Answer:
        await self._parts.replica.barrier()
        body = _json(asked.body)
        source, target = identifier(body, "source"), identifier(body, "destination")
        asked.gate.alter(source, missing)
        asked.gate.create(target)
        await among.rename(source, target)
        return 204, None


def _failed(error: CatalogError) -> Answer:
    return error.status, error.body()


def _json(body: bytes) -> dict[str, Any]:
    try:
        found = rest_body.parsed(body or b"{}")
    except ValueError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise bad_request("the body is not a JSON object")
    return found


def _strings(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise bad_request(f"properties {found!r}: an object of strings is needed")
    return {str(name): value for name, value in found.items()}


def _names(found: object) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise bad_request(f"removals {found!r}: a list of names is needed")
    return list(dict.fromkeys(found))


def _join(segment: str) -> str:
    """A namespace as the state names it, from its form in a path."""
    for separator in LEVEL_SEPARATORS:
        segment = segment.replace(separator, ".")
    return segment


def _is_level(level: object) -> bool:
    return isinstance(level, str) and bool(level) and not any(each in level for each in "./\x1f")
