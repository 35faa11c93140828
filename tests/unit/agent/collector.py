"""A collector of OpenTelemetry's: takes OTLP over HTTP, as protobuf, and keeps the spans."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class Collector:
    """What came. `status`: the answer to whoever sends; `open`: cleared, it takes its time."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.requests, self.status = 0, 200
        self.open = asyncio.Event()
        self.open.set()
        self.url = ""

    async def take(self, request: Request) -> Response:
        body = await request.body()
        self.requests += 1
        await self.open.wait()
        if self.status == 200:
            self.headers.append(dict(request.headers))
            self._keep(gzip.decompress(body) if request.headers.get("content-encoding") == "gzip" else body)
        return Response(status_code=self.status, media_type="application/x-protobuf")

    def _keep(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.resources.append(
                {each.key: each.value.string_value for each in resource.resource.attributes}
            )
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def roots(self, name: str) -> list[Span]:
        """The spans of that name that are no part of another one."""
        return [span for span in self.spans if span.name == name and not span.parent_span_id]

    def parts(self, root: Span) -> dict[str, Span]:
        """Its steps, by name."""
        return {span.name: span for span in self.spans if span.parent_span_id == root.span_id}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """A collector that listens."""
    collector = Collector()
    app = Starlette(routes=[Route("/v1/traces", collector.take, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    bound = socket.create_server(("127.0.0.1", 0))
    collector.url = f"http://127.0.0.1:{bound.getsockname()[1]}/v1/traces"
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield collector
    finally:
        collector.open.set()
        server.should_exit = True
        await serving
        bound.close()
