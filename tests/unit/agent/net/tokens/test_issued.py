"""Attacks on tokens that the agents give: changed, over, of others, of users with another password now."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

from agent.net.tokens.identity import TokenRefused
from agent.net.tokens.issued import AUDIENCE, TOKEN_CHARS_MAX, IssuedTokens
from coordination.clock import SystemClock

SECRET = b"0123456789abcdef0123456789abcdef"


class Hands(SystemClock):
    """A clock that is set."""

    ms = 1_000_000_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def kept() -> dict[str, bytes]:
    """What is kept of users."""
    return {"alice": b"hash one", "bob": b"hash two"}


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def tokens(kept: dict[str, bytes], clock: Hands) -> IssuedTokens:
    return another(kept, clock)


def another(kept: dict[str, bytes], clock: Hands, secret: bytes = SECRET, cluster: str = "c") -> IssuedTokens:
    return IssuedTokens(secret, cluster, 60, clock, lambda user: kept.get(user, b""))


def part(raw: dict[str, Any]) -> str:
    return urlsafe_b64encode(json.dumps(raw).encode()).decode().rstrip("=")


def claims_of(token: str) -> dict[str, Any]:
    middle = token.split(".")[1]
    found: dict[str, Any] = json.loads(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    return found


async def refused(tokens: IssuedTokens, token: str, why: str) -> None:
    with pytest.raises(TokenRefused, match=why) as raised:
        await tokens.verify(token)
    assert token not in str(raised.value)


async def test_every_agent_takes_what_another_gave(
    tokens: IssuedTokens, kept: dict[str, bytes], clock: Hands
) -> None:
    token = tokens.issue("alice")
    found = await another(kept, clock).verify(token)
    assert (found.principal, found.expires_ms) == ("alice", clock.ms + 60_000)
    assert tokens.takes(token)


async def test_a_token_is_over_when_it_says_so(tokens: IssuedTokens, clock: Hands) -> None:
    token = tokens.issue("alice")
    clock.ms += 59_999
    await tokens.verify(token)
    clock.ms += 1
    await refused(tokens, token, "it is over")
    assert tokens.subject(token) == "alice"  # whose it was is still to be seen


async def test_a_changed_password_ends_its_tokens_at_once(
    tokens: IssuedTokens, kept: dict[str, bytes]
) -> None:
    alice, bob = tokens.issue("alice"), tokens.issue("bob")
    kept["alice"] = b"hash three"
    await refused(tokens, alice, "changed or taken away")
    assert (await tokens.verify(bob)).principal == "bob"
    kept["alice"] = b"hash one"
    await tokens.verify(alice)


async def test_a_user_who_is_gone_has_no_tokens(tokens: IssuedTokens, kept: dict[str, bytes]) -> None:
    token = tokens.issue("alice")
    del kept["alice"]
    await refused(tokens, token, "changed or taken away")
    await refused(tokens, tokens.issue("nobody"), "changed or taken away")


async def test_other_secrets_clusters_and_audiences_are_refused(
    tokens: IssuedTokens, kept: dict[str, bytes], clock: Hands
) -> None:
    await refused(
        tokens, another(kept, clock, b"another secret of 32 characters!").issue("alice"), "signature"
    )
    await refused(tokens, another(kept, clock, cluster="d").issue("alice"), "not of this cluster")
    claims = {**claims_of(tokens.issue("alice")), "aud": "another"}
    signed = jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])
    await refused(tokens, signed, "not of this cluster")


async def test_alg_none_and_key_confusion(tokens: IssuedTokens) -> None:
    """A payload that is right in all, under another algorithm or with its signature taken away."""
    head, payload, signature = tokens.issue("alice").split(".")
    none = part({"alg": "none", "typ": "JWT"})
    await refused(tokens, f"{none}.{payload}.", "signature")
    await refused(tokens, f"{none}.{payload}.{signature}", "signature")
    assert not tokens.takes(f"{none}.{payload}.")
    await refused(tokens, f"{part({'alg': 'HS512'})}.{payload}.{signature}", "signature")
    await refused(tokens, f"{head}.{payload}.", "signature")
    rsa = RSAKey.generate_key(2048)
    signed = jwt.encode({"alg": "RS256"}, claims_of(f".{payload}."), rsa, algorithms=["RS256"])
    await refused(tokens, signed, "signature")
    assert not tokens.takes(signed)


async def test_a_payload_cannot_be_changed(tokens: IssuedTokens) -> None:
    head, payload, signature = tokens.issue("alice").split(".")
    for changes in ({"sub": "bob"}, {"exp": 2**40}, {"cred": ""}):
        forged = part({**claims_of(f".{payload}."), **changes})
        await refused(tokens, f"{head}.{forged}.{signature}", "signature")


@pytest.mark.parametrize("junk", ["", ".", "..", "a.b.c", "ä.ö.ü", "." * 1_000, "W10.W10.", "e30.e30.e30"])
async def test_what_is_no_token_is_nobodys(tokens: IssuedTokens, junk: str) -> None:
    assert not tokens.takes(junk)
    await refused(tokens, junk or "x", "signature")


async def test_large_tokens_are_not_looked_at(tokens: IssuedTokens) -> None:
    token = tokens.issue("alice")
    await refused(tokens, token + "a" * TOKEN_CHARS_MAX, "larger than")


def test_a_token_has_nothing_of_the_credential(tokens: IssuedTokens) -> None:
    claims = claims_of(tokens.issue("alice"))
    assert set(claims) == {"iss", "aud", "sub", "exp", "cred"}
    assert claims["aud"] == AUDIENCE
    assert b"hash one".hex() not in json.dumps(claims)
