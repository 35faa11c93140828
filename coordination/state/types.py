"""What the state is made of and what applying a command answers. Readers may look, never touch."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from coordination.kafka_codes import Code
from coordination.state.slices import SliceIndex
from coordination.state.transaction_types import Extent, PartitionTransactions
from objectstore.naming import ManifestId
from objectstore.transactions import Aborted


class ProducerEntry:
    """One idempotent producer on one partition (Kafka's ProducerStateEntry).

    `recent` holds (first sequence, base offset) of the last five batches, oldest first, flat. Batches of
    one epoch are contiguous in sequence, so each ends where the next begins. Everything from
    `floor_sequence` to `last_sequence` was accepted. `last_timestamp` is the proposer's stamp, Unix ms.
    Only an entry with the state's own number of `freezes` may be changed: `producers.own`.
    """

    __slots__ = ("epoch", "floor_sequence", "freezes", "last_sequence", "last_timestamp", "recent")

    def __init__(self, epoch: int, floor_sequence: int) -> None:
        self.epoch = epoch
        self.floor_sequence = floor_sequence
        self.freezes = -1
        self.last_sequence = -1
        self.last_timestamp = -1
        self.recent: array[int] = array("q")

    @property
    def last_offset(self) -> int:
        """Offset of its newest record; -1 when none is remembered."""
        recent = self.recent
        return recent[-1] + ((self.last_sequence - recent[-2]) & 0x7FFFFFFF) if recent else -1


class Merged(NamedTuple):
    """A partition's manifest and what it holds in short (log.proto MergedRange says what the fields mean)."""

    manifest: ManifestId
    start_offset: int
    end_offset: int
    size_bytes: int
    records: int
    segments: int
    manifest_bytes: int
    max_timestamp_ms: int
    first_end_offset: int
    first_size_bytes: int
    first_max_timestamp_ms: int
    first_dirty_offset: int
    clean_bytes: int
    first_dirty_ms: int


class Skipped(NamedTuple):
    """Offsets [start, end) of which the damaged ones are passed over; since when (Unix ms), on whose word."""

    start: int
    end: int
    since_ms: int
    by: str


class Held(NamedTuple):
    """Offsets [start, end) below the log start that can come back until `until_ms`, a stamp of the log."""

    start: int
    end: int
    until_ms: int


class Span(NamedTuple):
    """Records from `first_offset` on, up to the next span, were judged by these schemas; 0: by none."""

    first_offset: int
    key_schema_id: int
    value_schema_id: int


UNBOUND = (0, 0)  # what a topic without schemas of its keys and values is bound to


class Partition:
    """One partition. Offsets [log_start, high_watermark) are readable; `handle` is its name in the log.

    Those in [held_start, log_start) are gone for readers and can come back (held.py): whoever asks what may
    be read asks `log_start`, whoever asks what is referred to asks `held_start`.
    Offsets below `merged.end_offset` are in segments, those from there on in the rows of `slices`.
    """

    __slots__ = (
        "begins_span",
        "handle",
        "held",
        "high_watermark",
        "index",
        "log_start",
        "merged",
        "producers",
        "skipped",
        "slices",
        "spans",
        "topic",
        "transactions",
    )

    def __init__(self, handle: int, topic: Topic, index: int, slices: SliceIndex) -> None:
        self.handle = handle
        self.topic = topic
        self.index = index
        self.log_start = 0
        self.held: tuple[Held, ...] = ()  # below the log start, in order, without gaps, up to it (held.py)
        self.high_watermark = 0
        self.slices = slices
        self.merged: Merged | None = None
        self.producers: dict[int, ProducerEntry] = {}
        self.transactions: PartitionTransactions | None = None  # until there is one
        self.skipped: tuple[Skipped, ...] = ()  # in order, apart from each other
        self.spans: tuple[Span, ...] = ()  # ascending (spans.py); before the first one: bound to nothing
        self.begins_span = False  # the next record does: what the newest names is not the topic's binding

    @property
    def size_bytes(self) -> int:
        """Record bytes that it has, held ones too: merged ones as their manifest says, and the tail's."""
        return self.slices.size_bytes + (self.merged.size_bytes if self.merged is not None else 0)

    @property
    def held_start(self) -> int:
        """The first offset whose record is referred to: the log start where nothing below it is held."""
        held = self.held
        return held[0].start if held else self.log_start

    @property
    def settled(self) -> int:
        """Below it every transaction has ended, also of what is held: what may be merged. See last_stable."""
        transactions = self.transactions
        if transactions is None or not transactions.open:
            return self.high_watermark
        return max(self.held_start, next(iter(transactions.open.values())))

    @property
    def last_stable(self) -> int:
        """The last stable offset: reads of committed data stop below it. It never goes back."""
        transactions = self.transactions
        if transactions is None or not transactions.open:
            return self.high_watermark
        return max(self.log_start, next(iter(transactions.open.values())))

    def aborted(self, start: int, end: int) -> list[Aborted]:
        """The aborted transactions with records in [start, end) of the tail, in the order of their ends.

        Merged ranges hold no records of aborted transactions.
        """
        return [] if self.transactions is None else self.transactions.overlapping(start, end)


class Topic:
    """One topic. `configs` holds only what was set on the topic itself; times are Unix ms."""

    __slots__ = (
        "bound_revision",
        "configs",
        "created_ms",
        "extents",
        "key_schema_id",
        "name",
        "partitions",
        "schema_ids",
        "topic_id",
        "value_schema_id",
    )

    def __init__(self, name: str, topic_id: bytes, configs: dict[str, str], created_ms: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[Partition] = []
        self.configs = configs
        self.created_ms = created_ms
        self.schema_ids: list[int] = []  # of all its bindings, oldest first
        self.value_schema_id: int | None = None
        self.key_schema_id: int | None = None
        self.bound_revision = 0  # of the last change of these two, or of what they follow; 0: none so far
        self.extents: list[Extent] = []  # of committed transactions that its table may lack, oldest first

    @property
    def binding(self) -> tuple[int, int]:
        """The ids of the schemas of its keys and values; 0: none."""
        return self.key_schema_id or 0, self.value_schema_id or 0


@dataclass(slots=True)
class DeletedTopic:
    """A topic that was deleted and can come back (deleted.py). Times are stamps of the log, Unix ms.

    `by`: who deleted it, empty where that is not known; `size_bytes`: of the records that it held then;
    `weight`: bytes of the state that it takes, about.
    """

    topic: Topic
    deleted_ms: int
    until_ms: int
    by: str
    schemas: list[Schema]
    size_bytes: int
    weight: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens for Kafka clients."""

    name: str
    host: str
    port: int


PRODUCE, FETCH, BACKGROUND = "produce", "fetch", "background"
ROLES = (PRODUCE, FETCH, BACKGROUND)  # what an agent may be for; all of them unless it says otherwise


@dataclass(frozen=True, slots=True)
class Broker:
    """A live agent. Metadata shows those of `serving_of`. `peer_address`: host:port, empty for none."""

    node_id: int
    name: str
    incarnation: int
    listeners: tuple[Endpoint, ...]
    zone: str
    http_address: str
    version: str
    roles: tuple[str, ...] = ROLES
    peer_address: str = ""
    named: bool = True  # False from its registration as joining until EnterMetadata
    unwell: str = ""  # why it cannot do its work; empty: it can

    @property
    def is_for_clients(self) -> bool:
        """Whether its roles are for Kafka clients."""
        return PRODUCE in self.roles or FETCH in self.roles

    @property
    def serving(self) -> bool:
        """Whether Kafka clients are sent to it when it is well."""
        return self.named and self.is_for_clients


def serving_of(brokers: Iterable[Broker]) -> list[Broker]:
    """Those that Kafka clients are sent to: the ones that are well; all of them while none is.

    While none is in Metadata that is who is about to enter it: a client that is told of nobody has nobody to
    ask again (aiokafka never recovers).
    """
    able = [broker for broker in brokers if broker.is_for_clients]
    serving = [broker for broker in able if broker.named] or able
    return [broker for broker in serving if not broker.unwell] or serving


@dataclass(slots=True)
class Incarnation:
    """One run of an agent process. After `fenced_revision` (when not 0) none of its entries count."""

    incarnation: int
    name: str
    node_id: int
    sequence: int  # of its last entry in the log
    applied_revision: int  # what it said it had applied
    registered_revision: int
    last_revision: int  # of its last entry
    last_proposed_ms: int
    feature_min: int
    feature_max: int
    fenced_revision: int = 0
    next_chunk_number: int = 0

    @property
    def live(self) -> bool:
        """Whether its entries count."""
        return self.fenced_revision == 0


TABLE_FOLDER_DIGITS = 12
"""Hexadecimal digits of the topic's id at the end of the name of the folder that its table's files are in."""


@dataclass(frozen=True, slots=True)
class Table:
    """An Iceberg table's current-metadata pointer. `next_offsets`: offsets below are in the table.

    They are offsets of the topic `topic_id`, which may be gone, and another have its name `topic`.
    """

    namespace: str
    name: str
    metadata_location: str
    revision: int
    topic: str
    next_offsets: tuple[int, ...]
    topic_id: bytes = b""


class Naming(IntEnum):
    """How a binding finds the subject of the registry that it follows. Snapshots hold the numbers."""

    NONE = 0  # it follows none: it has a message of its own
    SUBJECT = 1  # it names the subject
    RECORD = 2  # the subject is called as the record's message
    TOPIC_RECORD = 3  # the same with the topic's name and a dash before it


@dataclass(frozen=True, slots=True)
class Schema:
    """What the keys or values of a topic are bound to. Roles and framings: log.proto BindSchema.

    A protobuf message of its own, or (`naming`) schemas of the registry, which records name in their frames:
    then there is no descriptor set, and `message`, unless empty, is the only one that records may be.
    """

    schema_id: int
    topic: str
    role: int
    version: int
    descriptor_set: bytes
    message: str
    framing: int
    tombstones: bool
    subject: str = ""
    subject_version: int = 0  # 0: every version that is not deleted
    naming: int = 0  # a Naming


@dataclass(frozen=True, slots=True)
class ClaimHolder:
    """Who holds a named job. `revision` (of the claim) fences the holder's table commits."""

    incarnation: int
    revision: int


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A durable snapshot of the state at `revision`; `size` in bytes."""

    revision: int
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class ChunkCommitted:
    """Per batch of the chunk, in the command's order: Kafka's error code and the base offset (-1 on error).

    A duplicate has error 0 and the base offset of its first appearance; `duplicates` are their places.
    """

    errors: list[int]
    base_offsets: list[int]
    duplicates: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect. `value` depends on the command (docstrings of coordination/state)."""

    value: object = None


class Pace(NamedTuple):
    """How fast an agent appends and stores, as it says, microseconds; 0: unknown (Heartbeat in log.proto)."""

    append_us: int = 0
    append_late_us: int = 0
    put_us: int = 0
    put_late_us: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """The command had no effect. `message` names the field, the value and the remedy."""

    code: Code
    message: str


Result = ChunkCommitted | Done | Refused


class Said(NamedTuple):
    """What an entry's author said of its own state: its rolling hash, empty where it does not tell.

    `asks`: it wants to hear whether others have the same.
    """

    revision: int
    digest: bytes
    asks: bool


@dataclass(slots=True)
class Applied:
    """What one entry did. `touched` names partitions (handles, possibly repeated) whose bounds moved.

    `groups`: those whose members it changed, each with the members of KIP-848 that are new or altered.
    """

    revision: int
    incarnation: int
    sequence: int
    results: tuple[Result, ...]
    touched: Sequence[int] = ()
    fenced: Sequence[int] = ()  # incarnations that this entry fenced
    groups: Sequence[tuple[str, Sequence[str]]] = ()
    said: Said | None = None


class At:
    """Where in the log a command stands, and what its entry gathers while being applied."""

    __slots__ = ("author", "fenced", "groups", "now_ms", "requests", "revision", "touched")

    def __init__(self, revision: int, author: Incarnation, now_ms: int) -> None:
        self.revision = revision
        self.author = author
        self.now_ms = now_ms
        self.touched: list[int] = []
        self.fenced: list[int] = []
        self.groups: list[tuple[str, Sequence[str]]] = []
        self.requests: dict[str, bytes] = {}  # by name of a topic created here: whose it is
