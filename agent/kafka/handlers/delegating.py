"""What the four requests about delegation tokens have in common (KIP-48, KIP-373)."""

from __future__ import annotations

from typing import Final, NamedTuple

from agent.kafka.authority.needs import Need
from agent.kafka.context import Context
from agent.kafka.propose import propose_one
from agent.net.listening import ANONYMOUS
from coordination.commands import ExpireDelegationToken, RenewDelegationToken
from coordination.kafka_codes import Code
from coordination.state.delegation import NOT_FOUND
from coordination.state.types import Done, Refused

USER: Final = "User"
NO_TIME: Final = -1


class Moved(NamedTuple):
    """What became of a token's end."""

    code: Code
    until_ms: int
    """Unix milliseconds."""


def refusal(ctx: Context) -> Code:
    """Why nothing of tokens is told or done on this connection; NONE when it is.

    As in Kafka: its client has shown who it is, and not by a token, and there is a secret.
    """
    protocols = {each.name: each.protocol for each in ctx.services.config.listeners}
    protocol = protocols.get(ctx.client.listener, "PLAINTEXT")
    unknown = protocol == "SSL" and ctx.client.principal == ANONYMOUS
    by_token = ctx.client.login is not None and ctx.client.login.by_token
    if protocol == "PLAINTEXT" or unknown or by_token:
        return Code.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    enabled = ctx.services.logins.delegation.enabled
    return Code.NONE if enabled else Code.DELEGATION_TOKEN_AUTH_DISABLED


def acts_for(ctx: Context, owner: str, by: Need) -> bool:
    """Whether the client may have tokens of that user, or see them: its own, all as the administrator, those
    of users for whom ACLs let it.
    """
    asks = ctx.client.principal
    if asks == owner or asks == ctx.services.config.sasl.admin_user:
        return True
    return not ctx.services.authority.off and ctx.allows(by, f"{USER}:{owner}")


async def move(ctx: Context, shown: bytes, message: RenewDelegationToken | ExpireDelegationToken) -> Moved:
    """Propose it for the token whose HMAC that is, as this client."""
    if code := refusal(ctx):
        return Moved(code, NO_TIME)
    await ctx.barrier()
    message.token_id = await ctx.services.logins.delegation.find(shown)
    message.principal = ctx.client.principal
    result = await propose_one(ctx, message) if message.token_id else NOT_FOUND
    if isinstance(result, Refused):
        return Moved(result.code, 0)
    assert isinstance(result, Done)
    assert isinstance(result.value, int)
    return Moved(Code.NONE, result.value)
