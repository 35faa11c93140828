"""What the cluster has agreed on, as plain fields. Only the modules of this package change them."""

from __future__ import annotations

from coordination.state.acl_types import AclTable
from coordination.state.chunk_table import ChunkTable
from coordination.state.delegation_types import DelegationTokens
from coordination.state.group_types import Group
from coordination.state.quota_types import QuotaTable
from coordination.state.scram_types import ScramTable
from coordination.state.subject_types import SubjectTable
from coordination.state.transaction_types import PendingOffset, Transaction
from coordination.state.types import (
    Broker,
    ClaimHolder,
    DeletedTopic,
    Incarnation,
    Partition,
    Schema,
    SnapshotRecord,
    Table,
    Topic,
)
from objectstore.naming import ManifestId, SegmentId

FEATURE_LEVEL_MIN = 1  # the oldest feature level that this code applies
FEATURE_LEVEL_MAX = 2  # and the newest: levels.py says what each means
HANDLE_RANGE = 128  # partition handles that are counted together
FEATURES_AT_FIRST = {"group.version": 1}  # at level 1, as Apache Kafka 4.3 formats a new cluster


class StateData:
    """Everything the cluster has agreed on, after the entry of `revision`."""

    def __init__(self) -> None:
        self.revision = 0
        self.clock_ms = 0  # the log's clock (agreed_time.py); below level 2 the highest stamp of any entry
        self.clock_doubt_ms = self.clock_doubt_rounds = self.clock_doubt_revision = 0  # snapshot.proto: Head
        self.feature_level = FEATURE_LEVEL_MIN
        self.topics: dict[str, Topic] = {}
        self.topics_by_id: dict[bytes, Topic] = {}
        # Topic names by what metric names make of them, oldest first; two or more were of one request.
        self.names_without_dots: dict[str, tuple[str, ...]] = {}
        self.partitions: list[Partition | None] = []  # by handle
        self.chunks = ChunkTable()
        self.leaving: dict[int, Partition] = {}  # of deleted topics, oldest first, by handle (leaving.py)
        self.deleted: dict[bytes, DeletedTopic] = {}  # that can come back, oldest first, by id (deleted.py)
        # What nothing refers to any more → Unix ms of when. A manifest with True takes its segments along.
        self.segment_garbage: dict[SegmentId, int] = {}
        self.manifest_garbage: dict[ManifestId, tuple[int, bool]] = {}
        self.next_producer_id, self.next_node_id, self.leader_epoch = 0, 1, 0  # leaders.py
        self.incarnations: dict[int, Incarnation] = {}  # live ones and the last fenced ones
        self.live: dict[int, Incarnation] = {}  # those of them that are live, in no order that counts
        self.brokers: dict[int, Broker] = {}
        self.node_ids: dict[str, int] = {}
        self.cluster_configs: dict[str, str] = {}  # by Kafka's broker names
        self.group_configs: dict[str, dict[str, str]] = {}  # by group id; the group need not exist
        self.features: dict[str, int] = dict(FEATURES_AT_FIRST)  # finalized, besides the feature level
        self.schemas: dict[int, Schema] = {}
        self.next_schema_id, self.bound_revision = 1, 0  # the highest bound_revision that any topic ever had
        self.subjects, self.scram, self.delegation_tokens = SubjectTable(), ScramTable(), DelegationTokens()
        self.acls, self.quotas = AclTable(), QuotaTable()
        self.tables: dict[tuple[str, str], Table] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.groups: dict[str, Group] = {}  # consumer groups of either protocol
        self.transactions: dict[str, Transaction] = {}  # by transactional id
        self.transactions_by_producer: dict[int, Transaction] = {}  # the same, by their current producer id
        # By group and transactional id: positions that wait for a transaction's end.
        self.pending_offsets: dict[str, dict[str, dict[int, PendingOffset]]] = {}
        self.claims: dict[str, ClaimHolder] = {}
        self.snapshots: list[SnapshotRecord] = []  # oldest first
        self.trimmed_through = self.features_epoch = 0  # the epoch rises when a finalized feature changes
        self.pending: dict[tuple[int, int], list[bytes]] = {}  # open multi-part changes
        self._count()

    def _count(self) -> None:
        """What follows from the rest, and is kept so that nobody has to go over it."""
        self.partition_count = 0  # of existing topics
        self.live_in_range: list[int] = []  # how many of them are in each HANDLE_RANGE of handles
        self.producer_count = 0  # entries of all partitions
        self.whole_garbage: dict[int, int] = {}  # manifests in the garbage with True, by partition
        self.tables_by_topic: dict[bytes, tuple[str, str]] = {}  # by the id of their topic
        # Names of topics, sorted, by what their tables shall be called: two of one name collide.
        self.topics_by_table_name: dict[tuple[str, str], tuple[str, ...]] = {}
        self.followers: dict[
            tuple[int, str], dict[str, None]
        ] = {}  # topics by whose deletions count (following.py)
        self.deleted_partitions: dict[int, Partition] = {}  # of topics that can come back, by handle
        self.deleted_weight = 0  # bytes of the state that they take, about
        self.holding: dict[int, Partition] = {}  # of topics that exist, with records that are held, by handle
        self.fenced_count = 0
        self.freezes = 0  # in this process: how often somebody began to note the state (freeze.py)

    def is_live(self, incarnation: int) -> bool:
        """Whether the incarnation is registered and not fenced."""
        known = self.incarnations.get(incarnation)
        return known is not None and known.live
