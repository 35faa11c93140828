"""The messages of OAUTHBEARER (RFC 7628, KIP-255, KIP-768)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from agent.kafka.login.errors import LoginFailed, NotTold
from agent.kafka.login.scram import name_of
from agent.net.tokens.identity import Identity, TokenRefused

if TYPE_CHECKING:
    from agent.net.tokens.verifying import Tokens

MECHANISM: Final = "OAUTHBEARER"
INVALID: Final = "Invalid OAUTHBEARER client first message"
_FIRST = re.compile(r"n,(?:a=([\x01-\x2b\x2d-\x7f]+))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_BEARER = re.compile(r"[Bb]earer +([-_.A-Za-z0-9]+)")
_SEPARATOR: Final = "\x01"


class First(NamedTuple):
    """The client's first message."""

    authorization: str
    token: str


def parse(message: bytes) -> First:
    """Raises NotTold, which has nothing of the message either."""
    try:
        match = _FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise NotTold(INVALID)
    pairs = dict(pair.split("=", 1) for pair in match[2].split(_SEPARATOR) if pair)
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise NotTold(f"{INVALID}: 'auth' not specified, or not a bearer token")
    return First(name_of(match[1]) if match[1] else "", bearer[1])


async def identify(tokens: Tokens, message: bytes) -> Identity:
    """Raises LoginFailed; where the token is what is wrong, with the JSON that the client is told first."""
    first = parse(message)
    try:
        found = await tokens.verify(first.token)
    except TokenRefused as error:
        told = json.dumps({"status": error.status}, separators=(",", ":"))
        raise LoginFailed(told, error.user, str(error), challenge=told.encode()) from None
    if first.authorization not in ("", found.principal):
        raise LoginFailed(
            f"Authentication failed: Client requested an authorization id ({first.authorization}) that is "
            f"different from the token's principal name ({found.principal})",
            found.principal,
        )
    return found
