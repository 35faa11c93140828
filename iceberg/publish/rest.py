"""Entries in another Iceberg REST catalog (open-api/rest-catalog-open-api.yaml).

`register` takes a location as it is; with `overwrite` (1.10 of the specification) also for a name that is
there. A catalog without it refuses; then the entry has to be dropped and registered again, and readers miss
it for a moment. There is no compare-and-swap of a location in the specification: whoever publishes looks
right before, and again from time to time.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlencode

import urllib3

from iceberg import json_steps
from iceberg.publish.other import (
    PAGES_S_MAX,
    CannotReplace,
    CatalogAway,
    CatalogFailed,
    Entry,
    EntryChanged,
    EntryUnanswered,
    Key,
    Pointer,
)
from objectstore.turns import at_once

ANSWER_BYTES_MAX = 64 << 20
"""Of one answer: a table's metadata, or a page of names."""
PAGES_MAX = 1_000  # of one list of names
TEXT_MAX = 300  # characters of what a catalog says
DEPTH = 3

_UNSUPPORTED = "UnsupportedOperationException"
_NO_OVERWRITE = (405, 406, 409, 501)
_NO_SUCH = ("", "NoSuchTableException", "NoSuchNamespaceException")
"""Types of a 404 that says that there is no entry. NotFoundException: its metadata file is gone."""


@dataclass(frozen=True, slots=True)
class RestOptions:
    """Where the catalog is, and how it is spoken to. `credential`: `client:secret` of OAuth2."""

    uri: str
    warehouse: str = ""
    credential: str = ""
    token: str = ""
    oauth_uri: str = ""
    scope: str = "catalog"
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str = ""
    timeout_s: float = 5.0
    connections_max: int = 4


