"""What Kafka's side of an agent shows the console: plain values, so that neither needs to know the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from objectstore.naming import ChunkId


class RecordsRead(NamedTuple):
    """Whole batches in the order of their offsets, committed; some may begin before the offset asked for.

    `following` is the offset to go on at, `log_start` and `last_stable` bound what there is. `problem`: the
    name of Kafka's error, empty for none.
    """

    batches: Sequence[memoryview]
    following: int
    log_start: int
    last_stable: int
    problem: str


class ShownGroup(NamedTuple):
    """A group's kind, state and protocol as Kafka spells them."""

    kind: str
    state: str
    protocol: str


class GroupMember(NamedTuple):
    """A member of a group. `assigned`: its partitions by topic."""

    member_id: str
    instance_id: str
    client_id: str
    host: str
    assigned: Mapping[str, Sequence[int]]


class Stored(NamedTuple):
    """Where a record's batch is: bytes [position, position + length) of the object `key`.

    `run`: the incarnation that wrote the object. The bytes are in a run of the partition's offsets
    [first_offset, end_offset): a slice of a chunk, a block of a segment. `chunk` or `segment`: which it is.
    """

    key: str
    position: int
    length: int
    run: int
    first_offset: int
    end_offset: int
    chunk: ChunkId | None = None
    segment: SegmentShown | None = None


class SegmentShown(NamedTuple):
    """A segment: what it holds, and the object that names it. `size` in bytes, times Unix ms."""

    records: int
    size: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    manifest: str


class Written(NamedTuple):
    """A record's batch as its producer sent it, and the record's own place in it.

    `sequence`: the record's, -1 where its producer counts none. `timestamp_ms`: the record's, by `stamped_by`
    (producer or broker); None: the batch has no record at this offset. `codec`: Kafka's name.
    """

    first_offset: int
    last_offset: int
    records: int
    producer_id: int
    producer_epoch: int
    sequence: int
    timestamp_ms: int | None
    stamped_by: str
    codec: str
    transactional: bool
    control: bool
    aborted: bool


class RecordLife(NamedTuple):
    """What is known of an offset of a partition by now. `marker`: it is the end of a transaction, which no
    object holds: whether that committed, else None. `problem`: why the rest cannot be told; empty for none.
    """

    log_start: int
    last_stable: int
    end_offset: int
    stored: Stored | None = None
    written: Written | None = None
    marker: bool | None = None
    problem: str = ""
