"""What the state is made of and what applying a command answers. Readers may look, never touch."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

from coordination.kafka_codes import Code
from coordination.state.slices import SliceIndex


class ProducerEntry:
    """One idempotent producer on one partition (Kafka's ProducerStateEntry).

    `recent` holds (first sequence, base offset) of the last five batches, oldest first, flat. Batches of
    one epoch are contiguous in sequence, so each ends where the next begins. Everything from
    `floor_sequence` to `last_sequence` was accepted. `last_timestamp` is the proposer's stamp, Unix ms.
    """

    __slots__ = ("epoch", "floor_sequence", "last_sequence", "last_timestamp", "recent")

    def __init__(self, epoch: int, floor_sequence: int) -> None:
        self.epoch = epoch
        self.floor_sequence = floor_sequence
        self.last_sequence = -1
        self.last_timestamp = -1
        self.recent: array[int] = array("q")

    @property
    def last_offset(self) -> int:
        """Offset of its newest record; -1 when none is remembered."""
        recent = self.recent
        return recent[-1] + ((self.last_sequence - recent[-2]) & 0x7FFFFFFF) if recent else -1


class Partition:
    """One partition. Offsets [log_start, high_watermark) are readable; `handle` is its name in the log."""

    __slots__ = ("handle", "high_watermark", "index", "log_start", "producers", "slices", "topic")

    def __init__(self, handle: int, topic: Topic, index: int, slices: SliceIndex) -> None:
        self.handle = handle
        self.topic = topic
        self.index = index
        self.log_start = 0
        self.high_watermark = 0
        self.slices = slices
        self.producers: dict[int, ProducerEntry] = {}

    @property
    def last_stable(self) -> int:
        """The last stable offset: reads of committed data stop below it."""
        return self.high_watermark


class Topic:
    """One topic. `configs` holds only what was set on the topic itself; times are Unix ms."""

    __slots__ = (
        "configs",
        "created_ms",
        "key_schema_id",
        "name",
        "partitions",
        "topic_id",
        "value_schema_id",
    )

    def __init__(self, name: str, topic_id: bytes, configs: dict[str, str], created_ms: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: list[Partition] = []
        self.configs = configs
        self.created_ms = created_ms
        self.value_schema_id: int | None = None
        self.key_schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a broker listens for Kafka clients."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A live agent as Metadata shows it."""

    node_id: int
    name: str
    incarnation: int
    listeners: tuple[Endpoint, ...]
    zone: str
    http_address: str
    version: str


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


@dataclass(frozen=True, slots=True)
class Table:
    """An Iceberg table's current-metadata pointer. `next_offsets`: offsets below are in the table."""

    namespace: str
    name: str
    metadata_location: str
    revision: int
    topic: str
    next_offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schema:
    """A protobuf message bound to the keys or values of a topic. Roles and framings: log.proto BindSchema."""

    schema_id: int
    topic: str
    role: int
    version: int
    descriptor_set: bytes
    message: str
    framing: int
    tombstones: bool


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

    A duplicate has error 0 and the base offset of its first appearance.
    """

    errors: list[int]
    base_offsets: list[int]


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect. `value` depends on the command (docstrings of coordination/state)."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The command had no effect. `message` names the field, the value and the remedy."""

    code: Code
    message: str


Result = ChunkCommitted | Done | Refused


@dataclass(slots=True)
class Applied:
    """What one entry did. `touched` names partitions (handles, possibly repeated) whose bounds moved."""

    revision: int
    incarnation: int
    sequence: int
    results: tuple[Result, ...]
    touched: Sequence[int] = ()
    fenced: Sequence[int] = ()  # incarnations that this entry fenced


@dataclass(slots=True)
class At:
    """Where in the log a command stands, and what its entry gathers while being applied."""

    revision: int
    author: Incarnation
    now_ms: int
    touched: list[int] = field(default_factory=list)
    fenced: list[int] = field(default_factory=list)
