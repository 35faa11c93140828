"""What a token (JWT, RFC 7519) has to be to say who somebody is.

Signatures are checked by joserfc, on OpenSSL; in the loop, as that takes less than handing them to a thread.
The algorithm is one of the configured ones, which are all public-key ones, and has to be of the key's kind.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jwk import ECKey, RSAKey

from agent.config.tokens import OauthConfig
from agent.config.users import NAME_LENGTH_MAX
from agent.net.tokens.identity import Identity, KeySource, TokenRefused
from agent.net.tokens.keys import KID_LENGTH_MAX
from coordination.clock import Clock

HEADER_BYTES_MAX: Final = 8 * 1024
SIGNATURE_BYTES_MAX: Final = 2 * 1024
"""Of the base64 text of the largest RSA key's signature, with room."""
NOT_THE_ALGORITHM: Final = "its algorithm is not one of oauth.algorithms"


class _UnknownKey(Exception):
    """No known key fits."""


class _Registry(jws.JWSRegistry):
    max_header_length = HEADER_BYTES_MAX
    max_signature_length = SIGNATURE_BYTES_MAX


class Tokens:
    """Of one agent."""

    def __init__(self, config: OauthConfig, keys: KeySource, clock: Clock) -> None:
        self._config, self._source, self._clock = config, keys, clock
        self._algorithms = tuple(config.algorithms.split(","))
        self._registry = _Registry(algorithms=self._algorithms, strict_check_header=False)
        self._audiences = frozenset(one.strip() for one in config.audience.split(",") if one.strip())
        self._scopes = frozenset(config.scope.split())

    def takes(self, token: str) -> bool:
        """See Verifier: every token, so that it stands last."""
        return True

    async def verify(self, token: str) -> Identity:
        """Raises TokenRefused."""
        if len(token) > self._config.jwt_bytes_max:
            raise TokenRefused(f"larger than oauth.jwt_bytes_max, {self._config.jwt_bytes_max}")
        try:
            payload = self._payload(token)
        except _UnknownKey:
            await self._source.look_again()
            try:
                payload = self._payload(token)
            except _UnknownKey:
                raise TokenRefused("its key is not one of oauth.jwks_url or oauth.jwks_file") from None
        return self._judge(_claims(payload))

    def _payload(self, token: str) -> bytes:
        """What was signed. Raises _UnknownKey, TokenRefused."""
        try:
            signed = jws.deserialize_compact(token, self._key, registry=self._registry)
        except UnsupportedAlgorithmError:
            raise TokenRefused(NOT_THE_ALGORITHM) from None
        except (JoseError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            raise TokenRefused(f"not a token with a valid signature: {type(error).__name__}") from None
        payload: bytes = signed.payload
        return payload

    def _key(self, signed: Any) -> RSAKey | ECKey:
        """Of a token that nothing is known of yet."""
        header = signed.headers()
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms:
            raise TokenRefused(NOT_THE_ALGORITHM)
        if "crit" in header or "b64" in header:
            raise TokenRefused("its header has crit or b64, of which nothing is known here")
        if kid is not None and not (isinstance(kid, str) and len(kid) <= KID_LENGTH_MAX):
            raise TokenRefused("its kid is no name")
        found = self._source.keys.find(kid, algorithm)
        if found is None:
            raise _UnknownKey
        return found.key

    def _judge(self, claims: dict[str, Any]) -> Identity:
        """Of a token whose signature is right. Raises TokenRefused."""
        config = self._config
        principal = claims.get(config.principal_claim)
        if not isinstance(principal, str) or not _is_name(principal):
            raise TokenRefused(
                f"its claim {config.principal_claim} is no name of 1 to {NAME_LENGTH_MAX} characters"
            )
        if claims.get("iss") != config.issuer:
            raise TokenRefused("its issuer (iss) is not oauth.issuer", user=principal)
        if self._audiences and self._audiences.isdisjoint(_words(claims.get("aud"), split=False)):
            raise TokenRefused("its audience (aud) is not one of oauth.audience", user=principal)
        expires_ms = self._times(claims, principal)
        if not self._scopes <= _words(claims.get(config.scope_claim), split=True):
            raise TokenRefused("it has not all of oauth.scope", "insufficient_scope", principal)
        return Identity(principal, expires_ms)

    def _times(self, claims: dict[str, Any], user: str) -> int:
        """When it ends, Unix milliseconds."""
        now_ms, skew_ms = self._clock.now_ms(), self._config.skew_ms_max
        expires_ms, issued_ms = _ms(claims, "exp", user), _ms(claims, "iat", user)
        if now_ms >= expires_ms:  # as in Kafka, whatever the skew: the login would be over at once
            raise TokenRefused("it is over (exp)", user=user)
        if issued_ms - skew_ms > now_ms:
            raise TokenRefused("it was issued in the future (iat)", user=user)
        if "nbf" in claims and _ms(claims, "nbf", user) - skew_ms > now_ms:
            raise TokenRefused("it does not hold yet (nbf)", user=user)
        return expires_ms


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_LENGTH_MAX and text.isprintable() and text == text.strip()


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(payload)
    except (ValueError, RecursionError):
        claims = None
    if not isinstance(claims, dict):
        raise TokenRefused("its payload is no JSON object")
    return claims


def _ms(claims: dict[str, Any], name: str, user: str) -> int:
    """A NumericDate: seconds, with a fraction or without."""
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise TokenRefused(f"its claim {name} is no time", user=user)
    return math.floor(value * 1000)


def _words(value: object, *, split: bool) -> frozenset[str]:
    """A claim that is one text or a list of them."""
    if isinstance(value, str):
        return frozenset(value.split() if split else [value])
    if isinstance(value, list):
        return frozenset(one for one in value if isinstance(one, str))
    return frozenset()
