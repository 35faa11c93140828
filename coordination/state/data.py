"""What the cluster has agreed on, as plain fields. Only the modules of this package change them."""

from __future__ import annotations

from coordination.state.chunk_table import ChunkTable
from coordination.state.types import (
    Broker,
    ClaimHolder,
    Incarnation,
    Partition,
    Schema,
    SnapshotRecord,
    Table,
    Topic,
)

FEATURE_LEVEL_MIN = 1  # the oldest feature level that this code applies
FEATURE_LEVEL_MAX = 1  # and the newest


class StateData:
    """Everything the cluster has agreed on, after the entry of `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self.clock_ms = 0  # the highest stamp of any entry
        self.feature_level = FEATURE_LEVEL_MIN
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        self.names_without_dots: dict[str, str] = {}  # topic names by what metric names make of them
        self.partitions: list[Partition | None] = []  # by handle
        self.partition_count = 0  # of existing topics
        self.chunks = ChunkTable()
        self.next_producer_id = 0
        self.incarnations: dict[int, Incarnation] = {}  # live ones and the last fenced ones
        self.fenced_count = 0
        self.brokers: dict[int, Broker] = {}
        self.node_ids: dict[str, int] = {}
        self.next_node_id = 1
        self.cluster_configs: dict[str, str] = {}
        self.schemas: dict[int, Schema] = {}
        self.next_schema_id = 1
        self.tables: dict[tuple[str, str], Table] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.claims: dict[str, ClaimHolder] = {}
        self.snapshots: list[SnapshotRecord] = []  # oldest first
        self.trimmed_through = 0
        self.pending: dict[tuple[int, int], list[bytes]] = {}  # open multi-part changes

    def is_live(self, incarnation: int) -> bool:
        """Whether the incarnation is registered and not fenced."""
        known = self.incarnations.get(incarnation)
        return known is not None and known.live
