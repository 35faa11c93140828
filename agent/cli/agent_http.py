"""Asking an agent over HTTP, with its errors told as failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.cli.opening import addressed, opened, unknown

ANSWER_S_MAX = 30.0
ANSWER_BYTES_MAX = 64 << 20


def ask(base: str, path: str, body: object | None = None, *, seconds_max: float = ANSWER_S_MAX) -> Any:
    """GET, or POST when there is a body; the answer's JSON. Raises Failure."""
    answer = fetch(base, path, body, seconds_max=seconds_max)
    try:
        return json.loads(answer)
    except ValueError:
        url = base.rstrip("/") + path
        raise Failure(Status.FAILED, f"{url} did not answer with JSON; is it an agent of Floe?") from None


def status_at(base: str, *, seconds_max: float = ANSWER_S_MAX) -> tuple[str, Any, list[Mapping[str, Any]]]:
    """An agent's address, its /status.json, and the processes of its machine where `base` is that of several
    (`agent.supervisor_port`): then it is the first one that answers. Raises Failure."""
    found = ask(base, "/status.json", seconds_max=seconds_max)
    if "processes" not in found:
        return base, found, []
    for each in found["processes"]:
        if each.get("http"):
            own = _with_port(base, int(each["http"]))
            return own, ask(own, "/status.json", seconds_max=seconds_max), found["processes"]
    raise unreachable(
        f"none of the {len(found['processes'])} agents of {base} answers: its /readyz says more"
    )


def _with_port(base: str, port: int) -> str:
    from urllib.parse import urlsplit

    parts = urlsplit(base)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}:{port}"


def fetch(base: str, path: str, body: object | None = None, *, seconds_max: float = ANSWER_S_MAX) -> bytes:
    """GET, or POST when there is a body; the answer as it is, ANSWER_BYTES_MAX at most. Raises Failure."""
    # imported here: Python's HTTP client takes a while, and not every command that may ask does
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import Request

    url = base.rstrip("/") + path
    try:
        addressed(url)
    except ValueError as error:
        raise usage(f"--http {base!r} is not http://host:port: {error}") from None
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    try:
        with opened(Request(url, data, headers), seconds_max) as answer:
            return bytes(answer.read(ANSWER_BYTES_MAX))
    except HTTPError as error:
        with error:
            raise _failure(base, url, error.code, error.read()) from None
    except URLError as error:
        reason = getattr(error.reason, "strerror", None) or error.reason
        raise unreachable(f"no agent answers at {base}: {reason}; give --http http://host:port") from None
    except (TimeoutError, HTTPException, OSError) as error:
        raise unreachable(f"no agent answers at {base}: {error}; give --http http://host:port") from None


def _failure(base: str, url: str, code: int, answer: bytes) -> Failure:
    try:
        error = json.loads(answer)["error"]
        remedy = f" ({error['remedy']})" if error.get("remedy") else ""
        message = f"{error['message']}{'' if code == 401 else remedy}"
    except (ValueError, KeyError, TypeError):
        message = f"{url} answered {code}"
    if code == 401:
        return unknown(base, message)
    return unreachable(message) if code in (502, 503, 504) else refused(message)
