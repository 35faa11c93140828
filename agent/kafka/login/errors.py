"""How a login ends badly."""

from __future__ import annotations

OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailed(Exception):
    """The client is told the message, which does not say whether the user exists. `user`: for the log."""

    def __init__(self, message: str, user: str = "", why: str = "") -> None:
        super().__init__(message)
        self.user = user
        self.why = why or message
