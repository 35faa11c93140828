"""The bounds around every request, and uvicorn in the agent's own loop on a real socket."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import signal
from collections.abc import AsyncIterator, Iterator, Mapping

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Scope

from agent.config import HttpConfig, LoggingConfig
from agent.http import HttpServer, answers
from agent.http.guard import Guard
from agent.http.identity import actor_of
from agent.telemetry import logs
from agent.telemetry.metrics import Metrics
from agent.telemetry.trail import Actor
from iceberg.rest_access import Access
from tests.unit.agent.http.conftest import Edge, connect


class Catalog:
    """Answers with what it was given."""

    async def handle(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes,
        access: Access | None = None,
        delegation: str = "",
    ) -> tuple[int, object | None]:
        """Echo, except that /v1/gone has no body."""
        assert access is not None
        assert (access.principal, access.cleared, delegation) == ("ANONYMOUS", True, "")
        if path == "/v1/gone":
            return 204, None
        return 200, {"method": method, "path": path, "query": dict(query), "bytes": len(body)}


def guarded(requests_in_flight_max: int, *routes: Route) -> Starlette:
    """An application of these routes behind the guard, put together as agent/http/app.py does."""

    async def anybody(scope: Scope) -> Actor:
        return actor_of(scope)

    guard = Middleware(
        Guard, metrics=Metrics(), requests_in_flight_max=requests_in_flight_max, identify=anybody
    )
    return Starlette(routes=routes, middleware=[guard])


def on_sigterm(number: int, frame: object) -> None:
    """The process's own handler."""


@pytest.fixture
def handler() -> Iterator[None]:
    """SIGTERM belongs to the process: tests before this one may have left anything there."""
    before = signal.signal(signal.SIGTERM, on_sigterm)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
async def address(edge: Edge) -> AsyncIterator[str]:
    """The agent's HTTP side on a real port."""
    server = HttpServer(edge.rebuilt(catalog=Catalog()), edge.parts.config.http)
    yield f"http://127.0.0.1:{await server.start()}"
    await server.stop()


async def test_it_serves_on_a_real_port_and_leaves_signals_alone(handler: None, address: str) -> None:
    assert signal.getsignal(signal.SIGTERM) is on_sigterm
    async with httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/livez")).status_code == 200
        assert (await client.get("/status.json")).json()["agent"] == "edge"
        assert "server" not in (await client.get("/livez")).headers


async def test_a_port_in_use_is_told_with_the_address(address: str) -> None:
    port = int(address.rpartition(":")[2])
    server = HttpServer(Starlette(), HttpConfig(host="127.0.0.1", port=port))
    with pytest.raises(OSError, match=f"cannot bind 127.0.0.1:{port}"):
        await server.start()


async def test_a_stopped_server_frees_its_port(edge: Edge) -> None:
    server = HttpServer(edge.app, edge.parts.config.http)
    port = await server.start()
    await server.stop()
    await server.stop()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_the_catalog_gets_method_path_query_and_body(address: str, method: str) -> None:
    async with httpx.AsyncClient(base_url=address) as client:
        answer = await client.request(method, "/iceberg/v1/namespaces/a%1Fb?x=1", content=b"12345")
        assert answer.json() == {
            "method": method,
            "path": "/v1/namespaces/a\x1fb",
            "query": {"x": "1"},
            "bytes": 5,
        }
        assert (await client.head("/iceberg/v1/config")).status_code == 200
        gone = await client.post("/iceberg/v1/gone")
        assert (gone.status_code, gone.content) == (204, b"")


async def test_a_body_without_a_length_is_still_bounded(address: str) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 4096

    async with httpx.AsyncClient(base_url=address) as client:
        answer = await client.post("/iceberg/v1/tables", content=endless())
    assert answer.status_code == 413
    assert answer.json()["error"]["type"] == "BadRequestException"


FORM = b"Content-Type: application/x-www-form-urlencoded"


