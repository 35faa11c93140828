"""What is said of a token, and who gives the keys that it is judged by.

Imports no cryptography: the libraries take 13 MiB, which only agents pay that know an authorization server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from agent.net.renewal import Renewable

if TYPE_CHECKING:
    from agent.net.tokens.keys import PublicKeys


class TokenRefused(Exception):
    """`status` is for the client (RFC 7628), the message for the log; neither has anything of the token."""

    def __init__(self, message: str, status: str = "invalid_token", user: str = "") -> None:
        super().__init__(message)
        self.status, self.user = status, user


class Identity(NamedTuple):
    """Who a token says somebody is."""

    principal: str
    """Without `User:`."""
    expires_ms: int
    """Until when, Unix milliseconds."""


class Verifier(Protocol):
    """Tokens of one kind."""

    def takes(self, token: str) -> bool:
        """Whether it is of this kind, by how it looks: nothing is known of it yet."""
        ...

    async def verify(self, token: str) -> Identity:
        """Raises TokenRefused."""
        ...


class Bearers:
    """Whose tokens HTTP takes: the first verifier that takes a token decides, alone."""

    def __init__(self, verifiers: Sequence[Verifier] = ()) -> None:
        self._verifiers = tuple(verifiers)

    def __len__(self) -> int:
        return len(self._verifiers)

    async def verify(self, token: str) -> Identity:
        """Raises TokenRefused."""
        for each in self._verifiers:
            if each.takes(token):
                return await each.verify(token)
        raise TokenRefused("no tokens of this kind are taken here")


class KeySource(Protocol):
    """Of one agent."""

    keys: PublicKeys

    @property
    def failing(self) -> bool:
        """Whether what is newer cannot be had, or used."""
        ...

    @property
    def files(self) -> Sequence[Renewable]:
        """What somebody else has to look at again and again."""
        ...

    def start(self) -> None:
        """Begin to look for what is newer."""
        ...

    async def stop(self) -> None:
        """Look no more."""
        ...

    async def look_again(self) -> None:
        """A token names a key that is not known: see whether there is a newer set, if it is time for that."""
        ...
