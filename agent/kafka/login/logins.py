"""What one agent knows of users, and one connection's login: handshake, exchange, done; KIP-368's again."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from agent.config import Config
from agent.config.users import UsersFile
from agent.kafka.login import oauthbearer, plain, scram
from agent.kafka.login.delegation import Delegation
from agent.kafka.login.errors import LoginFailed, NotTold
from agent.net.wire.api import API_VERSIONS
from agent.telemetry.metrics import Metrics
from coordination.clock import Clock
from coordination.kafka_codes import Code
from coordination.state.scram import ITERATIONS_MIN, SECRET_BYTES
from coordination.state.scram_types import ScramCredential
from coordination.state.state import State

if TYPE_CHECKING:
    from agent.net.tokens.verifying import Tokens

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
PLAIN: Final = "PLAIN"
ADDRESSES_MAX: Final = 1_000
"""Addresses whose failed logins are counted; the one that failed longest ago is forgotten first."""


class Logins:
    """Of one agent."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        state: Callable[[], State],
        metrics: Metrics,
        users: UsersFile | None = None,
        tokens: Tokens | None = None,
    ) -> None:
        """`users`: those of PLAIN, renewed by somebody else; else sasl.users_file is read. `tokens`: of
        OAUTHBEARER, where there is that."""
        self.config, self.clock, self.metrics = config.sasl, clock, metrics
        self.users = users or UsersFile(config.sasl.users_file)
        self.tokens = tokens
        self.delegation = Delegation(config.delegation, clock, state)
        self._state = state
        self._enabled = {
            each.name: tuple(each.sasl_mechanisms.split(","))
            for each in config.listeners
            if each.protocol.startswith("SASL")
        }
        self._own_secret = b""
        self._admin: dict[tuple[int, bytes], ScramCredential] = {}
        self._checks = asyncio.Semaphore(config.sasl.checks_in_flight_max)
        self._failures: dict[str, int] = {}

    def of(self, listener: str) -> Login | None:
        """The login of a new connection; None where the listener asks for none."""
        enabled = self._enabled.get(listener)
        return None if enabled is None else Login(self, enabled)

    @property
    def _secret(self) -> bytes:
        """Of this agent, made when it is first needed."""
        self._own_secret = self._own_secret or self.clock.random_bytes(SECRET_BYTES)
        return self._own_secret

    def stored(self, user: str, mechanism: int) -> ScramCredential | None:
        """What the log says."""
        return self._state().scram.credentials.get((user, mechanism))

    def has_first_password(self, user: str) -> bool:
        """Whether the user's password is sasl.admin_password by now, by every mechanism and for HTTP: that of
        the first administrator, while neither the log nor the file has a credential of that name."""
        if not user or user != self.config.admin_user or user in self.users.users:
            return False
        return not any(self.stored(user, mechanism) for mechanism in scram.DIGESTS)

    def made_up(self, user: str, mechanism: int) -> ScramCredential:
        """What fits nobody."""
        return scram.made_up(self._state().scram.secret or self._secret, user, mechanism)

    async def credential(self, user: str, mechanism: int) -> ScramCredential:
        """What the log says, else the first administrator's, else what fits nobody.

        The administrator's is looked for whoever asks: what is made at its first need takes time.
        """
        administrator = await self._administrator(mechanism) if self.config.admin_user else None
        found = self.stored(user, mechanism)
        if found is not None:
            return found
        if administrator is not None and self.has_first_password(user):
            return administrator
        return self.made_up(user, mechanism)

    async def credential_of_token(self, token_id: str, mechanism: int) -> ScramCredential:
        """Of a delegation token that holds, else what fits nobody."""
        unknown = self.made_up(token_id, mechanism)
        if self.delegation.token(token_id) is None:
            return unknown
        async with self._checks:
            return await self.delegation.credential(token_id, mechanism, unknown.salt)

    async def _administrator(self, mechanism: int) -> ScramCredential:
        """Made when first asked for. Its salt is that of a user who does not exist: whoever asks two agents,
        or the same one again after users were made, is told no more of it than of any other name.
        """
        salt = self.made_up(self.config.admin_user, mechanism).salt
        if known := self._admin.get((mechanism, salt)):
            return known
        async with self._checks:
            if (mechanism, salt) not in self._admin:
                digest, password = scram.DIGESTS[mechanism], self.config.admin_password.get_secret_value()
                salted = await asyncio.to_thread(scram.salted, digest, password, salt, ITERATIONS_MIN)
                self._admin = {each: made for each, made in self._admin.items() if each[0] != mechanism}
                keys = scram.keys(digest, salted)
                self._admin[mechanism, salt] = ScramCredential(ITERATIONS_MIN, salt, *keys)
            return self._admin[mechanism, salt]

    async def check(self, user: str, password: str) -> None:
        """PLAIN. Raises LoginFailed."""
        hashed = self.users.users.get(user)
        async with self._checks:
            fits = await asyncio.to_thread((hashed or self.users.nobody).fits, password)
        if self.has_first_password(user):
            known = self.config.admin_password.get_secret_value()
            fits = hmac.compare_digest(password.encode(), known.encode())
        if not fits:
            raise LoginFailed(plain.INVALID, user)

    def lifetime_ms(self, expires_ms: int | None) -> int:
        """How long a login holds whose credential ends then (KIP-368); 0: as long as the connection."""
        bounds = [self.config.reauth_ms_max] if self.config.reauth_ms_max else []
        if expires_ms is not None:
            bounds.append(max(expires_ms - self.clock.now_ms(), 1))
        return min(bounds, default=0)

    def failed_from(self, address: str) -> int:
        """Note a failed login; how many there were from there."""
        count = self._failures.pop(address, 0) + 1
        self._failures[address] = count
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        return count


