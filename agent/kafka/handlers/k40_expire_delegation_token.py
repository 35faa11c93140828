"""ExpireDelegationToken: lets a token end at another time, or at once.

Versions 1 to 2.
Behaviour: by its owner and its renewers; a negative period forgets it at once, another one lets it end then,
never beyond its lifetime. Times are the log's clock. Whoever is logged in by it stays until the time that the
login was told.
Deviations: none.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.delegating import move
from agent.net.wire.generated.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from coordination.commands import ExpireDelegationToken

KEY = 40
VERSIONS = (1, 2)


async def handle(
    ctx: Context, request: ExpireDelegationTokenRequest, version: int
) -> ExpireDelegationTokenResponse:
    """Until when it holds now."""
    message = ExpireDelegationToken(period_ms=request.expiry_time_period_ms)
    moved = await move(ctx, bytes(request.hmac), message)
    return ExpireDelegationTokenResponse(error_code=moved.code, expiry_timestamp_ms=moved.until_ms)
