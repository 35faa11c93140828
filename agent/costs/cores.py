"""How many agents a load needs: what each must do is reckoned until no agent is busier than it may be."""

from __future__ import annotations

from dataclasses import dataclass

from agent.costs import coefficients as measured
from agent.costs.flushing import interval_s
from agent.costs.following import apply_cores
from agent.costs.load import AGENTS_MAX, Load, LoadError, Settings
from agent.costs.merging import Compaction, Merging, compaction, merging
from agent.costs.tables import Tables, tables

GB = 1e9


@dataclass(frozen=True, slots=True)
class Cluster:
    """A load on so many agents. Cores are virtual cores that are busy all the time."""

    agents: int
    interval_s: float
    """Between two chunks of one agent."""
    produce: float
    fetch_tail: float
    fetch_cold: float
    apply: float
    """Of each agent: all follow the whole log."""
    merging: Merging
    compaction: Compaction
    tables: Tables | None

    @property
    def chunks_per_s(self) -> float:
        """Of all agents; as many are entries of the log."""
        return self.agents / self.interval_s

    @property
    def loop(self) -> float:
        """Share of a core that one agent's event loop is busy."""
        return (self.produce + self.fetch_tail + self.fetch_cold) / self.agents + self.apply

    @property
    def cores(self) -> float:
        """Of all agents and their helper processes."""
        background = self.merging.cores + self.compaction.cores
        if self.tables is not None:
            background += self.tables.commit_cores + self.tables.compaction_cores
        return self.loop * self.agents + background

    def carries(self, load: Load, busy: float) -> bool:
        """Whether neither an event loop nor an agent's cores are busier than this share."""
        return self.loop <= busy and self.cores <= busy * self.agents * load.cores_each


def cluster(load: Load, settings: Settings) -> Cluster:
    """The load on `load.agents`, or on the least number that carries it. Raises LoadError."""
    if load.agents is not None:
        found = on(load, settings, load.agents)
        if not found.carries(load, 1.0):
            raise LoadError(
                f"--agents {load.agents} do not carry the load: an event loop would be busy "
                f"{found.loop:.0%}, all together {found.cores:.1f} of {load.agents * load.cores_each:g} "
                "cores; leave --agents out"
            )
        return found
    for agents in range(load.zones, AGENTS_MAX + 1):
        found = on(load, settings, agents)
        if found.carries(load, load.busy_max):
            return found
    raise LoadError(
        f"--write: {AGENTS_MAX} agents do not carry it: applying the log alone takes {found.apply:.2f} "
        "of each one's core; write less, or larger batches (--batch-bytes)"
    )


def on(load: Load, settings: Settings, agents: int) -> Cluster:
    """The load on this number of agents, whether they carry it or not."""
    every_s = interval_s(settings.produce, load.write / agents, load.batch_bytes, load.put_s + load.append_s)
    merged = merging(load, settings, agents, every_s)
    read = load.write * load.fanout / GB
    return Cluster(
        agents=agents,
        interval_s=every_s,
        produce=produce_cores(load, measured.PRODUCE_LARGE.value, measured.PRODUCE_DEFAULT.value),
        fetch_tail=read * (1 - load.read_cold) * measured.FETCH_TAIL.value,
        fetch_cold=read * load.read_cold * measured.FETCH_COLD.value,
        apply=apply_cores(agents, agents / every_s, load.batches_per_s),
        merging=merged,
        compaction=compaction(load, merged.segment_bytes),
        tables=tables(load, settings, agents) if load.tables else None,
    )


def produce_cores(load: Load, large: float, default: float) -> float:
    """Cores from the CPU-s/GB of two sizes of batches: what a batch costs, and what its bytes do.

    Never below what large batches cost: where the smaller ones were the cheaper, that is noise.
    """
    few, many = GB / measured.BATCH_LARGE, GB / measured.BATCH_DEFAULT
    a_batch = max(0.0, (default - large) / (many - few))
    return load.write / GB * max(0.0, large - few * a_batch) + load.batches_per_s * a_batch
