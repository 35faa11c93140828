"""What a machine with several agents answers, by real sockets: ready when, its metrics, its certificate."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agent.config import Config, ConfigError, load
from agent.processes import listening as listenings
from agent.processes.endpoints import Endpoints
from agent.processes.listening import Listening, bound
from agent.processes.slot import Patience, Slot
from agent.processes.supervisor import Supervisor, _kept, _newest, _tls_of, folder_for
from agent.telemetry.supervised import SupervisorMetrics
from coordination.clock import SystemClock
from tests.equipment.certificates import Authority


class Fake:
    """What an agent tells of itself, as its test has it."""

    def __init__(self, path: Path) -> None:
        self.ready = True
        app = Starlette(routes=[Route(f"/{name}", self._answer) for name in ("readyz", "metrics", "about")])
        self.listening = Listening(app, path)

    def _answer(self, request: object) -> Response:
        path = request.url.path  # type: ignore[attr-defined]  # Starlette's
        if path == "/metrics":
            return PlainTextResponse("# HELP a b\n# TYPE a gauge\na 1\n")
        if path == "/about":
            return JSONResponse({"http": 8080, "node_id": 4})
        reasons = [] if self.ready else ["it catches up"]
        return JSONResponse({"ready": self.ready, "reasons": reasons}, 200 if self.ready else 503)


class Two:
    """Two agents, and the endpoints of both."""

    def __init__(self, folder: Path, metrics_open: bool = True) -> None:
        self.fakes = [Fake(folder / str(number)) for number in range(2)]
        metrics, patience = SupervisorMetrics(), Patience(1, 1, 1)
        self.slots = [
            Slot(number, f"a.{number}", [], folder / str(number), patience, SystemClock(), metrics)
            for number in range(2)
        ]
        self.leaving = False
        self.app = Endpoints(self.slots, metrics, lambda: metrics_open, lambda: self.leaving).app()

    async def get(self, path: str) -> httpx.Response:
        """What whoever asks is told."""
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://machine") as client:
            return await client.get(path)

    async def ready(self) -> tuple[int, Sequence[str]]:
        """Status and reasons of /readyz."""
        answer = await self.get("/readyz")
        return answer.status_code, answer.json()["reasons"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short enough for sockets."""
    with tempfile.TemporaryDirectory() as found:
        yield Path(found)


@asynccontextmanager
async def two(folder: Path, metrics_open: bool = True) -> AsyncIterator[Two]:
    """Both agents answer."""
    machine = Two(folder, metrics_open)
    async with AsyncExitStack() as stack:
        for fake in machine.fakes:
            await fake.listening.start()
            stack.push_async_callback(fake.listening.stop)
        yield machine


async def test_it_is_ready_once_each_was_and_while_the_first_is(folder: Path) -> None:
    async with two(folder) as machine:
        first, second = machine.fakes
        second.ready = False
        assert await machine.ready() == (503, ["agent a.1: it catches up"])
        second.ready = True
        machine.slots[1].served = True
        assert await machine.ready() == (200, [])
        second.ready = False
        assert await machine.ready() == (200, []), "its clients go elsewhere, those of the first need not"
        first.ready = False
        assert await machine.ready() == (503, ["agent a.0: it catches up"])
        first.ready, machine.leaving = True, True
        assert await machine.ready() == (503, ["this machine's agents are leaving"])
        await first.listening.stop()
        machine.leaving = False
        assert await machine.ready() == (503, ["agent a.0: it does not answer"])
        assert (await machine.get("/livez")).status_code == 200


async def test_metrics_of_who_answers_and_of_the_machine(folder: Path) -> None:
    async with two(folder) as machine:
        await machine.fakes[1].listening.stop()
        page = (await machine.get("/metrics")).text
    assert 'a{process="0"} 1\n' in page
    assert 'a{process="1"}' not in page
    assert 'floe_process_up{process="1"} 0.0' in page


async def test_where_metrics_are_closed_nobody_gets_them_here(folder: Path) -> None:
    async with two(folder, metrics_open=False) as machine:
        answer = await machine.get("/metrics")
    assert answer.status_code == 403
    assert "read /metrics of each agent" in answer.text


def machine_with(*flags: str) -> Config:
    """The configuration of a machine with two agents."""
    needed = ("log.url=etcd://e:2379/p", "store.url=s3://b/p", "agent.processes=2")
    return load(None, [*needed, *flags], environment={}).config


