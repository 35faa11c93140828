"""How far a partition's log start moves by its topic's retention. Pure.

Kafka's rule (UnifiedLog.deleteOldSegments, 4.3) over pieces instead of segments, oldest first: a piece goes
when its newest timestamp is older than `retention.ms`, or when the bytes left without it still reach
`retention.bytes`; the first piece that stays ends it. A piece is what the state can tell apart: a run of
batches of one flush, or a merged segment. There is no active segment: Kafka rolls it when it has expired, so
that it can go too; here a piece that is a moment old may go as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from coordination.state.types import Partition
from coordination.topic_configs import deletes, effective_int
from objectstore.manifest import Manifest

UNLIMITED = -1


class Piece(NamedTuple):
    """Consecutive records that go together: the offset after the last, record bytes, newest timestamp.

    The timestamp is Unix ms, -1 where no record has one.
    """

    end_offset: int
    size_bytes: int
    max_timestamp_ms: int


def tail_pieces(partition: Partition) -> Iterator[Piece]:
    """The pieces of a partition's tail. Use them up before the next await: the tail changes."""
    return itertools.starmap(Piece, partition.slices.pieces())


def merged_pieces(manifest: Manifest) -> Iterator[Piece]:
    """The pieces of the merged range in front of the tail."""
    for number in range(len(manifest)):
        segment = manifest[number]
        yield Piece(segment.end_offset, segment.record_bytes, segment.max_timestamp_ms)


@dataclass(frozen=True, slots=True)
class Rules:
    """A topic's retention: milliseconds and bytes per partition; -1 for no limit."""

    ms: int
    bytes: int

    @property
    def keeps_all(self) -> bool:
        """Whether nothing ever goes."""
        return self.ms < 0 and self.bytes < 0

    def expired(self, max_timestamp_ms: int, now_ms: int) -> bool:
        """Whether a record of that timestamp is too old. One without a timestamp never is."""
        return self.ms >= 0 and max_timestamp_ms >= 0 and now_ms - max_timestamp_ms > self.ms


def rules_of(topic: Mapping[str, str], cluster: Mapping[str, str]) -> Rules:
    """The rules that a topic's configs and the cluster's state; no limit unless the policy deletes."""
    if not deletes(topic, cluster):
        return Rules(UNLIMITED, UNLIMITED)
    return Rules(
        effective_int("retention.ms", topic, cluster), effective_int("retention.bytes", topic, cluster)
    )


def new_start(pieces: Iterable[Piece], log_start: int, size_bytes: int, rules: Rules, now_ms: int) -> int:
    """The log start after retention: `log_start`, or the end of a piece.

    `pieces` are all that hold offsets from `log_start` on, in order, `size_bytes` their sum. A piece whose
    records have no timestamp goes with an expired one behind it: by itself it has no age.
    """
    start, excess = log_start, size_bytes - rules.bytes if rules.bytes >= 0 else -1
    ageless = True  # every piece so far has expired or has no timestamp
    for piece in pieces:
        excess -= piece.size_bytes
        if piece.end_offset <= log_start:  # held (coordination/state/held.py), or not yet out of its manifest
            continue
        old = rules.expired(piece.max_timestamp_ms, now_ms)
        ageless = ageless and (old or piece.max_timestamp_ms < 0)
        if excess >= 0 or (old and ageless):
            start = piece.end_offset
        elif not ageless or rules.ms < 0:
            break
    return max(start, log_start)
