"""What is kept of a user who logs in by SCRAM (RFC 5802), and what of all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class ScramCredential(NamedTuple):
    """Whoever reads `stored_key` and `server_key` can play the server, and guess passwords; not log in."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        """Nothing of it belongs into a log."""
        return f"ScramCredential(iterations={self.iterations})"


@dataclass(slots=True)
class ScramTable:
    """By user and mechanism (1 SCRAM-SHA-256, 2 SCRAM-SHA-512)."""

    secret: bytes = field(default=b"", repr=False)
    """What the salts of unknown users are made from; empty until there was a credential."""
    credentials: dict[tuple[str, int], ScramCredential] = field(default_factory=dict)
