"""RenewDelegationToken: lets a token hold longer.

Versions 1 to 2.
Behaviour: by its owner and its renewers; as long as asked for, at most `delegation.renew_ms` from now and
never beyond its lifetime. Times are the log's clock.
Deviations: none.
"""

from __future__ import annotations

from agent.kafka.context import Context
from agent.kafka.handlers.delegating import move
from agent.net.wire.generated.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from coordination.commands import RenewDelegationToken

KEY = 39
VERSIONS = (1, 2)


async def handle(
    ctx: Context, request: RenewDelegationTokenRequest, version: int
) -> RenewDelegationTokenResponse:
    """Until when it holds now."""
    asked_ms, longest_ms = request.renew_period_ms, ctx.services.config.delegation.renew_ms
    message = RenewDelegationToken(renew_ms=min(asked_ms, longest_ms) if asked_ms > 0 else longest_ms)
    moved = await move(ctx, bytes(request.hmac), message)
    return RenewDelegationTokenResponse(error_code=moved.code, expiry_timestamp_ms=moved.until_ms)
