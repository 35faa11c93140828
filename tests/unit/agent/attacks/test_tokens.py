"""Attacks by tokens of an authorization server, over a connection: nobody is asked but who is configured."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections.abc import AsyncIterator, Iterator
from hashlib import sha256
from typing import Any

import pytest

from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest
from coordination.kafka_codes import Code
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer, JwksServer, base64, claims
from tests.unit.agent.conftest import StartAgent
from tests.unit.agent.kafka.login.test_gate import What, serving

HANDSHAKE: What = ("SaslHandshake", 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
FLOOD = 300


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def server(issuer: Issuer) -> Iterator[JwksServer]:
    with JwksServer(issuer) as started:
        yield started


@pytest.fixture
def elsewhere() -> Iterator[JwksServer]:
    """Somebody else's keys, at an address that only tokens name."""
    with JwksServer(Issuer()) as started:
        yield started


@pytest.fixture
async def connect(start: StartAgent, server: JwksServer) -> AsyncIterator[Any]:
    agent = await start(
        "a",
        listeners=[{"name": "L", "protocol": "SASL_PLAINTEXT", "sasl_mechanisms": "OAUTHBEARER"}],
        oauth={"jwks_url": server.url, "issuer": ISSUER, "audience": AUDIENCE},
        sasl={"failed_delay_ms": 0},
    )
    async with serving(agent) as (_, opened):
        yield opened


async def let_in(connect: Any, token: str) -> bool:
    """Whether a client with this token is logged in."""
    raw = await connect()
    assert (await raw.ask(HANDSHAKE)).error_code == Code.NONE
    sent = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
    answer = await raw.ask(("SaslAuthenticate", 2, SaslAuthenticateRequest(auth_bytes=sent)))
    if answer is None or answer.error_code or answer.auth_bytes:
        raw.writer.close()
        return False
    return await raw.ask("metadata") is not None


def signed(header: dict[str, Any], key: bytes) -> str:
    """By a shared secret, as HS256 has it."""
    parts = [base64(json.dumps(each).encode()) for each in (header, claims())]
    text = ".".join(parts)
    return f"{text}.{base64(hmac.digest(key, text.encode(), 'sha256'))}"


@pytest.mark.parametrize("member", ["jku", "x5u"])
async def test_key_from_an_address_in_the_token(
    connect: Any, server: JwksServer, elsewhere: JwksServer, member: str
) -> None:
    """SSRF: the agent makes no request to where a client says, and believes nothing from there."""
    for kid in ("first", "unknown"):
        header = {member: elsewhere.url, "kid": kid}
        assert not await let_in(connect, elsewhere.issuer.token(header=header))
    assert elsewhere.asked == 0
    assert await let_in(connect, server.issuer.token(header={member: elsewhere.url})), "it is passed over"
    assert elsewhere.asked == 0


async def test_flood_of_unknown_keys(connect: Any, server: JwksServer) -> None:
    """From as many connections: one lookup, and honest clients are let in beside them."""
    stranger = Issuer()
    forged = [stranger.token(header={"kid": str(number)}) for number in range(FLOOD)]
    for at in range(0, FLOOD, 50):
        found = await asyncio.gather(*(let_in(connect, each) for each in forged[at : at + 50]))
        assert not any(found)
        assert await let_in(connect, server.issuer.token())
    assert server.asked == 1


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS256"])
async def test_unsigned_or_by_another_algorithm(connect: Any, issuer: Issuer, algorithm: str) -> None:
    """`alg: none`, and the public key as the secret of HS256 (key confusion), in each form that it has."""
    public = issuer.keys["first"]
    pem = public.as_pem(private=False)
    row = json.dumps(public.as_dict(private=False)).encode()
    for secret in (row, issuer.jwks(), pem, pem.strip(), sha256(pem).digest(), b""):
        token = signed({"alg": algorithm, "kid": "first"}, secret)
        assert not await let_in(connect, token)
        assert not await let_in(connect, token.rpartition(".")[0] + ".")


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": -3_600},
        {"exp": None},
        {"nbf": 86_400},
        {"iat": 86_400},
        {"iss": "https://other.example"},
        {"aud": "other"},
        {"sub": ""},
        {"sub": "alice\n"},
    ],
    ids=repr,
)
async def test_expired_not_yet_valid_or_for_others(connect: Any, issuer: Issuer, changed: Any) -> None:
    """Numbers are seconds from now."""
    now = time.time()
    made = {name: now + value if isinstance(value, int) else value for name, value in changed.items()}
    assert not await let_in(connect, issuer.token(**made))
    assert await let_in(connect, issuer.token())
