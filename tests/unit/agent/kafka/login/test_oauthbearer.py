"""Logins by OAUTHBEARER over a real socket: RFC 7628's two steps of a refusal, KIP-368's end of a session."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from agent.kafka.login import oauthbearer
from agent.kafka.login.errors import LoginFailed
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest
from coordination.kafka_codes import Code
from tests.equipment.tokens import ISSUER, Issuer, JwksServer
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import Raw, serving

HANDSHAKE = ("SaslHandshake", 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
INVALID = '{"status":"invalid_token"}'


def message(token: str, authorization: str = "", more: str = "") -> bytes:
    named = f"a={authorization}" if authorization else ""
    return f"n,{named},\x01auth=Bearer {token}\x01{more}\x01".encode()


def step(content: bytes) -> tuple[str, int, Any]:
    return ("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=content))


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[JwksServer]:
    with JwksServer(issuer) as server:
        yield server


@pytest.fixture
async def connect(start: StartAgent, server: JwksServer) -> AsyncIterator[Any]:
    agent = await start(
        "a",
        listeners=[{"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "OAUTHBEARER"}],
        sasl={"failed_delay_ms": 0},
        oauth={"jwks_url": server.url, "issuer": ISSUER, "skew_ms_max": 0},
    )
    async with serving(agent) as (_, connect):
        yield connect


async def test_a_token_lets_its_user_in_for_as_long_as_it_holds(connect: Any, issuer: Issuer) -> None:
    raw: Raw = await connect()
    assert (await raw.ask(HANDSHAKE)).mechanisms == ["OAUTHBEARER"]
    more = "traceparent=00-abc\x01"
    done = await raw.ask(step(message(issuer.token(exp=time.time() + 100), "alice", more)))
    assert (done.error_code, done.error_message, bytes(done.auth_bytes)) == (Code.NONE, "", b"")
    assert 95_000 < done.session_lifetime_ms <= 100_000
    assert await raw.ask("metadata") is not None


async def test_a_refusal_has_two_steps(connect: Any, issuer: Issuer) -> None:
    """RFC 7628, 3.2.2: the reason as JSON, the client's word that it heard, the failure."""
    token = issuer.token(exp=1)
    with capture_logs() as logs:
        raw: Raw = await connect()
        await raw.ask(HANDSHAKE)
        first = await raw.ask(step(message(token)))
        assert (first.error_code, json.loads(bytes(first.auth_bytes))) == (Code.NONE, json.loads(INVALID))
        assert first.session_lifetime_ms == 0
        second = await raw.ask(step(b"\x01"))
        assert (second.error_code, second.error_message) == (Code.SASL_AUTHENTICATION_FAILED, INVALID)
        assert await raw.ask("metadata") is None
    failed = [line for line in logs if line["event"] == "login failed"]
    assert [(line["user"], line["why"], line["failures"]) for line in failed] == [
        ("alice", "it is over (exp)", 1)
    ]
    assert not any(part in repr(logs) for part in token.split("."))


@pytest.mark.parametrize("then", ["metadata", "versions", "good token"])
async def test_after_a_refusal_nothing_but_its_end(connect: Any, issuer: Issuer, then: str) -> None:
    """Nobody tries tokens one after another on one connection."""
    raw: Raw = await connect()
    await raw.ask(HANDSHAKE)
    await raw.ask(step(message(issuer.token(iss="somebody"))))
    if then == "good token":
        assert (await raw.ask(step(message(issuer.token())))).error_code == Code.SASL_AUTHENTICATION_FAILED
        then = "metadata"
    assert await raw.ask(then) is None


async def test_replay_after_expiry(connect: Any, issuer: Issuer) -> None:
    """The session ends with its token, which lets nobody in again; a new one of the same user does."""
    raw, again, other = await connect(), await connect(), await connect()
    token = issuer.token(exp=int(time.time()) + 2)
    for one in (raw, again, other):
        await one.ask(HANDSHAKE)
        assert (await one.ask(step(message(token)))).error_code == Code.NONE
    await asyncio.sleep(2.2)
    assert await raw.ask("metadata") is None
    assert (await again.ask(HANDSHAKE)).error_code == Code.NONE
    assert bytes((await again.ask(step(message(token)))).auth_bytes) == INVALID.encode()
    assert (await again.ask(step(b"\x01"))).error_code == Code.SASL_AUTHENTICATION_FAILED
    await other.ask(HANDSHAKE)
    renewed = await other.ask(step(message(issuer.token())))
    assert renewed.session_lifetime_ms > 200_000
    assert await other.ask("metadata") is not None
    await other.ask(HANDSHAKE)
    stranger = await other.ask(step(message(issuer.token(sub="bob"))))
    assert "Cannot change principals" in stranger.error_message


async def test_the_name_to_act_as_is_the_token_s(connect: Any, issuer: Issuer) -> None:
    raw: Raw = await connect()
    await raw.ask(HANDSHAKE)
    refused = await raw.ask(step(message(issuer.token(), "root")))
    assert refused.error_code == Code.SASL_AUTHENTICATION_FAILED
    assert await raw.ask("metadata") is None


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x01", b"n,,", b"n,,\x01\x01", b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01", b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Bearer a.b.c\x01\x01x", b"y,,\x01auth=Bearer a\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01", b"p=x,,\x01auth=Bearer a\x01\x01",
        "n,,\x01auth=Bearer ä\x01\x01".encode(), b"n,a==,\x01auth=Bearer a\x01\x01",
        b"n,,\x01host=x\x01\x01",
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_message_of_it(content: bytes) -> None:
    with pytest.raises(LoginFailed) as failed:
        oauthbearer.parse(content)
    assert not failed.value.challenge


async def test_reauthentication_is_asked_for_at_the_earlier_end(
    start: StartAgent, server: JwksServer, issuer: Issuer
) -> None:
    agent = await start(
        "a",
        listeners=[{"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "OAUTHBEARER"}],
        sasl={"reauth_ms_max": 60_000},
        oauth={"jwks_url": server.url, "issuer": ISSUER},
    )
    async with serving(agent) as (_, connect):
        for seconds, low, high in ((300, 60_000, 60_000), (20, 15_000, 20_000)):
            raw: Raw = await connect()
            await raw.ask(HANDSHAKE)
            done = await raw.ask(step(message(issuer.token(exp=time.time() + seconds))))
            assert low <= done.session_lifetime_ms <= high
