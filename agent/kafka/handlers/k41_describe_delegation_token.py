"""DescribeDelegationToken: which tokens there are, with what their holders show.

Versions 1 to 3.
Behaviour: those that hold and are of, or can be renewed by, whoever asks; all of them to the configured
administrator, and those that ACLs let be seen. A list of owners leaves the others out, an empty one all.
Deviations: others' tokens Kafka shows to everybody where it has no authorizer, who can then log in by them.
Tokens that are over are not shown; Kafka shows them for up to an hour.
"""

from __future__ import annotations

from agent.kafka.authority.needs import DESCRIBE_TOKEN, DESCRIBE_TOKEN_OF
from agent.kafka.context import Context
from agent.kafka.handlers.delegating import USER, acts_for, refusal
from agent.net.wire.api import Encoded
from agent.net.wire.generated import describe_delegation_token
from agent.net.wire.generated.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from agent.net.wire.steps import ASKING_COST, Pace, encoded
from coordination.state.delegation_types import DelegationToken

KEY = 41
VERSIONS = (1, 3)


async def handle(
    ctx: Context, request: DescribeDelegationTokenRequest, version: int
) -> DescribeDelegationTokenResponse | Encoded:
    """In the order in which they were made."""
    if code := refusal(ctx):
        return DescribeDelegationTokenResponse(error_code=code)
    await ctx.barrier()
    owners = None
    if request.owners is not None:
        owners = {each.principal_name for each in request.owners if each.principal_type == USER}
    asks, now_ms = ctx.client.principal, ctx.state.clock_ms
    response, pace = DescribeDelegationTokenResponse(), Pace()
    for token_id, token in list(ctx.state.delegation_tokens.items()):
        await pace.row(ASKING_COST)
        if token.expires_ms <= now_ms or not (owners is None or any(map(token.of, owners))):
            continue
        if token.of(asks) or _shown(ctx, token_id, token):
            response.tokens.append(_described(ctx, token_id, token))
    return await encoded(describe_delegation_token, response, version, "tokens")


def _shown(ctx: Context, token_id: str, token: DelegationToken) -> bool:
    """Whether a token of others is shown."""
    if acts_for(ctx, token.owner, by=DESCRIBE_TOKEN_OF):
        return True
    return not ctx.services.authority.off and ctx.allows(DESCRIBE_TOKEN, token_id)


def _described(ctx: Context, token_id: str, token: DelegationToken) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=USER,
        principal_name=token.owner,
        token_requester_principal_type=USER,
        token_requester_principal_name=token.requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.ends_ms,
        token_id=token_id,
        hmac=ctx.services.logins.delegation.hmac_of(token_id),
        renewers=[DescribedDelegationTokenRenewer(USER, name) for name in token.renewers],
    )