@pytest.mark.parametrize(
    "path", ["/iceberg/v1/tables", "/subjects/x-value/versions", "/iceberg/v1/oauth/tokens"]
)
async def test_a_body_that_does_not_come_gives_its_place_up(
    edge: Edge, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(answers, "BODY_STILL_S_MAX", 0.05)
    app = edge.rebuilt(catalog=Catalog(), tokens=object())
    server = HttpServer(app, edge.parts.config.http)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    head = b"POST %s HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 9\r\n\r\n{" % (path.encode(), FORM)
    writer.write(head)
    async with asyncio.timeout(30):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408"), answer
    assert b"the body stopped" in answer
    writer.close()
    await server.stop()


async def test_a_body_that_comes_too_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BODY_STILL_S_MAX", 0.05)
    monkeypatch.setattr(answers, "BODY_BYTES_PER_S_MIN", 1 << 60)

    async def byte_by_byte() -> Message:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x", "more_body": True}

    request = Request({"type": "http", "headers": []}, byte_by_byte)
    with pytest.raises(answers.Problem, match="or came too slowly") as raised:
        await answers.read_body(request, 1 << 40)
    assert raised.value.status == 408


async def test_garbage_on_the_port_is_answered_and_does_no_harm(address: str) -> None:
    port = int(address.rpartition(":")[2])
    for garbage in (
        b"\x00\x00\x00\x12\x00\x03\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET /" + b"x" * 100_000,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(garbage)
        assert (await reader.read(12)).startswith(b"HTTP/1.1 400")
        writer.close()
        await writer.wait_closed()
    async with httpx.AsyncClient(base_url=address) as client:
        assert (await client.get("/livez")).status_code == 200


async def test_without_a_catalog_iceberg_answers_in_its_own_shape(client: httpx.AsyncClient) -> None:
    answer = await client.get("/iceberg/v1/config")
    assert answer.status_code == 404
    assert answer.json() == {
        "error": {"message": "this agent serves no catalog", "type": "NotFoundException", "code": 404}
    }


async def test_unknown_paths_and_methods_are_errors_in_json(client: httpx.AsyncClient) -> None:
    missing = await client.get("/nothing/here")
    assert (missing.status_code, missing.json()["error"]["message"]) == (
        404,
        'nothing is served at "/nothing/here"',
    )
    wrong = await client.post("/livez")
    assert (wrong.status_code, wrong.json()["error"]["message"]) == (405, '"/livez" does not serve POST')


async def test_above_the_bound_requests_get_503_but_probes_pass() -> None:
    arrived, finish = asyncio.Event(), asyncio.Event()

    async def slow(_request: Request) -> Response:
        arrived.set()
        await finish.wait()
        return PlainTextResponse("done")

    alive = Route("/livez", lambda _request: PlainTextResponse("alive"))
    async with connect(guarded(1, Route("/slow", slow), alive)) as client:
        first = asyncio.create_task(client.get("/slow"))
        await arrived.wait()
        refused = await client.get("/slow")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert (await client.get("/livez")).text == "alive"
        finish.set()
        assert (await first).text == "done"
        assert (await client.get("/slow")).text == "done"


async def test_a_failure_inside_is_a_500_whose_id_is_in_the_log() -> None:
    async def broken(_request: Request) -> Response:
        raise RuntimeError("secret detail")

    stream = io.StringIO()
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    logs.configure(LoggingConfig(format="json"), stream, agent="edge")
    try:
        async with connect(guarded(8, Route("/x", broken))) as client:
            answer = await client.get("/x")
    finally:
        root.handlers[:], root.level = before
    assert answer.status_code == 500
    assert "secret detail" not in answer.text
    line = next(json.loads(text) for text in stream.getvalue().splitlines() if "request failed" in text)
    assert line["request"] == answer.headers["x-request-id"]
    assert line["request"] in answer.json()["error"]["message"]
    assert (line["agent"], line["level"], line["path"]) == ("edge", "error", "/x")
    assert "secret detail" in line["exception"]
