"""Tokens that clients log in by: those of an authorization server, and the cluster's own."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from agent.config.base import Section

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384")
_ONE = f"({'|'.join(ALGORITHMS)})"
ALGORITHMS_PATTERN = f"^{_ONE}(,{_ONE}){{0,{len(ALGORITHMS) - 1}}}$"


class OauthConfig(Section):
    """Logins by OAUTHBEARER: whose tokens are believed (docs/security.md). Give all agents of a cluster the
    same."""

    jwks_url: Annotated[str, Field(max_length=2048)] = ""
    """Where the authorization server shows its keys (RFC 7517): https://, or http:// on this machine
    (Kafka's sasl.oauthbearer.jwks.endpoint.url). No other address is ever asked, whatever a token says."""

    jwks_file: str = ""
    """The same as a file, instead of the URL. Looked at again when it changes."""

    jwks_ca_file: str = ""
    """PEM file of the authorities that vouch for jwks_url. Empty: those of the system."""

    jwks_refresh_ms: Annotated[int, Field(ge=1_000, le=86_400_000)] = 3_600_000
    """Time between two looks at jwks_url, milliseconds (Kafka's
    sasl.oauthbearer.jwks.endpoint.refresh.ms)."""

    jwks_lookup_ms_min: Annotated[int, Field(ge=100, le=3_600_000)] = 10_000
    """Least time between two looks at jwks_url, milliseconds: a token with an unknown key causes one at once,
    more such tokens none until this is over."""

    jwks_timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 5_000
    """How long jwks_url may take to connect, and to answer, milliseconds."""

    jwks_bytes_max: Annotated[int, Field(ge=1_024, le=16 * 1024**2)] = 1024**2
    """Largest set of keys, bytes."""

    issuer: Annotated[str, Field(max_length=2048)] = ""
    """Who has to have issued a token: its `iss` (Kafka's sasl.oauthbearer.expected.issuer)."""

    audience: Annotated[str, Field(max_length=2048)] = ""
    """Whom a token has to be for: one of these, separated by commas, is in its `aud` (Kafka's
    sasl.oauthbearer.expected.audience). Empty: for anybody, which lets in whoever got a token of this issuer
    for something else."""

    scope: Annotated[str, Field(max_length=2048)] = ""
    """Scopes that a token must have, all of them, separated by spaces. Empty: none."""

    scope_claim: Annotated[str, Field(min_length=1, max_length=255)] = "scope"
    """The claim that has a token's scopes (Kafka's sasl.oauthbearer.scope.claim.name)."""

    principal_claim: Annotated[str, Field(min_length=1, max_length=255)] = "sub"
    """The claim that names the user (Kafka's sasl.oauthbearer.sub.claim.name)."""

    algorithms: Annotated[str, Field(pattern=ALGORITHMS_PATTERN)] = ",".join(ALGORITHMS)
    """How tokens may be signed, separated by commas. Neither unsigned tokens nor shared secrets are there."""

    skew_ms_max: Annotated[int, Field(ge=0, le=300_000)] = 30_000
    """How far the clock of the authorization server may be ahead, milliseconds: of `iat` and `nbf` (Kafka's
    sasl.oauthbearer.clock.skew.seconds)."""

    jwt_bytes_max: Annotated[int, Field(ge=512, le=512 * 1024)] = 16 * 1024
    """Largest token, bytes; a request before the login has at most sasl.receive_bytes_max."""


class DelegationConfig(Section):
    """Delegation tokens (KIP-48): who has one logs in as the user who had it made. Give all agents of a
    cluster the same."""

    secret: SecretStr = SecretStr("")
    """What the passwords of tokens are made from (Kafka's delegation.token.secret.key): 32 characters or more
    of chance. Empty: there are no delegation tokens. Give it as FLOE_DELEGATION__SECRET."""

    lifetime_ms_max: Annotated[int, Field(ge=1_000, le=10 * 365 * 86_400_000)] = 7 * 86_400_000
    """How long a token can be renewed, milliseconds (Kafka's delegation.token.max.lifetime.ms)."""

    renew_ms: Annotated[int, Field(ge=1_000, le=10 * 365 * 86_400_000)] = 86_400_000
    """How long a token holds until it is renewed, milliseconds (Kafka's
    delegation.token.expiry.time.ms)."""
