"""What one agent knows of delegation tokens (KIP-48): what their holders show, and how they log in.

A token's password is the HMAC-SHA-512 of its id by the secret that all agents are configured with, so the
log has nothing that logs in. By SCRAM it is written in base64, as Kafka's clients do.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Final

from agent.config.tokens import DelegationConfig
from agent.kafka.login import scram
from coordination.clock import Clock
from coordination.state.delegation_types import DelegationToken
from coordination.state.scram import ITERATIONS_MIN
from coordination.state.scram_types import ScramCredential
from coordination.state.state import State

HMAC: Final = "sha512"
HMAC_BYTES: Final = 64
ID_BYTES: Final = 16
CREDENTIALS_MAX: Final = 1_024
"""Credentials that are kept for the next login; making one takes milliseconds."""


class Delegation:
    """Of one agent."""

    def __init__(self, config: DelegationConfig, clock: Clock, state: Callable[[], State]) -> None:
        self.config = config
        self._clock, self._state = clock, state
        self._secret = config.secret.get_secret_value().encode()
        self._ids: dict[bytes, str] = {}
        self._credentials: dict[tuple[str, int], ScramCredential] = {}

    @property
    def enabled(self) -> bool:
        """Whether there are tokens."""
        return bool(self._secret)

    def new_id(self) -> str:
        """Of 128 random bits, as Kafka writes ids."""
        return urlsafe_b64encode(self._clock.random_bytes(ID_BYTES)).rstrip(b"=").decode()

    def hmac_of(self, token_id: str) -> bytes:
        """What its holder shows."""
        return hmac.digest(self._secret, token_id.encode(), HMAC)

    def token(self, token_id: str) -> DelegationToken | None:
        """One that holds, by the log's clock."""
        state = self._state()
        found = state.delegation_tokens.get(token_id) if self.enabled else None
        return found if found is not None and found.expires_ms > state.clock_ms else None

    async def find(self, shown: bytes) -> str:
        """The id of the token whose HMAC that is, whether it holds or not; empty: there is none."""
        tokens = self._state().delegation_tokens
        if self._ids.get(shown) not in tokens:
            known = set(self._ids.values())
            new = [token_id for token_id in tokens if token_id not in known]
            found = await asyncio.to_thread(lambda: {self.hmac_of(each): each for each in new})
            tokens = self._state().delegation_tokens
            kept = {each: token_id for each, token_id in self._ids.items() if token_id in tokens}
            self._ids = kept | found
        token_id = self._ids.get(shown, "")
        return token_id if token_id in tokens else ""

    async def credential(self, token_id: str, mechanism: int, salt: bytes) -> ScramCredential:
        """Of a token that there is."""
        key = (token_id, mechanism)
        if key not in self._credentials:
            digest, password = scram.DIGESTS[mechanism], b64encode(self.hmac_of(token_id)).decode()
            salted = await asyncio.to_thread(scram.salted, digest, password, salt, ITERATIONS_MIN)
            while len(self._credentials) >= CREDENTIALS_MAX:
                del self._credentials[next(iter(self._credentials))]
            self._credentials[key] = ScramCredential(ITERATIONS_MIN, salt, *scram.keys(digest, salted))
        return self._credentials[key]
