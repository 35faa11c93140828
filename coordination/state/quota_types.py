"""What is kept of clients' quotas (KIP-13, KIP-546, KIP-599, KIP-612)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class QuotaEntity(NamedTuple):
    """Whose quotas: None is no part of it, an empty name the default."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None


@dataclass(slots=True)
class QuotaTable:
    """Quotas by whose they are. An entity without any is not there."""

    entities: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    changes: int = 0
    """How many commands changed any: it tells whether what somebody found here still holds."""
