"""SaslAuthenticate: one step of a login by the mechanism that SaslHandshake chose.

Versions 0 to 2.
Behaviour: a login that fails is SASL_AUTHENTICATION_FAILED after `sasl.failed_delay_ms`, and the connection
ends; the answer does not tell whether the user exists. A token that is refused (OAUTHBEARER) is answered with
NONE and JSON first, as RFC 7628 has it. From version 1 on it says how long the login holds (KIP-368).
Deviations: mechanisms are PLAIN, SCRAM and OAUTHBEARER; Kerberos is not known.
"""

from __future__ import annotations

import asyncio

from agent.kafka.context import Context
from agent.kafka.login.errors import LoginFailed
from agent.kafka.login.logins import Login
from agent.net.wire.errors import WireError
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from agent.telemetry.logs import logger
from coordination.config_types import shown
from coordination.kafka_codes import Code

KEY = 36
VERSIONS = (0, 2)
HANG_UP_S = 1.0
"""How long a client has to read why it may not come in, seconds. kafka-python forgets it
when the end comes along with it."""
_log = logger("login")


async def handle(ctx: Context, request: SaslAuthenticateRequest, version: int) -> SaslAuthenticateResponse:
    """The server's next message, or why there is none."""
    login = ctx.client.login
    if login is None or login.done():
        message = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=Code.ILLEGAL_SASL_STATE, error_message=message)
    try:
        answer = await login.authenticate(bytes(request.auth_bytes))
    except LoginFailed as error:
        return await _failed(ctx, login, error)
    if login.done():
        ctx.client.principal = login.principal
        ctx.client.welcome(login.principal)
        ctx.services.metrics.logins.labels(login.mechanism, "done").inc()
        ctx.services.trail.login(ctx.actor, login.mechanism, Code.NONE)
        _log.info("login", principal=shown(login.principal), **_where(ctx, login))
    return SaslAuthenticateResponse(
        auth_bytes=answer,
        session_lifetime_ms=login.lifetime_ms if login.done() else 0,
        error_message="",  # as Kafka's
    )


async def _failed(ctx: Context, login: Login, error: LoginFailed) -> SaslAuthenticateResponse:
    """Answer late: whoever guesses waits. Whatever else comes by the connection, ends it (Login.refusal)."""
    services = ctx.services
    if not error.noted:
        services.metrics.logins.labels(login.mechanism, "failed").inc()
        count = services.logins.failed_from(ctx.client.host)
        who = ctx.actor._replace(principal=error.user)
        services.trail.login(who, login.mechanism, Code.SASL_AUTHENTICATION_FAILED)
        where = _where(ctx, login)
        _log.warning("login failed", user=shown(error.user), why=error.why, failures=count, **where)
        await asyncio.sleep(services.config.sasl.failed_delay_ms / 1000)
    if error.challenge:
        return SaslAuthenticateResponse(auth_bytes=error.challenge, error_message="")
    told = error.told(login.mechanism, again=bool(login.principal))
    loop = asyncio.get_running_loop()
    loop.call_later(HANG_UP_S, services.hang_up, ctx.client.connection, WireError("the login failed"))
    return SaslAuthenticateResponse(
        error_code=Code.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
    )


def _where(ctx: Context, login: Login) -> dict[str, object]:
    client = ctx.client
    return {
        "mechanism": login.mechanism,
        "connection": client.connection,
        "peer": client.host,
        "listener": client.listener,
    }
