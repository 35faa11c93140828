"""Asking an agent over HTTP, with its errors told as failures."""

from __future__ import annotations

import json
from typing import Any

from agent.cli.failures import Failure, Status, refused, unreachable, usage
from agent.cli.opening import opened, unknown

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


def fetch(base: str, path: str, body: object | None = None, *, seconds_max: float = ANSWER_S_MAX) -> bytes:
    """GET, or POST when there is a body; the answer as it is, ANSWER_BYTES_MAX at most. Raises Failure."""
    # imported here: Python's HTTP client takes a while, and not every command that may ask does
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.parse import urlsplit
    from urllib.request import Request

    url = base.rstrip("/") + path
    if urlsplit(url).scheme not in ("http", "https"):
        raise usage(f"--http {base!r} must begin with http:// or https://")
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