async def test_a_reload_opens_and_closes_metrics(folder: Path) -> None:
    """With SIGHUP, before the first agent is replaced; a configuration that is refused changes nothing."""
    closed = "http.authentication=required", "http.metrics_open=false"
    newest = [machine_with()]
    supervisor = Supervisor(newest[0], lambda number, path: [], lambda: newest[-1], folder, SystemClock())
    transport = httpx.ASGITransport(supervisor._endpoints().app())

    async def status_after(*flags: str) -> int:
        newest.append(machine_with(*flags))
        renewing = asyncio.create_task(supervisor._renew())  # it waits for agents, which nobody has started
        await asyncio.sleep(0)
        async with httpx.AsyncClient(transport=transport, base_url="http://machine") as client:
            status = (await client.get("/metrics")).status_code
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
        return status

    assert await status_after() == 200
    assert await status_after(*closed) == 403
    assert await status_after("agent.port_step=7") == 403
    assert await status_after("http.authentication=required") == 200
    assert await status_after(*closed) == 403
    assert await status_after("http.metrics_open=false") == 200, "who reaches the port may do everything"


def test_what_a_reload_does_not_change_is_told(tmp_path: Path) -> None:
    """The process that watches speaks TLS by what it was started with."""
    tls = "http.tls_cert_file=a", "http.tls_key_file=b"
    known = _kept(machine_with(*tls))
    assert _kept(machine_with(*tls, "http.metrics_open=false")) == known
    for other in ("tls_key_file=c", "tls_key_password=d", "tls_protocols=TLSv1.3", "tls_ciphers=AES256-SHA"):
        assert _kept(machine_with(*tls, f"http.{other}")) != known, other


async def test_all_else_is_an_agents(folder: Path) -> None:
    async with two(folder) as machine:
        found = (await machine.get("/status.json")).json()["processes"]
        assert [(each["name"], each["http"], each["ready"]) for each in found] == [
            ("a.0", 8080, True),
            ("a.1", 8080, True),
        ]
        other = await machine.get("/iceberg/v1/config")
    assert other.status_code == 404
    assert "ask one of them" in other.json()["error"]["remedy"]


def secured(authority: Authority, folder: Path) -> Config:
    """HTTP with a certificate, which clients show too."""
    pair = authority.pair("agent")
    flags = [
        *("log.url=etcd://e:2379/p", "store.url=s3://b/p", "agent.processes=2"),
        *(f"http.tls_cert_file={pair.cert}", f"http.tls_key_file={pair.key}"),
        *(f"http.tls_ca_file={authority.cert}", "http.tls_client_auth=requested"),
    ]
    return load(None, flags, environment={}).config


async def test_it_speaks_tls_as_its_agents_do_and_a_renewed_certificate_counts(
    tmp_path: Path, folder: Path
) -> None:
    authority = Authority(tmp_path)
    tls = _tls_of(secured(authority, tmp_path))
    assert tls is not None
    bind = bound("test", "127.0.0.1", 0)
    async with two(folder) as machine:
        listening = Listening(machine.app, bind, _newest(tls))
        await listening.start()
        trust = ssl.create_default_context(cafile=str(authority.cert))
        first = await _serial(bind.getsockname()[1], trust)
        authority.pair("agent")
        assert await asyncio.to_thread(tls.renew)
        assert tls.problem == ""
        assert await _serial(bind.getsockname()[1], trust) != first
        await listening.stop()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HTTP/1.1\r\nHost: a", b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"]
)
async def test_clients_that_are_gone_keep_no_probe_out(
    folder: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing, half a request, or one and then nothing: their places are others' after a while."""
    monkeypatch.setattr(listenings, "IDLE_S_MAX", 0.2)
    bind = bound("test", "127.0.0.1", 0)
    port = bind.getsockname()[1]
    async with two(folder) as machine:
        listening = Listening(machine.app, bind)
        await listening.start()
        gone = [await asyncio.open_connection("127.0.0.1", port) for _ in range(listenings.CONNECTIONS_MAX)]
        for _, writer in gone:
            writer.write(sent)
        for reader, writer in gone:
            with contextlib.suppress(ConnectionResetError):
                await reader.read()  # up to its end
            writer.close()
        async with httpx.AsyncClient() as client:
            answer = await client.get(f"http://127.0.0.1:{port}/livez")
        assert answer.status_code == 200
        await listening.stop()


async def _serial(port: int, trust: ssl.SSLContext) -> object:
    """Of the certificate that is shown, with an answer to a request."""
    reader, writer = await asyncio.open_connection("localhost", port, ssl=trust)
    writer.write(b"GET /livez HTTP/1.0\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    found = writer.get_extra_info("peercert")
    writer.close()
    return found["serialNumber"]


def test_a_folder_that_is_too_long_for_sockets_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(ConfigError, match="too long for the sockets"):
        folder_for(2)
    assert list(long.iterdir()) == []