class Login:
    """Of one connection. Requests come to it one after another (agent/kafka/order.py)."""

    def __init__(self, logins: Logins, enabled: tuple[str, ...]) -> None:
        self.enabled = enabled
        self.mechanism = ""
        self.principal = ""
        self.by_token = False
        """Whether it was by a delegation token, whose holder gets no others."""
        self.failed = False
        self.lifetime_ms = 0
        """How long the last login holds; 0: as long as the connection."""
        self._logins = logins
        self._exchange: scram.Exchange | None = None
        self._refused: LoginFailed | None = None
        self._expected = False
        self._expires_s = float("inf")

    def refusal(self, api_key: int) -> str | None:
        """Why a request of this API ends the connection now; None when it may go on."""
        if self.failed:
            return "the login failed"
        if self._expected:
            return None if api_key == SASL_AUTHENTICATE else "a request in the middle of the login"
        if not self.principal:
            return None if api_key in (API_VERSIONS, SASL_HANDSHAKE) else "a request before the login"
        over = self._logins.clock.monotonic() > self._expires_s
        cut = over and api_key != SASL_HANDSHAKE
        return "the login is over (sasl.reauth_ms_max, or its token's end)" if cut else None

    def handshake(self, mechanism: str) -> Code:
        """Choose a mechanism."""
        if self.principal and not self.lifetime_ms:
            return Code.ILLEGAL_SASL_STATE
        if mechanism not in self.enabled:
            self.failed = True
            return Code.UNSUPPORTED_SASL_MECHANISM
        if self.principal and mechanism != self.mechanism:
            self.failed = True
            return Code.UNSUPPORTED_SASL_MECHANISM
        self.mechanism, self._expected, self._exchange = mechanism, True, None
        return Code.NONE

    async def authenticate(self, message: bytes) -> bytes:
        """One step. `principal` is set and `done` after the last. Raises LoginFailed."""
        try:
            return await self._step(message)
        except LoginFailed as error:
            if error.challenge:
                self._refused = error
            else:
                self.failed = True
            raise

    def done(self) -> bool:
        """Whether the client is known, and no other login under way."""
        return bool(self.principal) and not self._expected

    async def _step(self, message: bytes) -> bytes:
        if self.mechanism == PLAIN:
            user, password = plain.parse(message)
            await self._logins.check(user, password)
            return self._known(user, b"")
        if self.mechanism == oauthbearer.MECHANISM:
            return await self._bearer(message)
        if self._exchange is None:
            first = scram.parse_first(message)
            number = scram.MECHANISMS[self.mechanism]
            find = self._logins.credential_of_token if first.token else self._logins.credential
            credential = await find(first.user, number)
            nonce = self._logins.clock.random_bytes(scram.SERVER_NONCE_BYTES)
            self._exchange = scram.Exchange(number, first, credential, nonce)
            return self._exchange.message.encode()
        exchange, self._exchange = self._exchange, None
        answer = exchange.finish(message)
        if not exchange.by_token:
            return self._known(exchange.user, answer)
        token = self._logins.delegation.token(exchange.user)
        if token is None:
            raise NotTold(scram.INVALID, exchange.user, "the delegation token is over")
        known = self._known(token.owner, answer, token.expires_ms)
        self.by_token = True
        return known

    async def _bearer(self, message: bytes) -> bytes:
        """One message, and where its token is refused the client's word that it heard so."""
        if self._refused is not None:
            raise LoginFailed(str(self._refused), self._refused.user, noted=True)
        assert self._logins.tokens is not None, "the configuration has keys where it has OAUTHBEARER"
        found = await oauthbearer.identify(self._logins.tokens, message)
        return self._known(found.principal, b"", found.expires_ms)

    def _known(self, user: str, answer: bytes, expires_ms: int | None = None) -> bytes:
        """`expires_ms`: when what the client showed ends, Unix milliseconds."""
        if self.principal not in ("", user):
            raise LoginFailed(
                f"Cannot change principals during re-authentication from {self.principal}: {user}",
                user,
            )
        self.principal, self._expected = user, False
        self.lifetime_ms = self._logins.lifetime_ms(expires_ms)
        holds_s = self.lifetime_ms / 1000 if self.lifetime_ms else float("inf")
        self._expires_s = self._logins.clock.monotonic() + holds_s
        return answer
