"""Requests over HTTP with who asks: what FLOE_COMMAND_CONFIG and the environment say, never an argument.

A password or token goes to the address that was given and nowhere else: no redirect is followed. In the
clear it goes only where it was given for HTTP itself, or to this machine.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from agent.cli.command_config import command_config
from agent.cli.failures import Failure, Status

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.request import Request

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


def addressed(url: str) -> SplitResult:
    """The parts of a URL that can be asked by HTTP. Raises ValueError, which says why it is none."""
    parts = urlsplit(url)
    host, _ = (parts.hostname or "").encode("idna"), parts.port
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError("it begins with http:// or https://, and names a host")
    return parts


def opened(request: Request, seconds_max: float, *, own: bool = True) -> HTTPResponse:
    """The answer of an agent; of another server (not `own`) without who asks.

    Raises what urllib does, and Failure for a configuration that cannot be used.
    """
    # imported here: Python's HTTP client takes a while, and not every command that may ask does
    from urllib.request import HTTPRedirectHandler, HTTPSHandler, build_opener

    class Stay(HTTPRedirectHandler):
        """An address that an answer names is not asked."""

        def redirect_request(self, *_: object) -> None:
            return None

    config = command_config()
    handlers = [] if config.http_tls is None else [HTTPSHandler(context=config.http_tls)]
    if own and (authorization := header(request.full_url)):
        request.add_unredirected_header("Authorization", authorization)
    answer: HTTPResponse = build_opener(Stay, *handlers).open(request, timeout=seconds_max)
    return answer


def header(url: str) -> str:
    """Who asks, for an agent at this address; empty: nobody in particular."""
    config, parts = command_config(), urlsplit(url)
    safe = parts.scheme == "https" or parts.hostname in _LOCAL
    if config.http_token:
        return f"Bearer {config.http_token}"
    if config.http_user:
        return _basic(config.http_user, config.http_password)
    return _basic(config.user, config.password) if config.user and safe else ""


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def unknown(base: str, told: str) -> Failure:
    """An agent asks who this is."""
    remedy = "name a file with sasl.jaas.config, http.user or http.token in FLOE_COMMAND_CONFIG"
    clear = " (a password of sasl.jaas.config goes to https:// only)" if base.startswith("http:") else ""
    return Failure(Status.REFUSED, f"{base} asks who you are: {told}; {remedy}{clear}")
