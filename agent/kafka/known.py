"""Who is known and who may what, of one agent: what Kafka's listeners and HTTP share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agent.kafka.assembly import authority_of, catalog_tokens_of, logins_of
from agent.kafka.login.passwords import Passwords
from agent.net.tokens.identity import Bearers
from coordination.state.scram import SECRET_BYTES

if TYPE_CHECKING:
    from agent.config import Config
    from agent.kafka.authority.authority import Authority
    from agent.kafka.login.logins import Logins
    from agent.net.doors import Doors
    from agent.net.tokens.issued import IssuedTokens
    from agent.telemetry.metrics import Metrics
    from agent.telemetry.shadow import Shadow
    from agent.telemetry.trail import Trail
    from coordination.clock import Clock
    from coordination.replica import Replica


@dataclass(frozen=True, slots=True)
class Known:
    """Of one agent."""

    authority: Authority
    logins: Logins
    passwords: Passwords
    tokens: IssuedTokens | None
    """The catalog's own; None: it gives none."""

    @property
    def bearers(self) -> Bearers:
        """Whose tokens HTTP takes; those of an authorization server last, which takes all."""
        return Bearers([each for each in (self.tokens, self.logins.tokens) if each is not None])


def known_of(
    config: Config,
    clock: Clock,
    replica: Replica,
    metrics: Metrics,
    doors: Doors,
    shadow: Shadow,
    trail: Trail,
) -> Known:
    """As configured."""
    logins = logins_of(config, clock, replica, metrics, doors.users, doors.keys)
    passwords = Passwords(logins, clock.random_bytes(SECRET_BYTES))
    authority = authority_of(config, clock, replica, metrics, shadow, trail)
    return Known(authority, logins, passwords, catalog_tokens_of(config, clock, passwords))
