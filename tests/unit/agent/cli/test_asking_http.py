"""`floe` and others' clients with an agent whose HTTP speaks TLS and asks who it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

from agent.cli.failures import Status
from agent.http import HttpServer
from agent.net.doors import tls_of
from tests.equipment.certificates import Authority
from tests.unit.agent.cli.conftest import Ran, floe
from tests.unit.agent.http.closed import closed_agent

PROTO = 'syntax = "proto3"; message A { int32 a = 1; }'


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """An agent on https://, whose certificate `tmp_path/ca.crt` vouches for."""
    authority = Authority(tmp_path)
    pair = authority.pair("agent")
    async with closed_agent(tmp_path, "enforce") as edge:
        update = {
            "tls_cert_file": str(pair.cert),
            "tls_key_file": str(pair.key),
            "tls_ca_file": str(authority.cert),
            "tls_client_auth": "requested",
            "tls_principal_rules": "RULE:^CN=(.*)$/$1/",
        }
        config = edge.parts.config.http.model_copy(update=update)
        server = HttpServer(edge.app, config, tls_of(config, "http"), edge.parts.metrics)
        yield f"https://localhost:{await server.start()}"
        await server.stop()


async def run(folder: Path, *arguments: str, properties: str = "", **environment: str) -> Ran:
    """A command, with a file of properties that trusts the authority."""
    file = folder / "client.properties"
    file.write_text(f"ssl.truststore.type=PEM\nssl.truststore.location={folder}/ca.crt\n{properties}")
    return await asyncio.to_thread(floe, *arguments, FLOE_COMMAND_CONFIG=str(file), **environment)


JAAS = (
    "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
    'sasl.jaas.config=o.a.k.ScramLoginModule required username="root" password="root\'s";\n'
)


@pytest.mark.parametrize("properties", [JAAS, "http.user=root\nhttp.password=root's\n"])
async def test_a_command_says_who_asks(address: str, tmp_path: Path, properties: str) -> None:
    ran = await run(tmp_path, "status", "--http", address, properties=properties)
    assert (ran.status, ran.err) == (0, "")
    assert "edge" in ran.out


async def test_a_command_shows_its_certificate(address: str, tmp_path: Path) -> None:
    root = Authority.pair(_again(tmp_path), "root")
    both = tmp_path / "root.pem"
    both.write_text(root.cert.read_text() + root.key.read_text())
    properties = f"ssl.keystore.type=PEM\nssl.keystore.location={both}\n"
    ran = await run(tmp_path, "status", "--http", address, properties=properties)
    assert (ran.status, ran.err) == (0, "")


def _again(folder: Path) -> Authority:
    """The authority that is in a folder already."""
    found = Authority.__new__(Authority)
    found.folder, found.cert = folder, folder / "ca.crt"
    return found


async def test_without_an_identity_a_command_says_what_to_set(address: str, tmp_path: Path) -> None:
    ran = await run(tmp_path, "status", "--http", address)
    assert ran.status == Status.REFUSED
    assert "asks who you are" in ran.err
    assert "http.token in FLOE_COMMAND_CONFIG" in ran.err


async def test_a_token_comes_from_the_environment_and_is_not_shown(address: str, tmp_path: Path) -> None:
    ran = await run(tmp_path, "status", "--http", address, FLOE_HTTP_TOKEN="t-right")
    assert ran.status == Status.REFUSED
    assert "User:tom may not Describe the cluster" in ran.err
    ran = await run(tmp_path, "status", "--http", address, FLOE_HTTP_TOKEN="t-hidden")
    assert "hidden" not in ran.err + ran.out


async def test_what_does_not_go_together_is_told_without_the_password(address: str, tmp_path: Path) -> None:
    ran = await run(tmp_path, "status", "--http", address, properties="http.password=hidden\n")
    assert "http.user and http.password go together" in ran.err
    assert "hidden" not in ran.err


class Elsewhere(HTTPServer):
    """A server that is no agent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _LeadsOn)
        self.seen: list[tuple[str, str | None]] = []


class _LeadsOn(BaseHTTPRequestHandler):
    """Leads everybody on, and keeps what came."""

    server: Elsewhere

    def do_GET(self) -> None:
        self.server.seen.append((str(self.headers["Host"]), self.headers["Authorization"]))
        self.send_response(302)
        self.send_header("Location", f"http://localhost:{self.server.server_port}/status.json")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is said."""


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    """It serves."""
    server = Elsewhere()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def test_a_password_is_led_nowhere_else_and_given_to_no_other_registry(
    tmp_path: Path, elsewhere: Elsewhere
) -> None:
    Authority(tmp_path)
    base = f"http://127.0.0.1:{elsewhere.server_port}"
    asked = "http.user=root\nhttp.password=hidden\n"
    ran = await run(tmp_path, "status", "--http", base, properties=asked)
    assert ran.status != 0
    ran = await run(tmp_path, "schema", "import", base, "--http", base, properties=asked)
    seen = elsewhere.seen
    assert {host for host, _ in seen} == {f"127.0.0.1:{elsewhere.server_port}"}
    assert [bool(authorization) for _, authorization in seen] == [True, False]


async def test_confluents_client_logs_in_and_is_refused_as_its_own_registry_would(
    address: str, tmp_path: Path
) -> None:
    def register(user: str) -> int:
        login = {"basic.auth.user.info": f"{user}:{user}'s"} if user else {}
        trust = {"ssl.ca.location": str(tmp_path / "ca.crt")}
        with SchemaRegistryClient({"url": address, "max.retries": 0, **trust, **login}) as client:
            return client.register_schema("orders-value", Schema(PROTO, "PROTOBUF"))

    assert await asyncio.to_thread(register, "root") == 1
    with pytest.raises(SchemaRegistryError) as refused:
        await asyncio.to_thread(register, "ann")
    assert (refused.value.http_status_code, refused.value.error_code) == (403, 40301)
    with pytest.raises(SchemaRegistryError) as unknown:
        await asyncio.to_thread(register, "")
    assert (unknown.value.http_status_code, unknown.value.error_code) == (401, 401)
