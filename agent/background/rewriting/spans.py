"""How far apart in time the records of one segment may be: retention takes away whole segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordination.topic_configs import deletes, effective_int
from objectstore.naming import SliceRef

TAIL_PARTS_MAX = 64  # segments that one tail becomes for its times' sake, whatever these are


def span_ms(topic: Mapping[str, str], cluster: Mapping[str, str]) -> int:
    """segment.ms, or a quarter of retention.ms."""
    limits = [effective_int("segment.ms", topic, cluster)]
    retention = effective_int("retention.ms", topic, cluster)
    if retention >= 0:
        limits.append(retention // 4)
    return min(limits)


@dataclass(slots=True)
class Span:
    """The times of what is joined, in order. `ms_max`: how far apart they may be (-1: any)."""

    ms_max: int
    _begun_ms: int = -1

    @classmethod
    def of(cls, topic: Mapping[str, str], cluster: Mapping[str, str]) -> Span:
        """For what compaction joins: any where nothing goes by its age."""
        return cls(span_ms(topic, cluster) if deletes(topic, cluster) else -1)

    def begin(self, first_ms: int) -> None:
        """This piece is joined with nothing before it."""
        self._begun_ms = first_ms

    def takes(self, first_ms: int, newest_ms: int) -> bool:
        """Whether this piece may be joined with those since the beginning.

        The first piece's time counts, not the oldest's: what is older and comes later goes no sooner, since
        retention ends at the first piece that stays. So times that go up and down part nothing for ever.
        """
        if self._begun_ms < 0:  # pieces without a time have no age
            self.begin(first_ms)
        return self.ms_max < 0 or newest_ms - self._begun_ms <= self.ms_max


def parted(rows: Sequence[SliceRef], span: Span) -> list[list[SliceRef]]:
    """Rows of a tail in runs that may become one segment each, TAIL_PARTS_MAX at most."""
    runs: list[list[SliceRef]] = []
    for row in rows:
        stamp = row.max_timestamp_ms
        if not runs or (not span.takes(stamp, stamp) and len(runs) < TAIL_PARTS_MAX):
            span.begin(stamp)
            runs.append([])
        runs[-1].append(row)
    return runs
