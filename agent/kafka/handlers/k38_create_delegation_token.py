"""CreateDelegationToken: something to log in by that is not the password.

Versions 1 to 3.
Behaviour: the token is of whoever asks; for somebody else (KIP-373) the configured administrator may ask, and
whom ACLs let. It can be renewed by its owner and the renewers, up to the asked lifetime or
`delegation.lifetime_ms_max`, and holds for `delegation.renew_ms` at first. Not by a token, and not where
nobody has shown who they are.
Deviations: for somebody else Kafka lets everybody where it has no authorizer. 10,000 tokens at most, 1,000 of
one requester, 64 renewers.
"""

from __future__ import annotations

from agent.kafka.authority.needs import CREATE_TOKEN
from agent.kafka.context import Context
from agent.kafka.handlers.delegating import NO_TIME, USER, acts_for, refusal
from agent.kafka.propose import propose_one
from agent.net.wire.generated.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from agent.telemetry.logs import logger
from coordination.commands import CreateDelegationToken
from coordination.config_types import shown
from coordination.kafka_codes import Code
from coordination.state.types import Refused

KEY = 38
VERSIONS = (1, 3)
_log = logger("delegation")


async def handle(
    ctx: Context, request: CreateDelegationTokenRequest, version: int
) -> CreateDelegationTokenResponse:
    """The new token, or why there is none."""
    requester = ctx.client.principal
    named = version >= 3 and bool(request.owner_principal_name)
    owner = request.owner_principal_name if named and request.owner_principal_name else requester
    kind = (request.owner_principal_type or "") if named else USER
    answer = CreateDelegationTokenResponse(
        error_code=refusal(ctx),
        principal_type=kind,
        principal_name=owner,
        token_requester_principal_type=USER,
        token_requester_principal_name=requester,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )
    if answer.error_code:
        return answer
    if not acts_for(ctx, owner, by=CREATE_TOKEN):
        answer.error_code = Code.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    elif any(one != USER for one in (kind, *(each.principal_type for each in request.renewers))):
        answer.error_code = Code.INVALID_PRINCIPAL_TYPE
    else:
        await _create(ctx, request, answer)
    return answer


async def _create(
    ctx: Context, request: CreateDelegationTokenRequest, answer: CreateDelegationTokenResponse
) -> None:
    """Fill the answer."""
    delegation = ctx.services.logins.delegation
    token_id, longest_ms = delegation.new_id(), delegation.config.lifetime_ms_max
    asked_ms = request.max_lifetime_ms
    message = CreateDelegationToken(
        token_id=token_id,
        owner=answer.principal_name,
        requester=answer.token_requester_principal_name,
        renewers=[each.principal_name for each in request.renewers],
        lifetime_ms=min(asked_ms, longest_ms) if asked_ms > 0 else longest_ms,
        renew_ms=delegation.config.renew_ms,
    )
    result = await propose_one(ctx, message)
    made = ctx.state.delegation_tokens.get(token_id)
    if isinstance(result, Refused) or made is None:
        answer.error_code = result.code if isinstance(result, Refused) else Code.DELEGATION_TOKEN_NOT_FOUND
        return
    answer.issue_timestamp_ms, answer.expiry_timestamp_ms = made.issued_ms, made.expires_ms
    answer.max_timestamp_ms = made.ends_ms
    answer.token_id, answer.hmac = token_id, delegation.hmac_of(token_id)
    _log.info("delegation token", token=token_id, owner=shown(made.owner), requester=shown(made.requester))
