"""What is kept of a delegation token (KIP-48)."""

from __future__ import annotations

from typing import NamedTuple


class DelegationToken(NamedTuple):
    """Not what its holder shows: that follows from its id and a secret of the agents.

    Principals are users, without `User:`; times are the log's clock, Unix milliseconds.
    """

    owner: str
    """Who its holder is."""
    requester: str
    """Who asked for it (KIP-373)."""
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    """Until then it holds."""
    ends_ms: int
    """Until then it can be renewed."""

    def of(self, principal: str) -> bool:
        """Whether that is its owner, or one who may renew it."""
        return principal == self.owner or principal in self.renewers


DelegationTokens = dict[str, DelegationToken]
"""By token id."""
