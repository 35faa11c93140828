"""The one message of PLAIN (RFC 4616)."""

from __future__ import annotations

from typing import Final

from agent.config.users import NAME_LENGTH_MAX
from agent.kafka.login.errors import LoginFailed

INVALID: Final = "Authentication failed: Invalid username or password"


def parse(message: bytes) -> tuple[str, str]:
    """User and password of RFC 4616's one message. Raises LoginFailed."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise LoginFailed(INVALID, why="Invalid SASL/PLAIN response: not UTF-8") from None
    if len(parts) != 3:
        raise LoginFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization, user, password = parts
    if not user or len(user) > NAME_LENGTH_MAX:
        raise LoginFailed("Authentication failed: username not specified")
    if not password:
        raise LoginFailed("Authentication failed: password not specified", user)
    if authorization not in ("", user):
        raise LoginFailed(
            "Authentication failed: Client requested an authorization id that is different from username",
            user,
        )
    return user, password
