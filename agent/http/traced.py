"""Every HTTP request as a trace: from its head to the answer's last byte (agent/telemetry/tracing.py).

Names and attributes are OpenTelemetry's for HTTP. A path or a query may name what a client looks for, so a
trace has the route alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPMethod

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.http.guard import PROBES, Guard, Identify, route_of
from agent.telemetry.logs import request_id
from agent.telemetry.metrics import Metrics
from agent.telemetry.tracing import Link, Traces, Value, current, parsed

METHODS = frozenset(HTTPMethod)
OTHER = "_OTHER"
"""In place of a method that is none, as OpenTelemetry has it."""
FAULT = 500  # statuses from here on are this side's fault


class TracedGuard(Guard):
    """A Guard that tells of what it does. Made only where traces are wanted. Probes are not told of."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, requests_in_flight_max: int, identify: Identify, traces: Traces
    ) -> None:
        super().__init__(app, metrics, requests_in_flight_max, identify)
        self._traces = traces

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        trace = None if scope["path"] in PROBES else self._traces.begin("HTTP", "server")
        if trace is None:
            await super()._serve(scope, receive, send)
            return
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, trace.answering = message["status"], asyncio.get_running_loop().time()
            await send(message)

        token, error = current.set(trace), ""
        try:
            await super()._serve(scope, receive, sending)
        except BaseException as failure:
            error = "cancelled" if isinstance(failure, asyncio.CancelledError) else type(failure).__name__
            raise
        finally:
            current.reset(token)
            trace.attributes |= _about(scope, status)
            method, route = trace.attributes["http.request.method"], route_of(scope)
            trace.name = f"{'HTTP' if method == OTHER else method} {route}"
            trace.links = lambda: _links(scope)
            self._traces.end(trace, error or (str(status) if status >= FAULT else ""))


def _about(scope: Scope, status: int) -> Mapping[str, Value]:
    client, method = scope.get("client"), scope["method"]
    return {
        "http.request.method": method if method in METHODS else OTHER,
        "http.route": route_of(scope),
        "http.response.status_code": status,
        "url.scheme": scope["scheme"],
        "network.peer.address": client[0] if client else "",
        "floe.request": request_id.get(),
    }


def _links(scope: Scope) -> list[Link]:
    """The client's span, where its request names one."""
    found = (parsed(value) for name, value in scope["headers"] if name == b"traceparent")
    return [link for link in found if link is not None]
