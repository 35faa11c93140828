"""Nothing before the login but the login: raw requests over a real socket, to a real agent's dispatcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.config import users
from agent.kafka.login import scram
from agent.kafka.login.errors import LoginFailed
from agent.kafka.login.passwords import Passwords
from agent.kafka.order import ENDED
from agent.net.connection import Limits
from agent.net.listening import Listener
from agent.net.server import Server
from agent.net.wire.api import BY_NAME
from agent.net.wire.frame import encode_request_header, frame_request, parse_response_header
from agent.net.wire.generated.api_versions import ApiVersionsRequest
from agent.net.wire.generated.metadata import MetadataRequest
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest
from coordination.commands import DeleteScramCredential, PutScramCredential, SetFeatureLevel
from coordination.kafka_codes import Code
from coordination.state.data import FEATURE_LEVEL_MAX
from coordination.state.types import Done
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.rig import Agent

SASL = {
    "listeners": [{"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "PLAIN,SCRAM-SHA-256"}],
    "sasl": {"admin_user": "root", "admin_password": "secret", "failed_delay_ms": 0},
}
GOOD, BAD = b"\0root\0secret", b"\0root\0wrong"
ASKED = {
    "versions": ("ApiVersions", 0, ApiVersionsRequest()),
    "metadata": ("Metadata", 8, MetadataRequest(topics=[])),
    "plain": ("SaslHandshake", 1, SaslHandshakeRequest(mechanism="PLAIN")),
    "scram": ("SaslHandshake", 1, SaslHandshakeRequest(mechanism="SCRAM-SHA-256")),
    "kerberos": ("SaslHandshake", 1, SaslHandshakeRequest(mechanism="GSSAPI")),
    "good": ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=GOOD)),
    "bad": ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=BAD)),
    "other": ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")),
}
What = str | tuple[str, int, Any]
"""A key of ASKED, or a request: name, version, message."""


def step_of(name: str, **fields: Any) -> tuple[str, int, Any]:
    """A request of a login, by its name: SaslHandshake or SaslAuthenticate."""
    made = {"SaslHandshake": SaslHandshakeRequest, "SaslAuthenticate": SaslAuthenticateRequest}[name]
    return (name, 1, made(**fields))


class Raw:
    """A client that sends what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, what: What) -> None:
        """Without waiting."""
        name, version, request = ASKED[what] if isinstance(what, str) else what
        api = BY_NAME[name]
        header = encode_request_header(api, version, 1, "raw")
        self.writer.write(frame_request(header, api.codec().encode_request(request, version)))

    async def answer(self, what: What) -> Any:
        """The next answer, which is to `what`; None when the connection was closed instead."""
        name, version, _ = ASKED[what] if isinstance(what, str) else what
        try:
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            frame = await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        api = BY_NAME[name]
        _, at = parse_response_header(api, version, frame)
        return api.codec().decode_response(frame[at:], version)

    async def ask(self, what: What) -> Any:
        """Send and wait."""
        self.send(what)
        return await self.answer(what)


@asynccontextmanager
async def serving(agent: Agent, **limits: Any) -> AsyncIterator[tuple[Server, Any]]:
    server = Server(agent.dispatcher, Limits(**limits), agent.services.metrics, ENDED)
    agent.services.hang_up = server.hang_up
    (port,) = await server.start([Listener("L", "127.0.0.1", 0, login=True)])
    opened: list[Raw] = []

    async def connect() -> Raw:
        opened.append(Raw(*await asyncio.open_connection("127.0.0.1", port)))
        return opened[-1]

    try:
        yield server, connect
    finally:
        for raw in opened:
            raw.writer.close()
            with suppress(ConnectionError):
                await raw.writer.wait_closed()
        await server.drain(0.5)


@pytest.fixture
async def agent(start: StartAgent) -> Agent:
    return await start("a", **SASL)


