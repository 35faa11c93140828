"""Who asks: by the certificate of the connection, by a user's password (Basic), or by a token (Bearer).

With `http.authentication: none` everybody is ANONYMOUS and may do everything. Else whoever shows what is
wrong is answered 401, late, and in words that do not tell whether there is such a user; whoever shows
nothing at once: clients ask so before they are asked for a password, and nothing is guessed by it.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64decode
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from agent.config.users import NAME_LENGTH_MAX
from agent.http.answers import Problem
from agent.http.needs import TOKENS_PATH
from agent.net.listening import ANONYMOUS
from agent.net.tokens.identity import TokenRefused
from agent.telemetry.logs import logger
from agent.telemetry.trail import Actor
from coordination.config_types import shown
from coordination.kafka_codes import Code

if TYPE_CHECKING:
    from starlette.types import Scope

    from agent.http.parts import Parts

OPEN: Final[Mapping[str, str]] = {
    "/livez": "probes know nobody",
    "/readyz": "probes know nobody",
    TOKENS_PATH: "the login itself",
}
"""Paths that are served to whoever asks, each with the reason; /metrics where `http.metrics_open` says so."""
METRICS: Final = "/metrics"
CERTIFICATE, BASIC, BEARER = "CERTIFICATE", "BASIC", "BEARER"
"""How somebody shows who he is, as the audit log and the metrics of logins call it."""
WRONG: Final = "the user or the password is wrong"
REMEDY: Final = "send a user's password (Basic), a token (Bearer) or a client certificate"
PRINCIPAL: Final = "floe.principal"
"""Where the state of an ASGI scope has the name that the connection's certificate gives."""
SAFE: Final = ("GET", "HEAD")
"""Methods that change nothing."""
CONSOLE: Final = "/console/"
LATE_MAX: Final = 128
"""Refusals that wait to be told; further ones are told at once, or they would take all connections."""
_BEARER: Final = re.compile(r"[-._~+/A-Za-z0-9]+=*")
_log = logger("login")


class Unidentified(Exception):
    """Answered 401. The message is for the client."""

    def __init__(self, message: str, challenge: str) -> None:
        super().__init__(message)
        self.challenge = challenge
        """What WWW-Authenticate says of Bearer, behind the realm."""


class Doorkeeper:
    """Of one agent."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._late = 0
        self._required = parts.config.http.authentication == "required"

    async def identify(self, scope: Scope) -> Actor:
        """Who sends this request. Raises Unidentified, and Problem 403 and 503."""
        actor = actor_of(scope)
        path = scope["path"]
        free = path in OPEN or (path == METRICS and self._parts.config.http.metrics_open)
        if free:
            return actor
        own_rule = path.startswith(CONSOLE) and not self._required  # it is stricter, and told in a page
        if scope["method"] not in SAFE and from_elsewhere(scope) and not own_rule:
            raise Problem(403, "a page of another site asks for a change", "ask from somewhere else")
        if not self._required:
            return actor
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(given) > 1:
            raise await self._failed(actor, BASIC, "two Authorization headers")
        if given:
            return await self._by_header(actor, given[0].decode("latin-1"))
        principal = scope.get("state", {}).get(PRINCIPAL, "")
        if not principal:
            raise Unidentified("this needs an identity", "")
        return self._known(actor._replace(principal=principal), CERTIFICATE)

    async def _by_header(self, actor: Actor, header: str) -> Actor:
        scheme, _, rest = header.partition(" ")
        if scheme.lower() == "bearer":
            return await self.by_token(actor, rest.strip())
        if scheme.lower() != "basic":
            raise await self._failed(actor, BASIC, "the scheme of Authorization is neither Basic nor Bearer")
        user, password = _user_of(rest.strip())
        return await self.by_password(actor, user, password)

    async def by_password(self, actor: Actor, user: str, password: str) -> Actor:
        """Whoever knows a user's password. Raises Unidentified, late, and Problem 503."""
        known, fits = self._parts.passwords, False
        if known is not None and user and password:
            told = await known.fit(user, password)
            if told is None:
                raise Problem(503, "many passwords are being checked", "try again")
            fits = told
        if not fits:
            raise await self._failed(actor, BASIC, WRONG, user)
        return self._known(actor._replace(principal=user), BASIC)

    async def by_token(self, actor: Actor, token: str) -> Actor:
        """Whoever has a token. Raises Unidentified, late."""
        try:
            if not _BEARER.fullmatch(token):
                raise TokenRefused("it is no token")
            found = await self._parts.bearers.verify(token)
        except TokenRefused as error:
            raise await self._failed(
                actor, BEARER, "the token is refused", error.user, why=str(error), status=error.status
            ) from None
        return self._known(actor._replace(principal=found.principal), BEARER)

    def _known(self, actor: Actor, how: str) -> Actor:
        parts = self._parts
        if parts.trail is not None:
            parts.trail.logged_in(actor, how)
        return actor

    async def _failed(
        self, actor: Actor, how: str, message: str, user: str = "", *, why: str = "", status: str = ""
    ) -> Unidentified:
        """Count and tell it; whoever guesses waits."""
        parts = self._parts
        parts.metrics.logins.labels(how, "failed").inc()
        count = parts.passwords.failed_from(actor.host) if parts.passwords is not None else 0
        if parts.trail is not None:
            parts.trail.login(actor._replace(principal=user), how, Code.SASL_AUTHENTICATION_FAILED)
        about = {"mechanism": how, "peer": actor.host, "listener": actor.door}
        _log.warning("login failed", user=shown(user), why=why or message, failures=count, **about)
        if self._late < LATE_MAX:
            self._late += 1
            try:
                await asyncio.sleep(parts.config.sasl.failed_delay_ms / 1000)
            finally:
                self._late -= 1
        return Unidentified(message, f', error="{status}"' if status else "")


def actor_of(scope: Scope) -> Actor:
    """Whoever asks, before anything is known of him but the address."""
    client = scope.get("client")
    agent = dict(scope["headers"]).get(b"user-agent", b"").decode("latin-1")
    return Actor(ANONYMOUS, client[0] if client else "", agent, "HTTP")


def basic_of(header: str) -> tuple[str, str]:
    """User and password of an Authorization header; empty ones for what is none."""
    scheme, _, rest = header.partition(" ")
    return _user_of(rest.strip()) if scheme.lower() == "basic" else ("", "")


def from_elsewhere(scope: Scope) -> bool:
    """Whether a browser says that a page of another site sends it: passwords and certificates go along."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin")
    return origin is not None and origin.partition(b"://")[2] != headers.get(b"host", b"")


def _user_of(given: str) -> tuple[str, str]:
    """User and password of Basic (RFC 7617); empty ones for what is none.

    Control characters are in neither: a hash takes a password with zeros behind it for the same.
    """
    try:
        user, colon, password = b64decode(given, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    controls = any(letter < " " or letter == "\x7f" for letter in password)
    fits = colon and len(user) <= NAME_LENGTH_MAX and user.isprintable() and not controls
    return (user, password) if fits else ("", "")
