"""Which tokens say who somebody is, and every attack that has a name on those that do not."""

from __future__ import annotations

import hmac
import json
from hashlib import sha256
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from agent.config.tokens import ALGORITHMS, OauthConfig
from agent.net.tokens.identity import TokenRefused
from agent.net.tokens.keys import PublicKeys, parse
from agent.net.tokens.verifying import Tokens
from coordination.clock import SystemClock
from tests.equipment.tokens import AUDIENCE, ISSUER, Issuer, base64, claims

CLOCK = SystemClock()
LONG_AGO, LATER = 1_000_000_000, 4_000_000_000


class Known:
    """Keys that stay as they are; counts who asks for others."""

    def __init__(self, keys: PublicKeys) -> None:
        self.keys = keys
        self.asked = 0

    async def look_again(self) -> None:
        self.asked += 1


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


def tokens_of(issuer: Issuer, **settings: Any) -> Tokens:
    config = OauthConfig(**({"issuer": ISSUER, "audience": f"other,{AUDIENCE}"} | settings))
    return Tokens(config, Known(parse(issuer.jwks())), CLOCK)


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [(one, "RSA") for one in ALGORITHMS[:4]] + [("ES256", "P-256"), ("ES384", "P-384")],
)
async def test_each_algorithm(algorithm: str, kind: str) -> None:
    issuer = Issuer()
    issuer.new_key("second", kind)
    found = await tokens_of(issuer).verify(issuer.token(algorithm=algorithm, exp=LATER + 0.25))
    assert found == ("alice", LATER * 1000 + 250)
    others = ",".join(one for one in ALGORITHMS if one != algorithm)
    with pytest.raises(TokenRefused, match=r"oauth\.algorithms"):
        await tokens_of(issuer, algorithms=others).verify(issuer.token(algorithm=algorithm))


async def test_a_token_without_a_kid_fits_the_only_key_of_its_kind(issuer: Issuer) -> None:
    token = issuer.token(header={"kid": None})
    assert (await tokens_of(issuer).verify(token)).principal == "alice"
    two = Issuer()
    two.new_key("second")
    with pytest.raises(TokenRefused, match="its key is not one"):
        await tokens_of(two).verify(two.token(header={"kid": None}))


def unsigned(header: dict[str, Any], signature: bytes = b"") -> str:
    parts = [base64(json.dumps(header).encode()), base64(json.dumps(claims()).encode()), base64(signature)]
    return ".".join(parts)


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", None, 0, ["RS256"], {"RS256": 1}])
async def test_alg_none(issuer: Issuer, name: object) -> None:
    for signature in (b"", b"x"):
        with pytest.raises(TokenRefused):
            await tokens_of(issuer).verify(unsigned({"alg": name, "kid": "first"}, signature))


async def test_key_confusion(issuer: Issuer) -> None:
    """HMAC with the public key as everybody knows it, in each form that it is known by."""
    public = issuer.keys["first"]
    known = [public.as_pem(private=False), issuer.jwks(), json.dumps(public.as_dict()).encode()]
    for secret in (*known, known[0].strip(), b""):
        start = unsigned({"alg": "HS256", "kid": "first"}).rpartition(".")[0]
        forged = f"{start}.{base64(hmac.digest(secret, start.encode(), sha256))}"
        with pytest.raises(TokenRefused, match=r"oauth\.algorithms"):
            await tokens_of(issuer).verify(forged)


@pytest.mark.parametrize("member", ["jwk", "jku", "x5u", "x5c"])
async def test_a_key_that_comes_with_the_token_vouches_for_nothing(issuer: Issuer, member: str) -> None:
    """SSRF and embedded keys: a stranger's own key, under the known one's name."""
    stranger = Issuer()
    own: Any = stranger.keys["first"].as_dict(private=False)
    told = {"jwk": own, "jku": "http://127.0.0.1:1/keys", "x5u": "http://127.0.0.1:1/", "x5c": ["MIIB"]}
    with pytest.raises(TokenRefused, match="valid signature"):
        await tokens_of(issuer).verify(stranger.token(header={member: told[member]}))
    good = issuer.token(header={"jku": "http://127.0.0.1:1/keys", "unknown": 1})
    assert (await tokens_of(issuer).verify(good)).principal == "alice"


async def test_a_critical_header_is_not_passed_over(issuer: Issuer) -> None:
    key = issuer.keys["first"].private_key
    known = {"alg": "RS256", "kid": "first"}
    for header in ({}, {"crit": ["exp"], "exp": 1}, {"crit": []}, {"b64": True}, {"b64": False}):
        said = unsigned(known | header).rpartition(".")[0]
        signature = key.sign(said.encode(), PKCS1v15(), SHA256())
        verified = tokens_of(issuer).verify(f"{said}.{base64(signature)}")
        if not header:
            assert (await verified).principal == "alice"
            continue
        with pytest.raises(TokenRefused):
            await verified


MEMBERS = st.sampled_from(["alg", "kid", "crit", "b64", "typ", "jwk", "x5c"])
HEADERS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.sampled_from(["RS256", "none"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner, max_size=4),
)

BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "expired": {"exp": LONG_AGO},
    "never expires": {"exp": None},
    "expires by a word": {"exp": "4000000000"},
    "expires by a truth": {"exp": True},
    "expires beyond numbers": {"exp": 1e300},
    "not yet valid": {"nbf": LATER},
    "not yet valid, by a word": {"nbf": "soon"},
    "issued in the future": {"iat": LATER},
    "never issued": {"iat": None},
    "wrong issuer": {"iss": "https://issuer.example.evil"},
    "no issuer": {"iss": None},
    "issuers": {"iss": [ISSUER]},
    "wrong audience": {"aud": "billing"},
    "a part of the audience": {"aud": "other,floe"},
    "no audience": {"aud": None},
    "audience as a key": {"aud": {AUDIENCE: 1}},
    "nobody": {"sub": None},
    "blank": {"sub": " "},
    "a list": {"sub": ["alice"]},
    "long": {"sub": "a" * 256},
    "control characters": {"sub": "alice\nforged line"},
}


@pytest.mark.parametrize("changed", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
async def test_claims_that_do_not_fit(issuer: Issuer, changed: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused) as refused:
        await tokens_of(issuer).verify(issuer.token(**changed))
    assert refused.value.status == "invalid_token"
    assert "valid signature" not in str(refused.value)


async def test_clocks_may_be_off_a_little(issuer: Issuer) -> None:
    now = CLOCK.now_ms() // 1000
    with pytest.raises(TokenRefused, match="it is over"):
        await tokens_of(issuer).verify(issuer.token(exp=now - 1))
    for changed in ({"iat": now + 20}, {"nbf": now + 20}):
        assert (await tokens_of(issuer).verify(issuer.token(**changed))).principal == "alice"
        with pytest.raises(TokenRefused):
            await tokens_of(issuer, skew_ms_max=5_000).verify(issuer.token(**changed))


async def test_scopes_and_the_claim_that_names_the_user(issuer: Issuer) -> None:
    settings = {"scope": "kafka write", "scope_claim": "scp", "principal_claim": "client"}
    tokens = tokens_of(issuer, **settings)
    for scopes in ("write x kafka", ["kafka", "write"]):
        found = await tokens.verify(issuer.token(scp=scopes, client="bob", aud=["x", AUDIENCE]))
        assert found.principal == "bob"
    for scopes in (None, "kafka", "kafkawrite", ["kafka write"], 7):
        with pytest.raises(TokenRefused) as refused:
            await tokens.verify(issuer.token(scp=scopes, client="bob"))
        assert refused.value.status == "insufficient_scope"


async def test_a_huge_token_is_not_looked_at(issuer: Issuer) -> None:
    token = issuer.token(filling="x" * 20_000)
    with pytest.raises(TokenRefused, match="jwt_bytes_max"):
        await tokens_of(issuer).verify(token)
    assert (await tokens_of(issuer, jwt_bytes_max=64 * 1024).verify(token)).principal == "alice"


@given(st.one_of(st.text(), st.lists(st.binary(max_size=40), min_size=2, max_size=5)))
async def test_what_is_no_token_is_refused_and_nothing_else(made: str | list[bytes]) -> None:
    text = made if isinstance(made, str) else ".".join(base64(part) for part in made)
    with pytest.raises(TokenRefused):
        await TOKENS.verify(text)


@given(HEADERS)
async def test_a_header_of_anything_is_refused_and_nothing_else(header: object) -> None:
    with pytest.raises(TokenRefused):
        await TOKENS.verify(unsigned(header, b"x" * 256))  # type: ignore[arg-type]  # no header on purpose


ISSUER_OF_ALL = Issuer()
TOKENS = tokens_of(ISSUER_OF_ALL)


async def test_every_byte_of_a_token_counts(issuer: Issuer) -> None:
    token, tokens = issuer.token(), tokens_of(issuer)
    for at in range(0, len(token) - 1, 7):
        if token[at] != ".":
            changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
            with pytest.raises(TokenRefused):
                await tokens.verify(changed)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"{}", b'{"keys": 1}', b'{"keys": []}', b"[" * 100_000, b'{"keys": [1, null, {}]}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "first"}]}',
        b'{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "first"}]}',
        b'{"keys": [{"kty": "EC", "crv": "P-521", "x": "AA", "y": "AA"}]}',
        b'{"keys": [' + b",".join([b"{}"] * 257) + b"]}",
    ],
    ids=lambda content: content[:40].decode(),
)  # fmt: skip
def test_what_is_no_set_of_keys(content: bytes) -> None:
    with pytest.raises(ValueError, match="JWKS"):
        parse(content)


def test_keys_for_other_purposes_are_passed_over(issuer: Issuer) -> None:
    good = json.loads(issuer.jwks())["keys"][0]
    for other in (
        {"use": "enc"},
        {"key_ops": ["encrypt"]},
        {"alg": "RSA-OAEP"},
        {"alg": "HS256"},
        {"kid": 7},
    ):
        rows = [good, good | {"kid": "second"} | other]
        assert [each.kid for each in parse(json.dumps({"keys": rows}).encode()).keys] == ["first"]
    with pytest.raises(ValueError, match="two keys of one kid"):
        parse(json.dumps({"keys": [good, good]}).encode())