async def test_after_the_login_everything_is_answered(agent: Agent) -> None:
    async with serving(agent) as (_, connect):
        raw = await connect()
        assert (await raw.ask("versions")).error_code == Code.NONE
        assert (await raw.ask("plain")).mechanisms == ["PLAIN", "SCRAM-SHA-256"]
        done = await raw.ask("good")
        assert (done.error_code, done.session_lifetime_ms) == (Code.NONE, 0)
        assert await raw.ask("metadata") is not None
        assert (await raw.ask("good")).error_code == Code.ILLEGAL_SASL_STATE
        assert (await raw.ask("plain")).error_code == Code.ILLEGAL_SASL_STATE
        assert await raw.ask("metadata") is not None


@pytest.mark.parametrize(
    "requests",
    [
        ["metadata"],
        ["good"],
        ["plain", "metadata"],
        ["plain", "versions"],
        ["plain", "plain"],
        ["scram", "metadata"],
        ["plain", "bad", "metadata"],
        ["plain", "bad", "good"],
        ["kerberos", "metadata"],
    ],
    ids="-".join,
)
async def test_what_is_out_of_order_ends_the_connection(agent: Agent, requests: list[str]) -> None:
    """Also when all of it comes in one piece: what stands behind a login that fails is not begun."""
    for at_once in (False, True):
        async with serving(agent) as (_, connect):
            raw = await connect()
            if at_once:
                for what in requests:
                    raw.send(what)
                answers = [await raw.answer(what) for what in requests]
            else:
                answers = [await raw.ask(what) for what in requests]
            assert answers[-1] is None


async def test_a_login_that_fails_is_told_and_counted(agent: Agent) -> None:
    async with serving(agent) as (_, connect):
        with capture_logs() as logs:
            for count in (1, 2):
                raw = await connect()
                await raw.ask("plain")
                told = await raw.ask("bad")
                assert told.error_code == Code.SASL_AUTHENTICATION_FAILED
                assert told.error_message == "Authentication failed: Invalid username or password"
                assert [line["failures"] for line in logs if line["event"] == "login failed"][-1] == count
        assert b"wrong" not in repr(logs).encode()
        raw = await connect()
        told = await raw.ask("kerberos")
        assert told.error_code == Code.UNSUPPORTED_SASL_MECHANISM
        assert told.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


async def test_a_login_that_is_over_is_renewed_by_the_same_user_only(
    start: StartAgent, tmp_path: Path
) -> None:
    """KIP-368. The other one is a user as well."""
    users_file = tmp_path / "users"
    users_file.write_text(users.line_of("alice", "secret", bytes(16)))
    sasl = {**SASL["sasl"], "reauth_ms_max": 300, "users_file": str(users_file)}
    agent = await start("a", listeners=SASL["listeners"], sasl=sasl)
    async with serving(agent) as (_, connect):
        raw, lazy, other = await connect(), await connect(), await connect()
        for one in (raw, lazy, other):
            await one.ask("plain")
            assert (await one.ask("good")).session_lifetime_ms == 300
        await raw.ask("plain")  # before it is over
        assert (await raw.ask("good")).session_lifetime_ms == 300
        await asyncio.sleep(0.35)
        await raw.ask("plain")  # and after
        assert (await raw.ask("good")).error_code == Code.NONE
        assert await raw.ask("metadata") is not None
        assert await lazy.ask("metadata") is None
        await other.ask("plain")
        refused = await other.ask("other")
        assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
        assert "Cannot change principals" in refused.error_message


async def test_who_does_not_log_in_is_cut(agent: Agent) -> None:
    async with serving(agent, login_s_max=0.3) as (server, connect):
        quiet, known = await connect(), await connect()
        await known.ask("plain")
        await known.ask("good")
        assert await asyncio.wait_for(quiet.reader.read(1), 10) == b""
        assert await known.ask("metadata") is not None
        assert server.connections == 1


