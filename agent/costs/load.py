"""What is asked: the load, and the settings under which Floe carries it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from agent.config.limits import CollectionConfig, MergingConfig, ProduceConfig, SnapshotsConfig, TablesConfig
from agent.config.tree import Tree

AGENTS_MAX = 1_000
PARTITIONS_MAX = 200_000
"""docs/limits.md."""


class LoadError(Exception):
    """The load makes no sense, or no cluster carries it: one line with field, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A steady load. Bytes are those of record batches as producers send them, compressed or not."""

    write: float
    """Bytes a second, over all partitions alike."""
    fanout: float = 3
    """How often each byte is read."""
    retention_s: float = 7 * 86_400
    zones: int = 3
    partitions: int = 100
    topics: int = 10
    message_bytes: float = 1_000
    batch_bytes: float = 16_384
    """Of one partition in one request: producers' batch.size, as far as they fill it."""
    read_cold: float = 0.0
    """Share of the reads, 0 to 1, that memory has no longer."""
    zoned: bool = True
    """Clients say in which zone they are."""
    agents: int | None = None
    """None: as many as the cores need, one in each zone at least."""
    cores_each: float = 2
    """Virtual cores of an agent, and of a broker."""
    busy_max: float = 0.6
    """Share of these that the steady load may take; the rest is for peaks and for when one is away."""
    tables: float = 1.0
    """Share of the bytes, 0 to 1, whose topics are tables."""
    table_ratio: float = 1.0
    """Bytes of Parquet for each byte of records."""
    table_retention_s: float | None = None
    """None: as long as the topics keep records."""
    compacted: float = 0.0
    """Share of the bytes, 0 to 1, whose topics have cleanup.policy=compact."""
    survives: float = 0.5
    """Share of these bytes, 0 to 1, that newer records of their keys do not supersede."""
    put_s: float = 0.042
    """A PUT of a chunk, on average."""
    append_s: float = 0.003
    """An append to the log, on average."""
    kafka_replicas: int = 3
    disk_free: float = 0.3
    """Share of Kafka's disks that is kept free."""

    def __post_init__(self) -> None:
        if self.topics > self.partitions:
            raise LoadError(
                f"--topics {self.topics} is above --partitions {self.partitions}: give more partitions"
            )
        if self.message_bytes > self.batch_bytes:
            raise LoadError(
                f"--message-bytes {self.message_bytes:g} is above --batch-bytes {self.batch_bytes:g}: "
                "a batch holds one message at least"
            )
        if self.agents is not None and self.agents < self.zones:
            raise LoadError(
                f"--agents {self.agents} is below --zones {self.zones}: each zone has one at least"
            )

    @property
    def places(self) -> int:
        """Agents that lead a partition: one in each zone where clients say theirs (docs/zones.md)."""
        return self.zones if self.zoned else 1

    @property
    def batches_per_s(self) -> float:
        """Of all producers."""
        return self.write / self.batch_bytes

    @property
    def partition_write(self) -> float:
        """Bytes a second of one partition."""
        return self.write / self.partitions

    @property
    def cold_read(self) -> float:
        """Bytes a second that are read from the store for readers of old data."""
        return self.write * self.fanout * self.read_cold


@dataclass(frozen=True, slots=True)
class Settings:
    """The sections of the configuration that decide what is stored, and how often."""

    produce: ProduceConfig = field(default_factory=ProduceConfig)
    merging: MergingConfig = field(default_factory=MergingConfig)
    collection: CollectionConfig = field(default_factory=CollectionConfig)
    tables: TablesConfig = field(default_factory=TablesConfig)
    snapshots: SnapshotsConfig = field(default_factory=SnapshotsConfig)

    @classmethod
    def of(cls, config: Tree) -> Self:
        """Those of an agent's configuration."""
        return cls(config.produce, config.merging, config.collection, config.tables, config.snapshots)

    @property
    def kept_s(self) -> float:
        """How long an object stays that nothing refers to any more, on average, seconds."""
        return self.collection.grace_s + self.collection.interval_s / 2
