"""What every HTTP request passes: a bound on requests at once, an id for the logs, one error shape."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from itertools import count
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.http.answers import Problem
from agent.http.identity import Unidentified
from agent.http.shapes import unidentified
from agent.telemetry.logs import logger, request_id
from agent.telemetry.metrics import Metrics
from agent.telemetry.trail import NOBODY, Actor, http_actor

PROBES = ("/livez", "/readyz", "/metrics")
"""Served even when all places are taken: an overloaded agent must not look dead."""
CLOSES = ((b"connection", b"close"),)
"""Behind an answer to a request that did not come to its end: what follows is still part of it."""
Identify = Callable[[Scope], Awaitable[Actor]]
"""Who sends a request. Raises Unidentified."""


class Guard:
    """Pure ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, requests_in_flight_max: int, identify: Identify
    ) -> None:
        self.app = app
        self._metrics = metrics
        self._identify = identify
        self._max = requests_in_flight_max
        self._in_flight = 0
        self._ids = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        token = request_id.set(f"http-{next(self._ids)}")
        asked_by = http_actor.set(NOBODY)
        try:
            await self._serve(scope, receive, send)
        finally:
            request_id.reset(token)
            http_actor.reset(asked_by)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.get().encode()),
                    *(CLOSES if status == 408 else ()),
                ]
            await send(message)

        try:
            # Whoever fails here waits for the answer, and takes no place meanwhile.
            http_actor.set(await self._identify(scope))
            await self._admit(scope, receive, sending)
        except Problem as problem:
            await problem.response()(scope, receive, sending)
        except Unidentified as error:
            await unidentified(scope["path"], error)(scope, receive, sending)
        except Exception:
            logger("http").exception("request failed", method=scope["method"], path=scope["path"])
            if status:
                raise  # part of the answer is out: only closing the connection tells the client
            broken = Problem(500, f"internal error; the agent's log tells more of request {request_id.get()}")
            await broken.response()(scope, receive, sending)
        self._metrics.http_requests.labels(route_of(scope), str(status)).inc()

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it, if there is a place."""
        self._in_flight += 1
        try:
            if self._in_flight > self._max and scope["path"] not in PROBES:
                busy = Problem(
                    503, f"{self._max} requests are being served", "raise http.requests_in_flight_max"
                )
                await busy.response()(scope, receive, send)
            else:
                await self.app(scope, receive, send)
        finally:
            self._in_flight -= 1


def route_of(scope: MutableMapping[str, Any]) -> str:
    """The matched route's template, so that labels stay few."""
    path = getattr(scope.get("route"), "path", "")
    return f"{scope.get('root_path', '')}{path}" if path else "none"


async def on_problem(_request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for Problem."""
    assert isinstance(error, Problem)
    return error.response()


async def on_http_exception(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler for its own 404 and 405."""
    assert isinstance(error, HTTPException)
    path = json.dumps(request.url.path)
    messages = {404: f"nothing is served at {path}", 405: f"{path} does not serve {request.method}"}
    problem = Problem(
        error.status_code,
        messages.get(error.status_code, error.detail),
        "see / for what is served" if error.status_code == 404 else "",
    )
    return problem.response()