async def test_few_who_have_not_logged_in_are_there_at_once(agent: Agent) -> None:
    async with serving(agent, strangers_max=5) as (server, connect):
        known = await connect()
        await known.ask("plain")
        await known.ask("good")
        strangers = [await connect() for _ in range(50)]
        last = await connect()
        assert (await last.ask("plain")).error_code == Code.NONE
        assert server.connections <= 6
        assert sum(one.reader.at_eof() for one in strangers) >= 45
        assert await known.ask("metadata") is not None


async def test_little_is_held_of_one_who_has_not_logged_in(agent: Agent) -> None:
    """One frame, no larger than allowed; and nobody works on a second while the first is not answered."""
    async with serving(agent, stranger_frame_bytes_max=2048) as (server, connect):
        large, slow = await connect(), await connect()
        large.writer.write((2049).to_bytes(4, "big") + bytes(8))
        assert await asyncio.wait_for(large.reader.read(1), 3) == b""
        slow.writer.write((2048).to_bytes(4, "big") + bytes(2000))
        await slow.writer.drain()
        await asyncio.sleep(0.1)
        assert server.request_bytes <= 2048


@asynccontextmanager
async def first_of(start: StartAgent, file: Path) -> AsyncIterator[tuple[Agent, Any]]:
    """The agent, and what gives the ways by which a password is the first administrator's."""
    sasl = {**SASL["sasl"], "users_file": str(file)}
    agent = await start("a", listeners=SASL["listeners"], sasl=sasl)
    await agent.services.replica.propose(SetFeatureLevel(level=FEATURE_LEVEL_MAX))
    logins = agent.services.logins
    passwords = Passwords(logins, bytes(32))

    async def ways(password: str) -> set[str]:
        found = {"HTTP"} if await passwords.fit("root", password) else set()
        for name, mechanism in scram.MECHANISMS.items():
            known, digest = await logins.credential("root", mechanism), scram.DIGESTS[mechanism]
            salted = scram.salted(digest, password, known.salt, known.iterations)
            if scram.keys(digest, salted)[0] == known.stored_key:
                found.add(name)
        with suppress(LoginFailed):
            await logins.check("root", password)
            found.add("PLAIN")
        return found

    yield agent, ways


EVERY = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "HTTP"}


async def test_the_first_administrators_password_is_good_for_nothing_once_there_is_another(
    start: StartAgent, tmp_path: Path
) -> None:
    """Whoever sets a credential of that name has changed the password, whatever the mechanism."""
    (tmp_path / "users").write_text("")
    async with first_of(start, tmp_path / "users") as (agent, ways):
        assert await ways("secret") == EVERY
        for mechanism, name in ((1, "SCRAM-SHA-256"), (2, "SCRAM-SHA-512")):
            salted = scram.salted(scram.DIGESTS[mechanism], "newer", b"salt", 4096)
            stored, server = scram.keys(scram.DIGESTS[mechanism], salted)
            put = PutScramCredential(
                user="root",
                mechanism=mechanism,
                iterations=4096,
                salt=b"salt",
                stored_key=stored,
                server_key=server,
                secret=bytes(32),
            )
            assert isinstance(await agent.services.replica.propose(put), Done)
            assert await ways("secret") == set()
            assert await ways("newer") == {name, "HTTP"}
            gone = DeleteScramCredential(user="root", mechanism=mechanism)
            assert isinstance(await agent.services.replica.propose(gone), Done)
            assert await ways("secret") == EVERY


async def test_nor_once_the_file_of_users_has_the_name(start: StartAgent, tmp_path: Path) -> None:
    (tmp_path / "users").write_text("")
    async with first_of(start, tmp_path / "users") as (agent, ways):
        (tmp_path / "users").write_text(users.line_of("root", "newer", bytes(16)))
        assert agent.services.logins.users.renew()
        assert await ways("secret") == set()
        assert await ways("newer") == {"PLAIN", "HTTP"}
