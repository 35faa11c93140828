"""Delegation tokens (KIP-48): made, renewed and ended here, by the log's clock.

One that is over is as good as none, and is forgotten when the next one is made. What does not depend on the
state (who may ask for one, and for whom) the agents decide.
"""

from __future__ import annotations

from coordination.commands import CreateDelegationToken, ExpireDelegationToken, RenewDelegationToken
from coordination.kafka_codes import Code
from coordination.state.data import StateData
from coordination.state.delegation_types import DelegationToken
from coordination.state.types import At, Done, Refused, Result

TOKENS_MAX = 10_000
TOKENS_OF_ONE_MAX = 1_000
"""That one user asked for: nobody keeps the others from having theirs."""
RENEWERS_MAX = 64
NAME_LENGTH_MAX = 255  # characters
ID_LENGTH_MAX = 64
PERIOD_MS_MAX = 10 * 365 * 86_400_000
NOT_FOUND = Refused(Code.DELEGATION_TOKEN_NOT_FOUND, "there is no such delegation token")
NOT_THEIRS = Refused(Code.DELEGATION_TOKEN_OWNER_MISMATCH, "neither the owner nor a renewer of the token")
OVER = Refused(Code.DELEGATION_TOKEN_EXPIRED, "the delegation token is over")


def create_delegation_token(state: StateData, message: CreateDelegationToken, at: At) -> Result:
    """Make one. Done's value: None."""
    names = (message.owner, message.requester, *message.renewers)
    if not all(0 < len(name) <= NAME_LENGTH_MAX for name in names):
        return Refused(Code.INVALID_PRINCIPAL_TYPE, f"a user's name has 1 to {NAME_LENGTH_MAX} characters")
    if len(message.renewers) > RENEWERS_MAX:
        return Refused(Code.INVALID_REQUEST, f"a delegation token has at most {RENEWERS_MAX} renewers")
    if not 0 < len(message.token_id) <= ID_LENGTH_MAX or message.token_id in state.delegation_tokens:
        return Refused(Code.INVALID_REQUEST, "the id of a delegation token is new and has 1 to 64 characters")
    if not (0 < message.lifetime_ms <= PERIOD_MS_MAX and 0 < message.renew_ms <= PERIOD_MS_MAX):
        return Refused(Code.INVALID_TIMESTAMP, f"a period has 1 to {PERIOD_MS_MAX} ms")
    tokens = state.delegation_tokens
    for token_id in [each for each, token in tokens.items() if token.expires_ms <= at.now_ms]:
        del tokens[token_id]
    theirs = sum(token.requester == message.requester for token in tokens.values())
    if theirs >= TOKENS_OF_ONE_MAX or len(tokens) >= TOKENS_MAX:
        most = f"{TOKENS_OF_ONE_MAX} delegation tokens of one user and {TOKENS_MAX} of all are the most"
        return Refused(Code.POLICY_VIOLATION, most)
    ends_ms = at.now_ms + message.lifetime_ms
    expires_ms = min(ends_ms, at.now_ms + message.renew_ms)
    tokens[message.token_id] = DelegationToken(
        message.owner, message.requester, tuple(message.renewers), at.now_ms, expires_ms, ends_ms
    )
    return Done()


def _found(state: StateData, token_id: str, principal: str) -> DelegationToken | Refused:
    """Kafka looks at the owner before the time."""
    token = state.delegation_tokens.get(token_id)
    if token is None:
        return NOT_FOUND
    return token if token.of(principal) else NOT_THEIRS


def renew_delegation_token(state: StateData, message: RenewDelegationToken, at: At) -> Result:
    """Let it hold until `renew_ms` from now. Done's value: until when, Unix milliseconds."""
    token = _found(state, message.token_id, message.principal)
    if isinstance(token, Refused):
        return token
    if not 0 < message.renew_ms <= PERIOD_MS_MAX:
        return Refused(Code.INVALID_TIMESTAMP, f"a period has 1 to {PERIOD_MS_MAX} ms")
    return _hold(state, message.token_id, token, at.now_ms, message.renew_ms)


def expire_delegation_token(state: StateData, message: ExpireDelegationToken, at: At) -> Result:
    """Let it end `period_ms` from now; negative: forget it. Done's value: until when, Unix milliseconds."""
    token = _found(state, message.token_id, message.principal)
    if isinstance(token, Refused):
        return token
    if message.period_ms < 0:
        del state.delegation_tokens[message.token_id]
        return Done(at.now_ms)
    return _hold(state, message.token_id, token, at.now_ms, min(message.period_ms, PERIOD_MS_MAX))


def _hold(state: StateData, token_id: str, token: DelegationToken, now_ms: int, period_ms: int) -> Result:
    if token.expires_ms <= now_ms:
        return OVER
    expires_ms = min(token.ends_ms, now_ms + period_ms)
    state.delegation_tokens[token_id] = token._replace(expires_ms=expires_ms)
    return Done(expires_ms)
