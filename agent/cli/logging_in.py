"""The client's side of SASL for the command's own connections. The exchanges are aiokafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agent.cli.command_config import CommandConfig
from agent.cli.failures import refused
from agent.net.wire.generated.sasl_authenticate import SaslAuthenticateRequest
from agent.net.wire.generated.sasl_handshake import SaslHandshakeRequest

Call = Callable[[str, object], Awaitable[Any]]
STEPS_MAX = 4


async def log_in(config: CommandConfig, call: Call, address: str) -> None:
    """`call` sends a request by its name and gives the answer. Raises Failure."""
    answer = await call("SaslHandshake", SaslHandshakeRequest(mechanism=config.mechanism))
    if answer.error_code:
        known = ", ".join(answer.mechanisms) or "none: give the address of a listener with SASL"
        raise refused(f"{address} does not take sasl.mechanism {config.mechanism}; it takes {known}")
    exchange = _exchange(config)
    said, begun = b"", False
    for _ in range(STEPS_MAX):
        try:
            step = await exchange.step(said if begun else None)
            begun = True
        except (ValueError, KeyError, AssertionError) as error:
            raise refused(
                f"the login at {address} failed: {error or 'it does not know the password'}"
            ) from None
        if step is None:
            return
        answer = await call("SaslAuthenticate", SaslAuthenticateRequest(auth_bytes=step[0]))
        if answer.error_code:
            raise refused(f"{address} does not let {config.user!r} in: {answer.error_message}")
        said = bytes(answer.auth_bytes)
    raise refused(f"the login at {address} does not end")


def _exchange(config: CommandConfig) -> Any:
    from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator  # half a second

    given = {"sasl_plain_username": config.user, "sasl_plain_password": config.password}
    loop = asyncio.get_running_loop()
    if config.mechanism == "PLAIN":
        exchange = SaslPlainAuthenticator(loop=loop, **given)
    else:
        exchange = ScramAuthenticator(loop=loop, sasl_mechanism=config.mechanism, **given)
    return exchange
