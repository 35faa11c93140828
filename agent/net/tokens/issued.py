"""Tokens (JWT, RFC 7519) that the agents themselves give users, for the Iceberg catalog.

Signed by HMAC-SHA-256 with the secret that all agents are configured with, so each takes what another gave.
A token says by which credential it was given, as a digest: it holds no more once that was changed or taken
away. joserfc signs and checks.
"""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64decode
from collections.abc import Callable
from typing import Any, Final

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import OctKey

from agent.net.tokens.identity import Identity, TokenRefused
from coordination.clock import Clock

ALGORITHM: Final = "HS256"
AUDIENCE: Final = "floe-catalog"
TOKEN_CHARS_MAX: Final = 8 * 1024
_CREDENTIAL: Final = "cred"
_PURPOSE: Final = b"floe catalog tokens\0"


class IssuedTokens:
    """Of one agent. A Verifier (agent/net/tokens/identity.py)."""

    def __init__(
        self, secret: bytes, cluster: str, lifetime_s: int, clock: Clock, standing: Callable[[str], bytes]
    ) -> None:
        """`standing`: what is kept of a user's credentials by now; empty: there is no such user."""
        self.lifetime_s = lifetime_s
        self._secret, self._key = secret, OctKey.import_key(secret)
        self._clock, self._standing = clock, standing
        self._issuer = f"floe:{cluster}"

    def issue(self, user: str) -> str:
        """A new one, for a user whose credential was seen now."""
        claims = {
            "iss": self._issuer,
            "aud": AUDIENCE,
            "sub": user,
            "exp": self._clock.now_ms() // 1000 + self.lifetime_s,
            _CREDENTIAL: self._digest(user),
        }
        return jwt.encode({"alg": ALGORITHM}, claims, self._key, algorithms=[ALGORITHM])

    def takes(self, token: str) -> bool:
        """See Verifier: whether it says that it is signed as these are, which no other may be."""
        try:
            header = json.loads(urlsafe_b64decode(_padded(token[:TOKEN_CHARS_MAX].partition(".")[0])))
        except (ValueError, RecursionError):
            return False
        return isinstance(header, dict) and header.get("alg") == ALGORITHM

    async def verify(self, token: str) -> Identity:
        """Raises TokenRefused."""
        claims = self._claims(token)
        user, expires_s = str(claims["sub"]), int(claims["exp"])
        if self._clock.now_ms() >= expires_s * 1000:
            raise TokenRefused("it is over (exp)", user=user)
        given = str(claims.get(_CREDENTIAL, ""))
        if not self._standing(user) or not hmac.compare_digest(given.encode(), self._digest(user).encode()):
            raise TokenRefused("the user's password was changed or taken away since", user=user)
        return Identity(user, expires_s * 1000)

    def subject(self, token: str) -> str:
        """Whose it is or was: it may be over. Raises TokenRefused."""
        return str(self._claims(token)["sub"])

    def _claims(self, token: str) -> dict[str, Any]:
        if len(token) > TOKEN_CHARS_MAX:
            raise TokenRefused(f"larger than {TOKEN_CHARS_MAX} characters")
        try:
            claims = jwt.decode(token, self._key, algorithms=[ALGORITHM]).claims
        except (JoseError, ValueError, TypeError, LookupError, RecursionError) as error:
            raise TokenRefused(f"not a token with a valid signature: {type(error).__name__}") from None
        if claims.get("iss") != self._issuer or claims.get("aud") != AUDIENCE:
            raise TokenRefused("it is not of this cluster's catalog (iss, aud)")
        return dict(claims)

    def _digest(self, user: str) -> str:
        kept = self._standing(user)
        return hmac.digest(self._secret, _PURPOSE + user.encode() + b"\0" + kept, "sha256").hex()[:32]


def _padded(text: str) -> str:
    return text + "=" * (-len(text) % 4)
