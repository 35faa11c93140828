"""SaslHandshake: the mechanism that a client logs in by.

Versions 0 to 1.
Behaviour: a mechanism that the listener does not have is UNSUPPORTED_SASL_MECHANISM with those that it has,
and the connection ends. Where nobody logs in, or the login is done and holds for ever, ILLEGAL_SASL_STATE.
Deviations: version 0 goes on with SaslAuthenticate as 1 does; clients that then send tokens without a header
(before Kafka 1.0) are closed.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.net.wire.errors import WireError
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 17
VERSIONS = (0, 1)


async def handle(ctx: Context, request: SaslHandshakeRequest, version: int) -> SaslHandshakeResponse:
    """The mechanisms of the listener."""
    login = ctx.client.login
    if login is None:
        return SaslHandshakeResponse(error_code=Code.ILLEGAL_SASL_STATE, mechanisms=[])
    code = login.handshake(request.mechanism)
    if login.failed:
        ctx.services.metrics.logins.labels("other", "failed").inc()
        ctx.services.hang_up(
            ctx.client.connection, WireError(f"SASL mechanism {shown(request.mechanism)} is not enabled")
        )
    told = [] if code == Code.ILLEGAL_SASL_STATE else list(login.enabled)
    return SaslHandshakeResponse(error_code=code, mechanisms=told)
