"""How a login ends badly."""

from __future__ import annotations

OTHER_ID = "Authentication failed: Client requested an authorization id that is different from username"


class LoginFailed(Exception):
    """The client is told the message, which does not say whether the user exists. `user`: for the log.

    `challenge`: what the client is told first and has to answer (RFC 7628). `noted`: it was counted when that
    was sent.
    """

    def __init__(
        self, message: str, user: str = "", why: str = "", challenge: bytes = b"", *, noted: bool = False
    ) -> None:
        super().__init__(message)
        self.user = user
        self.why = why or message
        self.challenge = challenge
        self.noted = noted
