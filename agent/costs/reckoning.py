"""The whole bill of a load, and what is to be said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from agent.costs import coefficients as measured
from agent.costs import floe, kafka
from agent.costs.bill import Row, Side, total
from agent.costs.cores import Cluster, cluster
from agent.costs.load import PARTITIONS_MAX, Load, Settings
from agent.costs.prices import SECONDS_PER_MONTH, Prices
from agent.costs.units import MIB


@dataclass(frozen=True, slots=True)
class Bill:
    """What was asked, what carries it, the rows, and notes for who reads them."""

    load: Load
    prices: Prices
    cluster: Cluster
    brokers: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def total(self, *sides: Side) -> float:
        """Of a month."""
        return total(self.rows, *sides)

    def as_json(self) -> dict[str, Any]:
        """One JSON value: amounts as numbers, units in the names."""
        return {
            "load": asdict(self.load),
            "prices": self.prices.model_dump(),
            "agents": self.cluster.agents,
            "agent_cores_busy": self.cluster.cores,
            "agent_loop_busy": self.cluster.loop,
            "chunk_interval_s": self.cluster.interval_s,
            "chunks_per_s": self.cluster.chunks_per_s,
            "brokers": self.brokers,
            "rows": [{**asdict(row), "cost": row.cost} for row in self.rows],
            "per_month": {side.value: self.total(side) for side in Side},
            "notes": list(self.notes),
        }


def reckoned(load: Load, settings: Settings, prices: Prices) -> Bill:
    """The bill. Raises LoadError where no cluster carries the load."""
    found = cluster(load, settings)
    rows = (*floe.rows(load, settings, found, prices), *kafka.rows(load, prices))
    return Bill(load, prices, found, kafka.brokers_of(load), rows, tuple(_notes(load, settings, found)))


def _notes(load: Load, settings: Settings, found: Cluster) -> Iterator[str]:
    size = load.write / found.chunks_per_s
    yield (
        f"{found.agents} agents write a chunk of {size / MIB:.3g} MiB every "
        f"{1000 * found.interval_s:.3g} ms each ({found.chunks_per_s:.3g}/s together); a partition is merged "
        f"every {found.merging.every_s:.3g} s, and a byte of a segment is written "
        f"{1 + found.merging.rewrites:.2f} times"
    )
    if found.tables is not None:
        yield (
            f"a table gets a commit every {found.tables.interval_s:.3g} s, and a row is written "
            f"{1 + found.tables.rewrites:.2f} times"
        )
        if found.tables.interval_s > settings.tables.interval_ms / 1000:
            yield "tables.objects_per_s_max makes commits rarer than tables.interval_ms"
    if found.chunks_per_s > measured.ENTRIES_MAX.value:
        yield (
            f"{found.chunks_per_s:.0f} entries a second are above the {measured.ENTRIES_MAX.value:.0f} that "
            "one log is made for: raise produce.linger_ms"
        )
    if load.partitions > PARTITIONS_MAX:
        yield f"{load.partitions} partitions are above the {PARTITIONS_MAX} that a cluster is made for"
    gib = load.write * SECONDS_PER_MONTH / 2**30
    yield f"{gib:,.0f} GiB are written in a month"
