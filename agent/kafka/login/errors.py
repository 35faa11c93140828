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

    def told(self, mechanism: str, *, again: bool) -> str:
        """What the client hears. `again`: it was logged in before (KIP-368)."""
        return str(self)


class NotTold(LoginFailed):
    """The client is told no more than that it failed, in Kafka's words; the log has the message."""

    def told(self, mechanism: str, *, again: bool) -> str:
        """See LoginFailed."""
        when = "re-authentication" if again else "authentication"
        return (
            f"Authentication failed during {when} due to invalid credentials with SASL mechanism {mechanism}"
        )
