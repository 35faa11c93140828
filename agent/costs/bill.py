"""The bill: rows of what a month takes, each with its price and where its amount comes from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from agent.costs.prices import SECONDS_PER_MONTH
from agent.costs.units import GIB


class Side(StrEnum):
    """Whose cost a row is."""

    FLOE = "Floe"
    TABLES = "Floe's tables"
    KAFKA = "Apache Kafka"


@dataclass(frozen=True, slots=True)
class Row:
    """`price`: of one unit; None where the row only explains another. `source`: of the amount."""

    side: Side
    kind: str
    what: str
    amount: float
    unit: str
    price: float | None
    source: str

    @property
    def cost(self) -> float | None:
        """For a month."""
        return None if self.price is None else self.amount * self.price


def requests(side: Side, what: str, per_s: float, per_1000: float, source: str) -> Row:
    """Requests of the store."""
    return Row(side, "requests", what, per_s * SECONDS_PER_MONTH / 1_000, "1,000 a month", per_1000, source)


def stored(side: Side, what: str, size: float, per_gib: float, source: str) -> Row:
    """Bytes that are there all the time."""
    return Row(side, "storage", what, size / GIB, "GiB", per_gib, source)


def sent(side: Side, what: str, per_s: float, per_gib: float, source: str) -> Row:
    """Bytes a second from one zone to another."""
    return Row(side, "network", what, per_s * SECONDS_PER_MONTH / GIB, "GiB a month", per_gib, source)


def busy(side: Side, what: str, cores: float, source: str) -> Row:
    """Cores that are busy: they explain how many are paid."""
    return Row(side, "cores", what, cores, "busy vCPU", None, source)


def total(rows: Iterable[Row], *sides: Side) -> float:
    """Of these sides' rows."""
    return sum(row.cost or 0.0 for row in rows if row.side in sides)


def between_zones(replicas: int, zones: int) -> float:
    """How often a byte goes to another zone when it is copied to so many replicas, spread evenly.

    The leader is any of them: of n replicas in its zone, n-1 are near.
    """
    each, more = divmod(replicas, zones)
    near = (more * (each + 1) ** 2 + (zones - more) * each**2) / replicas
    return replicas - near
