"""A schema registry over HTTP, Floe's or any other with Confluent's API, for `floe schema`."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlencode, urlunsplit

from agent.cli.failures import Failure, Status, unreachable, usage
from agent.cli.opening import addressed, opened, unknown

ANSWER_S_MAX = 60.0
ANSWER_BYTES_MAX = 64 << 20
SUBJECT_MISSING, VERSION_MISSING, SCHEMA_MISSING = 40401, 40402, 40403
CONFIG_MISSING, MODE_MISSING = 40408, 40409
NOT_FOUND = 404  # the path is none
MISSING = frozenset(
    {SUBJECT_MISSING, VERSION_MISSING, SCHEMA_MISSING, CONFIG_MISSING, MODE_MISSING, NOT_FOUND}
)
LATEST = "latest"


class Told(Failure):
    """The registry said no; `code` is Confluent's."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(Status.REFUSED, message)
        self.code = code


class Version(NamedTuple):
    """A version of a subject, as a registry tells it."""

    subject: str
    version: int
    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str, int], ...]
    more: Mapping[str, Any]
    """Metadata and rule set, where it has them."""

    def body(self) -> dict[str, Any]:
        """The same as a request says it."""
        references = [
            {"name": name, "subject": subject, "version": version}
            for name, subject, version in self.references
        ]
        return {"schemaType": self.kind, "schema": self.text, "references": references, **self.more}


class Registry:
    """One registry. `base` may hold a user and password, as http://user:password@host:port.

    An `own` one is an agent's, which is told who asks as the other commands tell it.
    """

    def __init__(self, base: str, *, own: bool = True) -> None:
        self._own = own
        try:
            parts = addressed(base)
        except ValueError as error:
            raise usage(f"{base!r} is no URL of a registry, as http://host:port is: {error}") from None
        self._base = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")
        self._headers = {"Accept": "application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
            self._own = False

    def __str__(self) -> str:
        return self._base  # without the password

    def ask(self, method: str, path: str, body: object = None, **query: str) -> Any:
        """The JSON of an answer. Raises Told for what the registry refuses, Failure."""
        # imported here, as in agent_http.py
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import Request

        url = f"{self._base}{path}{'?' if query else ''}{urlencode(query)}"
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({} if data is None else {"Content-Type": "application/json"})
        try:
            request = Request(url, data, headers, method=method)
            with opened(request, ANSWER_S_MAX, own=self._own) as answer:
                return json.loads(answer.read(ANSWER_BYTES_MAX))
        except HTTPError as error:
            with error:
                raise self._failure(error.code, error.read(ANSWER_BYTES_MAX)) from None
        except URLError as error:
            why = getattr(error.reason, "strerror", None) or error.reason
            raise unreachable(f"no registry answers at {self}: {why}") from None
        except ValueError:
            raise Failure(
                Status.FAILED, f"{self}{path} did not answer with JSON; is it a registry?"
            ) from None
        except (TimeoutError, HTTPException, OSError) as error:
            raise unreachable(f"no registry answers at {self}: {error}") from None

    def _failure(self, status: int, answer: bytes) -> Failure:
        try:
            told = json.loads(answer)
            code, message = int(told["error_code"]), str(told["message"])
        except (ValueError, KeyError, TypeError):
            code, message = status, f"{self} answered {status}"
        if status == 401:
            return unknown(str(self), message)
        return unreachable(message) if status in (502, 503, 504) else Told(code, message)

    def found(self, path: str, **query: str) -> Any:
        """GET; None where there is no such thing."""
        try:
            return self.ask("GET", path, **query)
        except Told as told:
            if told.code in MISSING:
                return None
            raise

    def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """Names."""
        query = {"subjectPrefix": prefix} if prefix else {}
        found: list[str] = self.ask("GET", "/subjects", **query, **deleted_too(deleted))
        return found

    def numbers(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Versions of a subject; none of one that is not there."""
        return list(self.found(f"/subjects/{named(subject)}/versions", **deleted_too(deleted)) or ())

    def version(self, subject: str, number: int | str, *, deleted: bool = False) -> Version | None:
        """One version, or the latest; None where it is not there."""
        found = self.found(f"/subjects/{named(subject)}/versions/{number}", **deleted_too(deleted))
        return None if found is None else _version(found)

    def versions(self, subject: str, *, deleted: bool = False) -> Iterator[Version]:
        """All of a subject, ascending. One that goes meanwhile is left out."""
        for number in self.numbers(subject, deleted=deleted):
            one = self.version(subject, number, deleted=deleted)
            if one is not None:
                yield one

    def compatibility(self, subject: str = "") -> str | None:
        """The level that was set for a subject; of all (empty) the one in force; None: nothing was."""
        found = self.found(f"/config/{named(subject)}" if subject else "/config")
        return None if found is None else str(found["compatibilityLevel"])


def deleted_too(deleted: bool) -> dict[str, str]:
    """The query that asks for deleted ones, too."""
    return {"deleted": "true"} if deleted else {}


def named(subject: str) -> str:
    """The name as a part of a path."""
    return quote(subject, safe="")


def _version(told: Mapping[str, Any]) -> Version:
    references = tuple(
        (one["name"], one["subject"], int(one["version"])) for one in told.get("references") or ()
    )
    more = {name: told[name] for name in ("metadata", "ruleSet") if told.get(name)}
    kind = told.get("schemaType") or "AVRO"  # those that know one type only do not name it
    return Version(
        told["subject"], int(told["version"]), int(told["id"]), kind, told["schema"], references, more
    )