class RestCatalog:
    """See OtherCatalog. Threads share it."""

    shows_metadata = False

    def __init__(self, options: RestOptions) -> None:
        self._options = options
        self.call_s_max = PAGES_S_MAX
        self._uri = options.uri.rstrip("/")
        self._pool = urllib3.PoolManager(
            maxsize=options.connections_max,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=options.timeout_s, read=options.timeout_s),
            ca_certs=options.ca_file or None,
        )
        self._lock = threading.Lock()
        self._prefix: str | None = None  # what /v1/config said, once it was asked
        self._separator = "\x1f"
        self._token = options.token
        self._overwrites = True

    def spelled(self, key: Key) -> Key:
        return key

    def names(self, namespace: str) -> Mapping[str, str | None]:
        found: dict[str, str | None] = {}
        query: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            status, answer = self._ask("GET", f"{self._space(namespace)}/tables", query=query)
            if status == 404:
                return found
            self._need(status, answer, f"list the tables of {namespace}")
            found.update({str(each.get("name")): None for each in answer.get("identifiers") or ()})
            token = answer.get("next-page-token")
            if not token:
                return found
            query = {"pageToken": str(token)}
        raise CatalogFailed(f"namespace {namespace} has over {PAGES_MAX} pages of tables")

    def look(self, key: Key) -> Entry | None:
        status, answer = self._ask("GET", self._table(key), query={"snapshots": "refs"})
        if status == 404:
            if _kind(answer) in _NO_SUCH:
                return None
            raise CatalogFailed(
                f"{'.'.join(key)} is there, and the metadata that it points to is gone: {_said(answer)}; "
                "drop the entry in that catalog, it is made anew"
            )
        self._need(status, answer, f"load {'.'.join(key)}")
        location = answer.get("metadata-location")
        return Entry(location if isinstance(location, str) else "")

    def create(self, key: Key, pointer: Pointer) -> None:
        status, answer = self._register(key, pointer.location, overwrite=False)
        if status == 404 and _kind(answer) == "NoSuchNamespaceException":
            self._make_namespace(key[0])
            status, answer = self._register(key, pointer.location, overwrite=False)
        if status == 409:
            raise EntryChanged(
                f"{'.'.join(key)} is there meanwhile: {_said(answer)} "
                "(if this goes on, that catalog has it and cannot load it: drop the entry there)"
            )
        self._need(status, answer, f"register {'.'.join(key)} at {pointer.location}")

    def replace(self, key: Key, entry: Entry, pointer: Pointer) -> None:
        title = ".".join(key)
        if not self._overwrites:
            raise CannotReplace(f"{title}: this catalog does not register over what is there")
        status, answer = self._register(key, pointer.location, overwrite=True)
        if status in _NO_OVERWRITE or _kind(answer) == _UNSUPPORTED:
            self._overwrites = False
            raise CannotReplace(f"{title}: {_said(answer)}")
        self._need(status, answer, f"register {title} at {pointer.location}")

    def drop(self, key: Key, entry: Entry) -> None:
        status, answer = self._ask("DELETE", self._table(key), query={"purgeRequested": "false"})
        if status != 404:
            self._need(status, answer, f"drop {'.'.join(key)}")

    def close(self) -> None:
        self._pool.clear()

    def _register(self, key: Key, location: str, *, overwrite: bool) -> tuple[int, dict[str, Any]]:
        body: dict[str, Any] = {"name": key[1], "metadata-location": location}
        if overwrite:
            body["overwrite"] = True
        return self._ask("POST", f"{self._space(key[0])}/register", body)

    def _make_namespace(self, namespace: str) -> None:
        levels = namespace.split(".")
        for depth in range(1, len(levels) + 1):
            status, answer = self._ask("POST", "namespaces", {"namespace": levels[:depth], "properties": {}})
            if status != 409:
                self._need(status, answer, f"create namespace {'.'.join(levels[:depth])}")

    def _space(self, namespace: str) -> str:
        self._configure()
        return f"namespaces/{quote(self._separator.join(namespace.split('.')), safe='')}"

    def _table(self, key: Key) -> str:
        return f"{self._space(key[0])}/tables/{quote(key[1], safe='')}"

    def _configure(self) -> None:
        """Ask once how this catalog's paths begin."""
        with self._lock:
            if self._prefix is not None:
                return
            query = {"warehouse": self._options.warehouse} if self._options.warehouse else {}
            try:
                status, answer = self._send("GET", "/v1/config", None, query)
            except EntryUnanswered as error:  # without it nothing can be asked
                raise CatalogAway(str(error)) from error
            if status != 200:
                raise CatalogAway(f"GET {self._uri}/v1/config: {_told(status, answer)}{self._remedy(status)}")
            given = {**(answer.get("defaults") or {}), **(answer.get("overrides") or {})}
            self._separator = unquote(str(given.get("namespace-separator") or "\x1f"))
            self._uri = str(given.get("uri") or self._uri).rstrip("/")
            prefix = str(given.get("prefix") or "").strip("/")
            self._prefix = f"/v1/{prefix}" if prefix else "/v1"

    def _ask(
        self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        self._configure()
        status, answer = self._send(method, f"{self._prefix}/{path}", body, query or {})
        if status in (401, 419):
            raise CatalogAway(f"{method} {path}: {_told(status, answer)}{self._remedy(status)}")
        if status in (429, 503):
            raise CatalogAway(f"{method} {path}: {_told(status, answer)}")
        if status >= 500 and status != 501:
            raise EntryUnanswered(f"{method} {path}: {_told(status, answer)}")
        return status, answer

    def _send(
        self, method: str, path: str, body: object, query: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """One request; a second time with a new token where the first was not taken."""
        url = f"{self._uri}{path}?{urlencode(query)}" if query else f"{self._uri}{path}"
        content = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        status, answer = self._exchange(method, url, content, {**headers, **self._authorization()})
        if status in (401, 419) and self._options.credential:
            self._token = ""
            status, answer = self._exchange(method, url, content, {**headers, **self._authorization()})
        return status, answer

    def _authorization(self) -> dict[str, str]:
        if not self._token and self._options.credential:
            self._token = self._fetched_token()
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _fetched_token(self) -> str:
        """Raises CatalogAway where the credentials are not taken."""
        client, colon, secret = self._options.credential.partition(":")
        fields = {"grant_type": "client_credentials", "client_secret": secret if colon else client}
        if colon:
            fields["client_id"] = client
        fields["scope"] = self._options.scope
        url = self._options.oauth_uri or f"{self._uri}/v1/oauth/tokens"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        try:
            status, answer = self._exchange("POST", url, urlencode(fields).encode(), headers)
        except EntryUnanswered as error:
            raise CatalogAway(str(error)) from error
        token = answer.get("access_token")
        if status != 200 or not isinstance(token, str):
            told = answer.get("error_description") or answer.get("error") or _told(status, answer)
            raise CatalogAway(f"POST {url}: no token: {str(told)[:TEXT_MAX]}{self._remedy(401)}")
        return token

    def _remedy(self, status: int) -> str:
        return " (look at its credential or token in the configuration)" if status in (401, 403, 419) else ""

    def _exchange(
        self, method: str, url: str, content: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        headers = {**self._options.headers, **headers}
        try:
            response = self._pool.request(
                method, url, body=content, headers=headers, preload_content=False, redirect=False
            )
            try:
                data = response.read(ANSWER_BYTES_MAX + 1, decode_content=True)
            finally:
                response.release_conn()
        except (urllib3.exceptions.ReadTimeoutError, urllib3.exceptions.ProtocolError) as error:
            raise EntryUnanswered(
                f"{method} {url.partition('?')[0]} is not answered: {_reason(error)}"
            ) from error
        except urllib3.exceptions.HTTPError as error:
            raise CatalogAway(f"{url.partition('?')[0]} is not reached: {_reason(error)}") from error
        if len(data) > ANSWER_BYTES_MAX:
            raise CatalogFailed(f"{method} {url}: an answer of over {ANSWER_BYTES_MAX} bytes")
        return response.status, _decoded(data)

    def _need(self, status: int, answer: Mapping[str, Any], what: str) -> None:
        if status >= 300:
            raise CatalogFailed(f"{what}: {_told(status, answer)}{self._remedy(status)}")


def _decoded(data: bytes) -> dict[str, Any]:
    """The answer's object; empty for another, as a proxy's page."""
    try:
        found = at_once(json_steps.decode(data, DEPTH)) if data else {}
    except ValueError:
        found = {"error": {"message": data[:TEXT_MAX].decode(errors="replace")}}
    return found if isinstance(found, dict) else {}


def _kind(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    return str(error.get("type", "")) if isinstance(error, dict) else ""


def _said(answer: Mapping[str, Any]) -> str:
    error = answer.get("error")
    return str(error.get("message", "") if isinstance(error, dict) else error or "")[:TEXT_MAX]


def _told(status: int, answer: Mapping[str, Any]) -> str:
    return f"it answers {status} {_kind(answer)}: {_said(answer)}".replace(" :", ":")


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {getattr(error, 'reason', None) or error}"[:TEXT_MAX]
