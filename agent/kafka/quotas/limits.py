"""Whose quota counts for a client: Kafka's eight levels of user and client id, the first that is set.

Pure. An empty name in the table is the default (coordination/state/quota_types.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from coordination.state.quota_types import QuotaEntity

Entities = Mapping[QuotaEntity, Mapping[str, float]]


class Sharers(NamedTuple):
    """Who takes from a quota together: a user's client, all of a user's clients, all users of a client id."""

    quota: str
    user: str | None
    client_id: str | None

    def __str__(self) -> str:
        parts = ("user", self.user), ("client-id", self.client_id)
        return ",".join(f"{kind}={name}" for kind, name in parts if name is not None)


class Limit(NamedTuple):
    """What somebody may take per second."""

    sharers: Sharers
    bound: float


def limit_of(entities: Entities, user: str, client_id: str, quota: str) -> Limit | None:
    """The quota in force for a client; None: it has none."""
    for whose, shared_by in (
        ((user, client_id), (user, client_id)),
        ((user, ""), (user, client_id)),
        ((user, None), (user, None)),
        (("", client_id), (user, client_id)),
        (("", ""), (user, client_id)),
        (("", None), (user, None)),
        ((None, client_id), (None, client_id)),
        ((None, ""), (None, client_id)),
    ):
        values = entities.get(QuotaEntity(*whose))
        if values is not None and quota in values:
            return Limit(Sharers(quota, *shared_by), values[quota])
    return None


def connection_rate_of(entities: Entities, address: str) -> float | None:
    """How many connections an address may open per second; None: any number."""
    for ip in (address, ""):
        values = entities.get(QuotaEntity(ip=ip))
        if values:
            return next(iter(values.values()))  # an address has this one only
    return None
